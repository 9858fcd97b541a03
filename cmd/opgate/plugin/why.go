package plugin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/suggest"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

const whyLong = `Say why an object is allowed, held or refused: the verdict for each operator, the rules and the policies they come from, what
would be accepted, and the edit of a policy that would change it. Nothing is written. The object is judged as if it were
written now, by the rules of the gate and the objects of the cluster:

  installplan [NAMESPACE/]NAME      as if it were approved now
  subscription [NAMESPACE/]NAME     as if it were created now
  csv [NAMESPACE/]NAME              as an installed operator, however it was approved
  operatorpolicy [NAMESPACE/]NAME   as if it were created now, with what it does to the plans that wait
  constraint NAME                   as if it were created now, with the operators that violate it
  policy [NAMESPACE/]NAME           as if it were created now, with what its templates wait for
  clusterextension NAME             as if it were created now, where OLM v1 is installed

With --at it is judged as at another time, for approval windows and freezes (bundle/approval-window): the objects are
those of the cluster now.

A user who may not read the policies asks the gate itself about an InstallPlan, with "opgate approve PLAN --dry-run".

What catalogs offer to a Subscription (subscription/unknown-csv, subscription/older-channel), and who writes, is not
judged.

An edit is shown only if the reason is gone when the same object is judged with it; others may remain. It is printed,
not made: on the cluster by the command, or in a file with the policy, as in git, by --write ("opgate suggest" makes
those of all plans that wait).

The output in the formats of "kubectl get" is

  {"apiVersion", "kind", "metadata", "object", "decision": "Allow"|"Hold"|"Deny", "operators": [{"csv", "package", "version", "disposition", "by"}],
   "reasons": [{"rule", "source", "message"}], "edits": [{"source", "rule", "edit", "command"}],
   "warnings": ["..."], "notes": ["..."]}

Exit codes:
  0  the object is allowed
  1  the object is held or refused
  2  the command line cannot be used, the cluster cannot be read, or there is no such object`

const whyExample = `  # why a plan waits
  kubectl opgate why installplan shop/install-x7

  # whether it may be approved on Saturday night
  kubectl opgate why installplan shop/install-x7 --at 2026-11-28T22:00:00+01:00

  # which plans a policy holds
  kubectl opgate why operatorpolicy policies/etcd`

// answer is what why prints.
type answer struct {
	Object    string             `json:"object"`
	Decision  string             `json:"decision"`
	Operators []inspect.Operator `json:"operators"`
	Reasons   []inspect.Reason   `json:"reasons"`
	Edits     []inspect.Edit     `json:"edits"`
	Warnings  []string           `json:"warnings"`
	Notes     []string           `json:"notes"`

	decision verdict.Decision
}

// judgedKind is a kind of objects that why judges.
type judgedKind struct {
	*snapshot.Kind
	// names are those of the command line, the first one is that of messages.
	names []string
}

var judgedKinds = []judgedKind{
	{snapshot.InstallPlans, []string{"installplan", "installplans", "ip", "plan"}},
	{snapshot.Subscriptions, []string{"subscription", "subscriptions", "sub", "subs"}},
	{snapshot.ClusterServiceVersions, []string{"clusterserviceversion", "clusterserviceversions", "csv", "csvs"}},
	{snapshot.OperatorPolicies, []string{"operatorpolicy", "operatorpolicies"}},
	{snapshot.Constraints, []string{"constraint", "constraints"}},
	{snapshot.Policies, []string{"policy", "policies"}},
	{snapshot.ClusterExtensions, []string{"clusterextension", "clusterextensions"}},
}

// question is an object and the cluster that it is judged by.
type question struct {
	judgedKind
	key   types.NamespacedName
	state *cluster.State
	mode  rules.ApprovalMode
	// now is the time to judge at.
	now time.Time

	mu sync.Mutex
	// raw is the JSON of the object, policies those of the OperatorPolicies, by namespace/name.
	raw      []byte
	policies map[string][]byte
}

func whyCommand(now func() time.Time) *cobra.Command {
	var o options
	var at string
	var files []string
	mode := string(rules.MutateApproval)
	cmd := &cobra.Command{
		Use:     "why KIND [NAMESPACE/]NAME",
		Short:   "Say why an object is allowed, held or refused, and which edit would change it",
		Long:    whyLong,
		Example: whyExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := parseQuestion(args, o.namespace)
			if err != nil {
				return cli.Usage(cmd, "%v", err)
			}
			q.mode = rules.ApprovalMode(mode)
			if q.now, err = cli.Moment(at, now); err != nil {
				return cli.Usage(cmd, "--at: %v", err)
			}
			if len(files) > 0 && q.Kind != snapshot.InstallPlans {
				return cli.Usage(cmd, "--write is for an installplan, whose versions policies allow")
			}
			found, err := q.ask(cmd.Context(), &o, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := found.print(cmd.OutOrStdout(), &o.output, q); err != nil {
				return unusable("%v", err)
			}
			if len(files) > 0 {
				if err := suggest.Write(files, q.state.Snapshot, q.key, q.now, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			if found.decision != verdict.Allow {
				return &cli.ExitError{Code: exitRefused}
			}
			return nil
		},
	}
	for _, judged := range judgedKinds {
		cmd.ValidArgs = append(cmd.ValidArgs, judged.names[0])
	}
	o.register(cmd)
	cli.ChoiceVar(cmd, &mode, "approval-mode", "",
		"that of the gate: its action on a wrong installPlanApproval, mutate or deny", mode, string(rules.DenyApproval))
	cmd.Flags().StringVar(&at, "at", "", "time to judge at, such as 2026-11-28T22:00:00Z (default: now)")
	cmd.Flags().StringArrayVar(&files, "write", nil,
		"file or directory with policies to make the edit of versions in; repeatable (default: none)")
	return cmd
}

// ask reads the cluster and judges the object.
func (q *question) ask(ctx context.Context, o *options, stderr io.Writer) (*answer, error) {
	q.policies = map[string][]byte{}
	in := cluster.Options{Seen: q.see}
	if q.Kind == snapshot.InstallPlans || q.Kind == snapshot.ClusterServiceVersions {
		in.Namespace = q.key.Namespace // no other namespace matters
	}
	var err error
	q.state, err = o.read(ctx, stderr, in)
	var missing *cluster.Forbidden
	switch {
	case q.Kind == snapshot.InstallPlans && errors.As(err, &missing):
		return nil, unusable("%v; the gate itself answers: kubectl opgate approve %s --dry-run", err, displayKey(q.key))
	case err != nil:
		return nil, err
	}
	if q.Kind == snapshot.ClusterExtensions {
		if q.raw, err = q.state.Get(ctx, snapshot.ClusterExtensions, q.key); err != nil {
			return nil, unusable("%v", err)
		}
	}
	if q.raw == nil {
		return nil, unusable("there is no %s %s", q.names[0], displayKey(q.key))
	}
	found, err := q.judge(ctx)
	if err != nil {
		return nil, unusable("%s %s: %v", q.names[0], displayKey(q.key), err)
	}
	return found, nil
}

// see keeps what is judged, and what may be edited.
func (q *question) see(kind *snapshot.Kind, raw []byte) {
	wanted := kind == q.Kind
	if !wanted && kind != snapshot.OperatorPolicies {
		return
	}
	var decode snapshot.Reader
	key := decode.Read(kind, raw).Key()
	q.mu.Lock()
	defer q.mu.Unlock()
	if wanted && key == q.key {
		q.raw = bytes.Clone(raw)
	}
	if kind == snapshot.OperatorPolicies {
		q.policies[key.String()] = bytes.Clone(raw)
	}
}

func displayKey(key types.NamespacedName) string {
	if key.Namespace == "" {
		return text.Name(key.Name)
	}
	return text.Name(key.Namespace) + "/" + text.Name(key.Name)
}

func (a *answer) print(out io.Writer, format *output, q *question) error {
	if format.printer != nil {
		return format.item(out, q.GroupVersionKind, q.key, a)
	}
	p := cli.NewPrinter(out)
	p.Line(0, a.Decision+" "+a.Object)
	for _, o := range a.Operators {
		p.Line(2, o.Describe()+o.Disposition+o.Because())
	}
	for _, r := range a.Reasons {
		p.Line(2, strings.TrimRight(string(r.Rule)+"  "+r.Source.String(), " "))
		p.Line(4, r.Message)
	}
	for _, e := range a.Edits {
		p.Line(2, "an edit of "+e.Source.String()+" that ends "+string(e.Rule)+": "+e.Edit)
		p.Line(4, e.Command)
		if q.Kind == snapshot.InstallPlans && (e.Rule == bundle.RuleVersion || e.Rule == bundle.RuleVersionRange) {
			p.Line(4, "kubectl opgate why installplan "+displayKey(q.key)+" --write FILE")
		}
	}
	for _, w := range a.Warnings {
		p.Line(2, "warning: "+w)
	}
	for _, n := range a.Notes {
		p.Line(2, n)
	}
	return p.Flush()
}
