package serve

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/internal/register"
	"github.com/opgate/opgate/rules/backstop"
)

// registerWebhooks applies the manifests of Options.Register, if there are any. The ClusterRole that owns the admission
// policies of the backstop owns the webhook configurations as well.
func registerWebhooks(ctx context.Context, config *rest.Config, o *Options, log logr.Logger) error {
	if o.Register == "" {
		return nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return register.Apply(ctx, register.Options{Client: client, Directory: o.Register, Namespace: o.Namespace,
		Owner: backstop.Name, Log: log})
}
