// Package kubeconfig loads the client configuration, in the same way for every command.
package kubeconfig

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load reads a kubeconfig file. Where the name is empty it takes the file that $KUBECONFIG names, else
// ~/.kube/config, else the service account of the pod.
func Load(file string) (*rest.Config, error) {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "opgate"
	config.QPS = -1 // the API server's priority and fairness limits requests
	return config, nil
}
