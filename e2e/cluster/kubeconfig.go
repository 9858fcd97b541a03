package cluster

import (
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is the path of a kubeconfig with a context for each of Admin, Tenant and OLM, named like them. Admin is
// the current one.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// OpgateKubeconfig is the path of the kubeconfig that Opgate runs with, unless the cluster is bare.
func (c *Cluster) OpgateKubeconfig() string { return filepath.Join(c.dir, "opgate.kubeconfig") }

// kubeconfigFor is the kubeconfig that has a context for user.
func (c *Cluster) kubeconfigFor(user User) string {
	if user == Opgate {
		return c.OpgateKubeconfig()
	}
	return c.Kubeconfig()
}

func (c *Cluster) writeKubeconfigs() error {
	for _, file := range []struct {
		path  string
		users []User // of those there are; the first is the current context
	}{
		{c.Kubeconfig(), []User{Admin, Tenant, OLM}},
		{c.OpgateKubeconfig(), []User{Opgate}},
	} {
		users := slices.DeleteFunc(file.users, func(user User) bool { return c.users[user] == nil })
		if len(users) == 0 {
			continue
		}
		config := clientcmdapi.NewConfig()
		config.CurrentContext = string(users[0])
		for _, user := range users {
			account, err := c.account(user)
			if err != nil {
				return fmt.Errorf("write kubeconfig: %w", err)
			}
			addContext(config, string(user), account)
		}
		if err := clientcmd.WriteToFile(*config, file.path); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig with one context.
func WriteKubeconfig(path string, user *rest.Config) error {
	const name = "default"
	config := clientcmdapi.NewConfig()
	config.CurrentContext = name
	addContext(config, name, &account{config: user})
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// clusterName is the name of the cluster in kubeconfigs.
const clusterName = "opgate-local"

func addContext(config *clientcmdapi.Config, name string, account *account) {
	config.Clusters[clusterName] = &clientcmdapi.Cluster{
		Server:                   account.config.Host,
		CertificateAuthorityData: account.config.CAData,
	}
	config.AuthInfos[name] = authInfo(account.config)
	config.Contexts[name] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: name, Namespace: account.namespace}
}

func authInfo(config *rest.Config) *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
	}
}
