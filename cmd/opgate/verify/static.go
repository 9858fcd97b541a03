package verify

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/staticpolicy"
)

// verifyStatic prints which static policies are in force. Errors: none are, or that is not known.
func verifyStatic(ctx context.Context, config *rest.Config, namespace string, out io.Writer) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	set, err := staticpolicy.Probe(ctx, c, namespace)
	switch {
	case err != nil:
		return err
	case set == "":
		return errors.New("no static policies of Opgate are in force at the API server that answered: docs/backstop.md says how to load them")
	}
	fmt.Fprintf(out, "static policies are in force: set %s\n", set)
	return nil
}
