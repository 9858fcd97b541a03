package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig are the flags of kubectl that name a cluster, a user and a namespace, which kubectl itself does not pass on
// to plugins. The zero value is the current context.
type Kubeconfig struct {
	// File is a kubeconfig file. Default: the files that $KUBECONFIG names, else ~/.kube/config, else the service
	// account of the pod.
	File string
	// Overrides are the values of the other flags.
	Overrides clientcmd.ConfigOverrides

	flags *pflag.FlagSet
}

// Register adds the flags to a command, except for -n and those that it has under the same name.
func (f *Kubeconfig) Register(cmd *cobra.Command) {
	f.flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.flags.StringVar(&f.File, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	clientcmd.BindOverrideFlags(&f.Overrides, f.flags, names)
	cmd.Flags().AddFlagSet(f.flags)
	CompleteFunc(cmd, "context", f.complete)
}

// RegisterNamespace adds -n to a command.
func (f *Kubeconfig) RegisterNamespace(cmd *cobra.Command) {
	flag := clientcmd.RecommendedContextOverrideFlags("").Namespace
	flag.BindTransformingStringFlag(cmd.Flags(), &f.Overrides.Context.Namespace, clientcmd.RemoveNamespacesPrefix)
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

// Given reports whether the command line has one of the flags.
func (f *Kubeconfig) Given() (given bool) {
	if f.flags != nil {
		f.flags.VisitAll(func(flag *pflag.Flag) { given = given || flag.Changed })
	}
	return given
}

func (f *Kubeconfig) loader() clientcmd.ClientConfig {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = f.File
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, &f.Overrides)
}

// Namespace returns the namespace of the flag, else that of the context, else "default".
func (f *Kubeconfig) Namespace() (string, error) {
	namespace, _, err := f.loader().Namespace()
	if clientcmd.IsEmptyConfig(err) { // Load returns it
		return cmp.Or(f.Overrides.Context.Namespace, metav1.NamespaceDefault), nil
	}
	if err != nil {
		if _, said := f.Load(); said != nil { // in better words
			err = said
		}
		return "", err
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return "", &ExitError{Code: ExitUnusable,
			Message: fmt.Sprintf("namespace %q: %s", namespace, strings.Join(problems, "; "))}
	}
	return namespace, nil
}

// Load reads the client configuration. An error has ExitUnusable.
func (f *Kubeconfig) Load() (*rest.Config, error) {
	config, err := f.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // client-go names a variable that kubectl does not document
		return nil, &ExitError{Code: ExitUnusable,
			Message: "find the API server: there is no kubeconfig: name one with --kubeconfig or $KUBECONFIG"}
	}
	if err != nil {
		return nil, &ExitError{Code: ExitUnusable, Message: "find the API server: " + err.Error(), Cause: err}
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
