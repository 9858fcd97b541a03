// Package verify tests that a cluster refuses what Opgate refuses: that the API server reaches the webhooks, trusts
// their certificate and obeys their answer.
package verify

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// Command returns the command "verify" of a program.
func Command(program string) *cobra.Command {
	var (
		of        cli.Kubeconfig
		namespace string
		timeout   time.Duration
		static    bool
		own       string
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that the cluster's gate refuses what it has to refuse",
		Long: `Verify that the cluster's gate refuses what it has to refuse.

A dry run of an OperatorPolicy that cannot be valid is sent to the API server. The gate works if webhook
` + webhook + ` refuses it; nothing is stored either way. It is tried again until --timeout, for a gate
that is starting. The exit code is 1 if the policy was admitted, or refused by anything else.

With --static the command also fails unless the API server has loaded the static policies of "opgate compile
--static"; it prints the name of the set. A dry run of a Lease in Opgate's namespace shows it, which needs the right
to create one.

The right to create and patch OperatorPolicy ` + name + ` in the namespace is enough. "helm test" runs this command.`,
		Example: `  ` + program + ` verify

  # the static policies too
  opgate verify --static

  # in a namespace that tenants use
  ` + program + ` verify --namespace shop --timeout 0s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout < 0 {
				return cli.Usage(cmd, "--timeout is %s: use 0s for a single try, or more", timeout)
			}
			if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
				return cli.Usage(cmd, "namespace %q: %s", namespace, strings.Join(problems, "; "))
			}
			config, client, err := of.Client(cmd)
			if err != nil {
				return err
			}
			v := verification{policies: client.Resource(policies).Namespace(namespace), namespace: namespace,
				out: cmd.OutOrStdout()}
			if err := v.run(cmd.Context(), timeout); err != nil || !static {
				return err
			}
			return verifyStatic(cmd.Context(), config, own, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&namespace, "namespace", "n", "default",
		"namespace of the policy; one that is not excluded from the gate")
	flags.DurationVar(&timeout, "timeout", time.Minute, "how long to try; 0s: once")
	flags.BoolVar(&static, "static", false, "verify also that the API server has loaded static policies")
	flags.StringVar(&own, "opgate-namespace", "opgate-system", "with --static: namespace of Opgate")
	of.Register(cmd)
	return cmd
}
