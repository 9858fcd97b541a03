package plugin

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

const pendingLong = `List the InstallPlans that wait for approval, in all namespaces, with the verdict that the gate would return if they were
approved now, and the rules that hold or refuse them. Nothing is written. The verdicts are computed here, by the same
rules, from one list of each kind: policies, Constraints, and what OLM stores.

VERDICT is Allow, Hold (something has to happen first) or Deny. A plan is outdated if no Subscription names it as its
current plan: approving it would bring an earlier version. RULE is the first rule of the verdict, and how many more
there are; "why" shows all of them.

What the current user may not read ends the command, with the right and the ClusterRole that grants it, unless the
rules know that it is not known: then what depends on it is held, and a warning says so. With -n, a user who may not
read the policies, but may approve in that namespace, gets the API server's answers to dry runs of the approvals.
ClusterRole opgate-reader grants all that is listed; what plans change, which policies with spec.consent are judged
by, needs opgate-contents as well.

The JSON output, and the same in YAML, is a list of

  {"namespace", "name", "created", "outdated", "decision": "Allow"|"Hold"|"Deny",
   "operators": [{"csv", "package", "version", "disposition"}],
   "reasons": [{"rule", "source", "message"}], "warnings": ["..."],
   "notes": ["why Opgate leaves one that may be approved to users"]}

Exit codes:
  0  the plans were listed, whatever their verdicts
  2  the command line cannot be used, or the cluster cannot be read`

const pendingExample = `  # which plans wait, and what holds them
  kubectl opgate pending

  # with policies and messages, in one namespace
  kubectl opgate pending -n shop -o wide

  # the plans of one operator, by the label that OLM sets
  kubectl opgate pending -l operators.coreos.com/etcd.shop -o custom-columns=PLAN:.name,VERDICT:.decision

  # the plans that may be approved, for a script
  kubectl opgate pending -o json | jq -r '.[] | select(.decision == "Allow") | .namespace + "/" + .name'`

// pendingPlan is a plan that waits for approval, with its verdict.
type pendingPlan struct {
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Created   time.Time          `json:"created"`
	Outdated  bool               `json:"outdated"`
	Decision  string             `json:"decision"`
	Operators []inspect.Operator `json:"operators"`
	Reasons   []inspect.Reason   `json:"reasons"`
	Warnings  []string           `json:"warnings"`
	Notes     []string           `json:"notes"`

	decision verdict.Decision
}

func pendingCommand(now func() time.Time) *cobra.Command {
	var o options
	var selector string
	cmd := &cobra.Command{
		Use:     "pending",
		Short:   "List the InstallPlans that wait for approval, with their verdicts",
		Long:    pendingLong,
		Example: pendingExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, err := o.selected(cmd, selector)
			if err != nil {
				return err
			}
			state, err := o.read(cmd.Context(), cmd.ErrOrStderr(), cluster.Options{Namespace: o.namespace})
			if d := o.dryRunAfter(err); d != nil && o.namespace != "" {
				plans, err := d.pending(cmd.Context(), o.namespace, cmd.ErrOrStderr(), err)
				if err != nil {
					return unusable("%s", text.Escape(err.Error()))
				}
				return printPending(cmd.OutOrStdout(), cmd.ErrOrStderr(), o.output, selected.of(plans), now())
			}
			if err != nil {
				return err
			}
			return printPending(cmd.OutOrStdout(), cmd.ErrOrStderr(), o.output, selected.of(pendingPlans(state, now())),
				now())
		},
	}
	o.registerNamespace(cmd)
	cmd.Flags().StringVarP(&selector, "selector", "l", "",
		"label selector of InstallPlans, such as operators.coreos.com/etcd.shop (default: all)")
	o.register(cmd, formatWide, formatJSON, formatYAML)
	return cmd
}

// pendingPlans judges the plans that wait, as of a time, sorted by namespace and name.
func pendingPlans(state *cluster.State, now time.Time) []pendingPlan {
	c := &inspect.Cluster{Snapshot: state.Snapshot, Now: now}
	plans := []pendingPlan{}
	for ns := range c.All() {
		for _, plan := range ns.Plans() {
			if !plan.AwaitsApproval() {
				continue
			}
			found := c.JudgePlan(plan)
			p := pendingPlan{Namespace: ns.Name(), Name: plan.Metadata.Name, Outdated: !ns.IsCurrent(plan),
				Decision: found.Decision.String(),
				decision: found.Decision, Operators: append([]inspect.Operator{}, found.Operators...),
				Reasons:  inspect.Reasons(&found.Verdict),
				Warnings: warningsOf(&found.Verdict), Notes: []string{}}
			if found.Decision == verdict.Allow {
				p.Notes = c.LeftToUsers(plan)
			}
			p.Created = created(plan)
			plans = append(plans, p)
		}
	}
	return plans
}

// created returns the time that the API server has set.
func created(plan *olm.InstallPlan) time.Time {
	t, _ := time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp)
	return t
}

func warningsOf(v *verdict.Verdict) []string {
	warnings := []string{}
	for _, w := range inspect.Warnings(v) {
		warnings = append(warnings, w.Message)
	}
	return warnings
}

const (
	// maxOperators bounds the operators in a row of a table.
	maxOperators = 3
	// maxCell bounds a free text in a table, in bytes.
	maxCell = 160
)

func printPending(out, stderr io.Writer, format string, plans []pendingPlan, now time.Time) error {
	if isData(format) {
		return printData(out, format, plans)
	}
	if len(plans) == 0 {
		fmt.Fprintln(stderr, "no InstallPlan waits for approval")
		return nil
	}
	header := []string{"NAMESPACE", "PLAN", "OPERATORS", "VERDICT", "RULE", "AGE"}
	if format == formatWide {
		header = append(header, "SOURCE", "MESSAGE")
	}
	rows := make([][]cell, len(plans))
	for i := range plans {
		rows[i] = plans[i].row(format == formatWide, now)
	}
	p := newPrinter(out)
	p.table(header, rows)
	return p.Flush()
}

func (p *pendingPlan) row(wide bool, now time.Time) []cell {
	var names []string
	for _, o := range p.Operators {
		names = append(names, o.CSV)
	}
	judged := decided(p.Decision, p.decision)
	if p.Outdated {
		judged.text += " (outdated)"
	}
	first := inspect.Reason{Rule: "-", Source: "-", Message: cmp.Or(strings.Join(p.Notes, "; "), "-")}
	rule := "-"
	if len(p.Reasons) > 0 {
		first = p.Reasons[0]
		rule = string(first.Rule)
		if len(p.Reasons) > 1 {
			rule += " +" + strconv.Itoa(len(p.Reasons)-1)
		}
	}
	age := "-"
	if !p.Created.IsZero() {
		age = duration.HumanDuration(now.Sub(p.Created))
	}
	row := []cell{plain(p.Namespace), plain(p.Name), plain(text.Truncate(text.Join(names, maxOperators), maxCell)),
		judged, plain(rule), plain(age)}
	if wide {
		row = append(row, plain(first.Source), plain(strings.TrimSpace(first.Message)))
	}
	return row
}
