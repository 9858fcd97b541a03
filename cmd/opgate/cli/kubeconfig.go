package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig are the flags of kubectl that name a cluster and a user, which kubectl itself does not pass on to plugins.
// The zero value is the current context.
type Kubeconfig struct {
	// File is a kubeconfig file. Default: the file that $KUBECONFIG names, else ~/.kube/config, else the service
	// account of the pod.
	File string
	// Context is a context of the file. Default: its current context.
	Context string
	// Cluster is a cluster of the file. Default: that of the context.
	Cluster string
	// User is a user of the file. Default: that of the context.
	User string
	// As is the name of a user to impersonate. Default: none.
	As string
	// RequestTimeout is how long one request may take, such as 30s. Default: as long as it takes.
	RequestTimeout string
}

// Register adds the flags to a command.
func (f *Kubeconfig) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.File, "kubeconfig", "",
		"kubeconfig file (default: $KUBECONFIG, else ~/.kube/config, else the pod's service account)")
	cmd.Flags().StringVar(&f.Context, "context", "", "context of the kubeconfig file (default: its current context)")
	cmd.Flags().StringVar(&f.Cluster, "cluster", "", "cluster of the kubeconfig file (default: that of the context)")
	cmd.Flags().StringVar(&f.User, "user", "", "user of the kubeconfig file (default: that of the context)")
	cmd.Flags().StringVar(&f.As, "as", "", "user to impersonate (default: none)")
	cmd.Flags().StringVar(&f.RequestTimeout, "request-timeout", "",
		"how long one request may take, such as 30s (default: as long as it takes)")
	CompleteFunc(cmd, "context", f.complete)
}

func (f *Kubeconfig) complete(
	*cobra.Command, []string, string,
) (contexts []cobra.Completion, directive cobra.ShellCompDirective) {
	config, err := f.loader().RawConfig()
	if err == nil {
		for name := range config.Contexts {
			contexts = append(contexts, name)
		}
	}
	return contexts, cobra.ShellCompDirectiveNoFileComp
}

func (f *Kubeconfig) loader() clientcmd.ClientConfig {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = f.File
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, &clientcmd.ConfigOverrides{
		CurrentContext: f.Context, Context: api.Context{Cluster: f.Cluster, AuthInfo: f.User},
		AuthInfo: api.AuthInfo{Impersonate: f.As}, Timeout: f.RequestTimeout})
}

// Load reads the client configuration.
func (f *Kubeconfig) Load() (*rest.Config, error) {
	if _, err := clientcmd.ParseTimeout(cmp.Or(f.RequestTimeout, "0")); err != nil {
		return nil, &ExitError{Code: ExitUnusable,
			Message: fmt.Sprintf("--request-timeout %q is no duration: write 30s, or 2m", f.RequestTimeout)}
	}
	config, err := f.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // client-go names a variable that kubectl does not document
		return nil, errors.New("find the API server: there is no kubeconfig: name one with --kubeconfig or $KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "opgate"
	config.QPS = -1 // the API server's priority and fairness limits requests
	return config, nil
}

// Client loads the client configuration of a command that writes: what the API server warns of is printed.
func (f *Kubeconfig) Client(cmd *cobra.Command) (*rest.Config, dynamic.Interface, error) {
	config, err := f.Load()
	if err != nil {
		return nil, nil, err
	}
	config.WarningHandler = rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{Deduplicate: true})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	return config, client, nil
}
