// Package approve is `opgate approve`: it approves an InstallPlan as the user, by one write that the gate judges.
package approve

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

const long = `Approve an InstallPlan, as the user of the current context. The gate decides: a plan that policies or Constraints do not
allow is refused, with the reasons, and stays as it is.

With --digest the same write consents to what the plan changes (annotation opgate.io/consent), which needs the RBAC verb
approve on the OperatorPolicies that hold it. The digest is in the refusal, in the status of the policy, and in
"opgate diff". It stands for exactly that change: if the plan makes another one, the approval is refused.

With --reason the same write overrides what refuses the plan (annotation opgate.io/override-reason), which needs the
verb override. The reason is shown in the status of the policy, in events and in the audit log.

With --expires, a duration such as 2h or a time as in RFC 3339, consent and override end then (annotations opgate.io/consent-expires and
override-expires): what OLM has not installed of the plan by that time is refused again.

A plan that was changed since it was read is not approved. One that is approved already is left as it is.`

const example = `  # what it changes, and then consent to exactly that
  opgate diff shop/install-x7
  opgate approve shop/install-x7 --digest sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae

  # with the plugin, whether it would be allowed
  kubectl opgate approve shop/install-x7 --dry-run

  # break-glass
  opgate approve shop/install-x7 --reason "incident 4711: the fix cannot wait"`

// Command returns `opgate approve`. Durations are counted from now.
func Command(now func() time.Time) *cobra.Command {
	var a approval
	var of cli.Kubeconfig
	var expires string
	cmd := &cobra.Command{
		Use:               "approve [NAMESPACE/]PLAN [--digest DIGEST]... [--reason TEXT] [--expires DURATION|TIME]",
		SuggestFor:        []string{"apply"},
		Short:             "Approve an InstallPlan, with consent to what it changes",
		Long:              long,
		Example:           example,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			if len(names) != 1 {
				return cli.Usage(cmd, "write the name of one InstallPlan, as in: approve install-x7 -n shop")
			}
			namespace, err := of.Namespace()
			if err != nil {
				return err
			}
			var ok bool
			if a.plan, ok = cli.NamespacedName(names[0], namespace); !ok {
				return cli.Usage(cmd, "%q is no name of an InstallPlan: write NAME or NAMESPACE/NAME", names[0])
			}
			if a.expires, err = cli.End(expires, now); err != nil {
				return cli.Usage(cmd, "--expires: %v", err)
			}
			config, client, err := of.Client(cmd)
			if err != nil {
				return err
			}
			authentication, err := authenticationclient.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			a.plans, a.reviews, a.out = client.Resource(plans).Namespace(a.plan.Namespace),
				authentication.SelfSubjectReviews(), cmd.OutOrStdout()
			return a.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	of.RegisterNamespace(cmd)
	flags.StringSliceVar(&a.digests, "digest", nil, "digest of a change to consent to; repeatable (default: none)")
	flags.StringVar(&a.reason, "reason", "", "reason of an override (default: no override)")
	flags.StringVar(&expires, "expires", "",
		"when consent and override end: a duration, such as 2h, or a time as in RFC 3339 (default: never)")
	flags.BoolVar(&a.dryRun, "dry-run", false, "have the API server judge the approval, and store nothing")
	of.Register(cmd)
	return cmd
}
