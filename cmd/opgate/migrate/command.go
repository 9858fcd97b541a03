// Package migrate rewrites what is stored in an earlier version of OperatorPolicy, so that the version can be
// removed from the CustomResourceDefinition.
package migrate

import (
	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// Command returns `opgate migrate`.
func Command() *cobra.Command {
	var of cli.Kubeconfig
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Rewrite OperatorPolicies that are stored in v1beta1 as v1beta2",
		Long: `Rewrite OperatorPolicies that are stored in v1beta1 as v1beta2, and then take v1beta1 out of
status.storedVersions of the CustomResourceDefinition.

An object stays stored in the version in which it was last written. Each is written once more, unchanged; the API
server stores it in the present version, and does nothing where it is already. The conversion webhook must be running.
Repeating it is safe: what is migrated is not written again. If one object is refused, the others are written, the list
of versions stays, and the exit code is 1.`,
		Example: `  # what would be done
  opgate migrate --dry-run

  # on another cluster than that of the current context
  opgate migrate --context production`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, client, err := of.Client(cmd)
			if err != nil {
				return err
			}
			m := migration{client: client, out: cmd.OutOrStdout(), dryRun: dryRun}
			return m.run(cmd.Context())
		},
	}
	of.Register(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the objects that would be written, and write nothing")
	return cmd
}
