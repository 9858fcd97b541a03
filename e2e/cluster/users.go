package cluster

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// User is a user of the API server. Its value is the name of the kubectl context.
type User string

const (
	// Admin may do everything, through a ClusterRoleBinding. It is not in system:masters, so that it is refused like
	// every other user.
	Admin User = "admin"
	// Tenant may manage Subscriptions and InstallPlans in its namespaces, InstallPlan status included, and read
	// ClusterServiceVersions there.
	Tenant User = "tenant"
	// OLM is the service account of OLM's operators, with a token that the API server issued. It may do everything, as
	// OLM may.
	OLM User = "olm"
	// Opgate is the service account of Opgate, with the permissions of its webhooks and of its loop and no others. A
	// bare cluster does not have it.
	Opgate User = "opgate"
)

// Service accounts behind OLM and Opgate.
const (
	olmServiceAccount    = "olm-operator-serviceaccount"
	opgateServiceAccount = "opgate"
	lookupServiceAccount = "opgate-lookups"
)

// OLMUserName is the user name of OLM.
const OLMUserName = "system:serviceaccount:" + OLMNamespace + ":" + olmServiceAccount

// OpgateUserName is the user name of Opgate.
const OpgateUserName = "system:serviceaccount:" + OpgateNamespace + ":" + opgateServiceAccount

// InPlaceOfOpgate makes an admin write what Opgate alone writes: requests of Opgate itself are compared with its rights.
var InPlaceOfOpgate = rest.ImpersonationConfig{UserName: OpgateUserName, Groups: []string{"system:masters"}}

// tokenLifetime is that of service account tokens: as long as that of the client certificates that envtest makes.
const tokenLifetime = 7 * 24 * time.Hour

// account are the credentials of a user.
type account struct {
	config    *rest.Config
	namespace string // default of kubectl
}

func (c *Cluster) account(user User) (*account, error) {
	account, ok := c.users[user]
	if !ok {
		return nil, fmt.Errorf("no such user: %q", user)
	}
	return account, nil
}

// Credentials returns a client certificate for a user other than those of tests, such as a component of Kubernetes.
func (c *Cluster) Credentials(name string, groups ...string) (*rest.Config, error) {
	c.mu.Lock() // envtest counts serial numbers without one
	issued, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("make credentials of %s: %w", name, err)
	}
	return issued.Config(), nil
}

// createUsers issues the credentials of all users.
func createUsers(ctx context.Context, plane *controlPlane, c client.Client, opts *Options) (map[User]*account, error) {
	users := map[User]*account{}
	for user, namespace := range map[User]string{Admin: metav1.NamespaceDefault, Tenant: opts.TenantNamespaces[0]} {
		issued, err := plane.AddUser(envtest.User{Name: string(user)}, nil)
		if err != nil {
			return nil, fmt.Errorf("create user %s: %w", user, err)
		}
		users[user] = &account{config: issued.Config(), namespace: namespace}
	}
	serviceAccounts := map[User]client.ObjectKey{OLM: {Namespace: OLMNamespace, Name: olmServiceAccount}}
	if !opts.Bare {
		serviceAccounts[Opgate] = client.ObjectKey{Namespace: OpgateNamespace, Name: opgateServiceAccount}
	}
	for user, key := range serviceAccounts {
		token, err := createServiceAccount(ctx, c, key)
		if err != nil {
			return nil, fmt.Errorf("create user %s: %w", user, err)
		}
		config := rest.AnonymousClientConfig(plane.masters)
		config.BearerToken = token
		users[user] = &account{config: config, namespace: key.Namespace}
	}
	return users, nil
}

// createServiceAccount creates a service account and returns a token for it.
func createServiceAccount(ctx context.Context, c client.Client, key client.ObjectKey) (string, error) {
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := c.Create(ctx, serviceAccount); err != nil {
		return "", err
	}
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := c.SubResource("token").Create(ctx, serviceAccount, request); err != nil {
		return "", fmt.Errorf("request a token for service account %s: %w", key, err)
	}
	return request.Status.Token, nil
}
