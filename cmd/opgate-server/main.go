// Command opgate-server is the admission gate: what the image runs.
package main

import (
	// Templates may name time zones; an image need not have them, and without them a zone would silently mean UTC.
	_ "time/tzdata"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate-server/serve"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/verify"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

func main() { cli.Main(root()) }

func root() *cobra.Command {
	cmd := cli.Program(&cobra.Command{
		Use:   "opgate-server",
		Short: "An admission gate for operators installed by the Operator Lifecycle Manager",
		Long: `opgate-server decides, when an object is written, whether an operator may be subscribed to, installed or
upgraded.

"opgate-server serve" answers the API server's admission reviews; "opgate-server verify" tests that a cluster's
gate works. Commands such as "check" and "approve" are those of another program: opgate.`,
	}, version)
	cmd.AddCommand(serveCommand(), verify.Command(cmd.Name()))
	return cmd
}

func serveCommand() *cobra.Command {
	var options serve.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer the API server's admission and conversion reviews, and run the background loop",
		Long: `Answer the API server's admission reviews for Subscriptions, InstallPlans and OperatorPolicies, convert OperatorPolicies
between their versions, and, on one replica at a time, carry out what policies ask for.

Until every policy, Subscription, InstallPlan and ClusterServiceVersion has been read once, every review is
refused with "not ready"; /readyz says so too. SIGTERM ends the process when the API server has let go of its
connections, after --drain-delay at the earliest.

--olm-identity names the service account that OLM runs as. What it writes counts as OLM's only while the account is
verified: it exists, may escalate ClusterRoles, and its namespace is not younger than --namespace or has
--olm-namespace-uid. On a hosted control plane it names the user that OLM authenticates as, such as system:admin, who
may escalate ClusterRoles or is of group system:masters: any user who holds these credentials then passes as OLM.

The serving certificate is Opgate's own, from a CA in a Secret of --namespace that all replicas share, unless
--tls-cert-file or --self-signed say otherwise; see docs/certificates.md.`,
		Example: `  # in a pod
  opgate-server serve --namespace opgate-system --olm-identity system:serviceaccount:olm:olm-operator-serviceaccount

  # in a pod, with a mounted certificate
  opgate-server serve --tls-cert-file /certs/tls.crt --tls-key-file /certs/tls.key --olm-identity system:serviceaccount:olm:olm-operator-serviceaccount

  # on this machine
  opgate-server serve --self-signed --self-signed-ca-file ca.pem --webhook-bind-address 127.0.0.1:9443 \
    --olm-identity system:serviceaccount:olm:olm-operator-serviceaccount`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve.Run(cmd.Context(), options) },
	}
	options.AddFlags(cmd.Flags())
	return cmd
}
