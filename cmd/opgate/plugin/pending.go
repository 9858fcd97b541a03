package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

const pendingLong = `List the InstallPlans that wait for approval, with the verdict that the gate would return if they were
approved now, and the rules that hold or refuse them. Nothing is written. The verdicts are computed here, by the same
rules, from one list of each kind: policies, Constraints, and what OLM stores.

VERDICT is Allow, Hold (something has to happen first) or Deny. Of an allowed plan it says who approves it: Opgate, by its
background loop, or a user, where Opgate leaves it; the wide output has the reason, and the right that the user needs. A plan is
outdated if no Subscription names it as its current plan: approving it would bring an earlier version. RULE is the first rule of the verdict, and how many more
there are; "why" shows all of them.

What the current user may not read ends the command, with the right and the ClusterRole that grants it, unless the
rules know that it is not known: then what depends on it is held, and a warning says so. A user who may not read the
policies asks the gate itself, plan by plan, with "opgate approve PLAN --dry-run".
ClusterRole opgate-reader grants all that is listed; what plans change, which policies with spec.consent are judged
by, needs opgate-contents as well.

The output in the formats of "kubectl get" is a List, in which each of items is about an InstallPlan:

  {"apiVersion", "kind", "metadata", "namespace", "name", "created", "outdated",
   "decision": "Allow"|"Hold"|"Deny", "approver": "Opgate"|"user"|"", "operators": [{"csv", "package", "version", "disposition"}],
   "reasons": [{"rule", "source", "message"}], "warnings": ["..."],
   "notes": ["why Opgate leaves one that may be approved to users, and where the suffix of a version decides"]}

--watch reads the cluster again every 5 seconds, and lists the plans that differ.

Exit codes:
  0  the plans were listed, whatever their verdicts
  2  the command line cannot be used, or the cluster cannot be read`

const pendingExample = `  # which plans wait in all namespaces, and what holds them
  kubectl opgate pending -A

  # with policies and messages, in one namespace
  kubectl opgate pending -n shop -o wide

  # the plans of one operator, by the label that OLM sets
  kubectl opgate pending -l operators.coreos.com/etcd.shop -o name

  # the plans that may be approved, for a script
  kubectl opgate pending -A -o jsonpath='{range .items[?(@.decision=="Allow")]}{.namespace}/{.name}{"\n"}{end}'`

// watchInterval is how often --watch reads the cluster: verdicts change with policies, catalogs and the time, too.
const watchInterval = 5 * time.Second

// pendingPlan is a plan that waits for approval, with its verdict.
type pendingPlan struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Outdated  bool      `json:"outdated"`
	Decision  string    `json:"decision"`
	// Approver is who approves a plan that is allowed.
	Approver  string             `json:"approver"`
	Operators []inspect.Operator `json:"operators"`
	Reasons   []inspect.Reason   `json:"reasons"`
	Warnings  []string           `json:"warnings"`
	Notes     []string           `json:"notes"`
}

func pendingCommand(now func() time.Time) *cobra.Command {
	var o options
	var selector string
	var watch bool
	cmd := &cobra.Command{
		Use:        "pending",
		SuggestFor: []string{"status", "get"},
		Short:      "List the InstallPlans that wait for approval, with their verdicts",
		Long:       pendingLong,
		Example:    pendingExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %s: a namespace is named by -n", text.Quote(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &pendingPrinter{output: &o.output, out: cmd.OutOrStdout(), now: now,
				table: printers.NewTablePrinter(o.output.table())}
			plans, err := o.pending(cmd, selector, now)
			if err != nil {
				return err
			}
			if len(plans) == 0 && !watch && o.output.printer == nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "no InstallPlan waits for approval"+o.where())
				return nil
			}
			if err := p.print(plans); err != nil || !watch {
				return err
			}
			cmd.SetErr(io.Discard) // what could not be read was said
			return wait.PollUntilContextCancel(cmd.Context(), watchInterval, false, func(context.Context) (bool, error) {
				plans, err := o.pending(cmd, selector, now)
				if err != nil {
					return false, err
				}
				return false, p.print(plans)
			})
		},
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "look at all namespaces, not at that of -n or the context")
	cmd.Flags().StringVarP(&selector, "selector", "l", "",
		"label selector of InstallPlans, such as operators.coreos.com/etcd.shop (default: all)")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "after listing, watch for changes")
	cmd.Flags().BoolVar(&o.output.noHeaders, "no-headers", false, "print no headers")
	o.register(cmd, formatWide)
	return cmd
}

// where names the namespace in which nothing was found.
func (o *options) where() string {
	if o.all {
		return ""
	}
	return " in namespace " + o.namespace + "; -A looks at all"
}

// pending returns the plans that wait and that a label selector selects. Rules do not read labels, so nothing keeps them.
func (o *options) pending(cmd *cobra.Command, selector string, now func() time.Time) ([]pendingPlan, error) {
	selected, err := labels.Parse(selector)
	if err != nil {
		return nil, cli.Usage(cmd, "-l %s: %s", text.Quote(selector), text.Escape(err.Error()))
	}
	left := map[types.NamespacedName]bool{}
	see := func(kind *snapshot.Kind, raw []byte) {
		var plan metav1.PartialObjectMetadata
		if kind == snapshot.InstallPlans && (json.Unmarshal(raw, &plan) != nil || !selected.Matches(labels.Set(plan.Labels))) {
			left[types.NamespacedName{Namespace: plan.Namespace, Name: plan.Name}] = true
		}
	}
	state, err := o.read(cmd.Context(), cmd.ErrOrStderr(), cluster.Options{Namespace: o.namespace, Seen: see})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pendingPlans(state, now()), func(p pendingPlan) bool { return left[p.key()] }), nil
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
				Decision: found.Decision.String(), Operators: append([]inspect.Operator{}, found.Operators...),
				Reasons:  inspect.Reasons(found.Reasons),
				Warnings: inspect.WarningTexts(&found.Verdict), Notes: []string{}}
			if found.Decision == verdict.Allow {
				p.Approver, p.Notes = c.Approver(plan)
			}
			p.Notes = append(p.Notes, found.Suffixes...)
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

const (
	// maxOperators bounds the operators in a row of a table.
	maxOperators = 3
	// maxCell bounds a free text in a table, in bytes.
	maxCell = 160
)

// pendingPrinter prints plans, and after the first time those that differ.
type pendingPrinter struct {
	*output
	table   printers.ResourcePrinter
	out     io.Writer
	now     func() time.Time
	printed map[types.NamespacedName]string
}

func (p *pendingPrinter) print(plans []pendingPlan) error {
	before := p.printed
	p.printed = map[types.NamespacedName]string{}
	plans = slices.DeleteFunc(plans, func(plan pendingPlan) bool {
		p.printed[plan.key()] = fmt.Sprint(plan)
		return before[plan.key()] == p.printed[plan.key()]
	})
	if len(plans) == 0 && before != nil {
		return nil
	}
	if p.printer != nil {
		return items(p.output, p.out, olm.InstallPlanGVK, plans, pendingPlan.key)
	}
	rows := make([][]string, len(plans))
	for i := range plans {
		rows[i] = plans[i].row(p.now())
	}
	return p.table.PrintObj(table(6, []string{"NAMESPACE", "PLAN", "OPERATORS", "VERDICT", "RULE", "AGE", "SOURCE", "MESSAGE"},
		rows), p.out)
}

func (p pendingPlan) key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func (p *pendingPlan) row(now time.Time) []string {
	var names []string
	for _, o := range p.Operators {
		names = append(names, o.CSV)
	}
	judged := p.Decision
	switch {
	case p.Outdated:
		judged += " (outdated)"
	case p.Approver != "":
		judged += " (by " + p.Approver + ")"
	}
	first := inspect.Reason{Message: cmp.Or(strings.Join(p.Notes, "; "), "-")}
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
	return []string{p.Namespace, p.Name, text.Truncate(text.Join(names, maxOperators), maxCell), judged, rule, age,
		cmp.Or(first.Source.String(), "-"), strings.TrimSpace(first.Message)}
}
