package report

import (
	"cmp"
	"embed"
	"fmt"
	html "html/template"
	"io"
	"slices"
	"text/tabwriter"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// report is what is printed.
type report struct {
	Generated time.Time   `json:"generated"`
	Clusters  []*reported `json:"clusters"`
	Operators []*operator `json:"operators"`
}

// reported is a cluster, with why it could not be read.
type reported struct {
	cluster.Input `json:"-"`

	Name  string   `json:"name"`
	Error string   `json:"error,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// operator is one that is installed in a namespace, or waits to be.
type operator struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Package   string `json:"package"`
	// CSV and Version are what is installed; "" if nothing is yet.
	CSV      string   `json:"csv"`
	Version  string   `json:"version"`
	Policies []string `json:"policies"`
	// Decision is that on what is installed: whether the policies and Constraints allow it now.
	Decision string   `json:"decision"`
	Messages []string `json:"messages"`
	// Next is the version that OLM moves to; "" if none is known.
	Next    string   `json:"next"`
	Waiting *waiting `json:"waiting,omitempty"`
}

// waiting is an InstallPlan that waits for approval.
type waiting struct {
	Plan  string `json:"plan"`
	CSV   string `json:"csv"`
	Since string `json:"since"`
	// Decision is that on the plan. For is whom it waits for: what holds or refuses it, or who approves it.
	Decision string   `json:"decision"`
	For      []string `json:"for"`
	Messages []string `json:"messages"`
}

// operators returns those of a cluster that were asked for, by namespace.
func operators(s *cluster.State, name string, now time.Time) (all []*operator) {
	c := &inspect.Cluster{Snapshot: s.Snapshot, Now: now}
	for known := range c.All() {
		if s.Scope != "" && known.Name() != s.Scope {
			continue
		}
		ns := s.Namespace(known.Name())
		var found []*operator
		for _, of := range ns.Installed() {
			o := newOperator(name, ns, of.Package)
			o.CSV, o.Version = of.Name, of.Version
			if answer := c.JudgeInstalled(types.NamespacedName{Namespace: ns.Name(), Name: of.Name}); answer != nil {
				o.Decision, o.Messages = answer.Decision.String(), messages(answer)
			}
			for _, sub := range ns.Subscribers(of.Package) {
				if current := sub.Status.CurrentCSV; current != of.Name {
					o.Next = current
				}
			}
			found = append(found, o)
		}
		for _, plan := range ns.Plans() {
			if ns.Waits(plan) {
				found = wait(found, name, c, ns, plan)
			}
		}
		all = append(all, found...)
	}
	return all
}

func newOperator(cluster string, ns *state.Namespace, pkg string) *operator {
	o := &operator{Cluster: cluster, Namespace: ns.Name(), Package: pkg, Policies: []string{}, Messages: []string{},
		Decision: verdict.Allow.String()}
	for _, p := range ns.Governing(pkg) {
		o.Policies = append(o.Policies, p.Source())
	}
	return o
}

// wait adds a plan to the operators that it upgrades, and an operator for each that it installs first.
func wait(
	found []*operator, cluster string, c *inspect.Cluster, ns *state.Namespace, plan *olm.InstallPlan,
) []*operator {
	answer := c.JudgePlan(plan)
	for _, r := range carrier.Replacements(ns, plan) {
		if ns.Installs(r.CSV) {
			continue
		}
		i := slices.IndexFunc(found, func(o *operator) bool { return r.From != "" && o.CSV == r.From })
		if i < 0 {
			i, found = len(found), append(found, newOperator(cluster, ns, r.Package))
		}
		w := &waiting{Plan: plan.Metadata.Name, CSV: r.CSV, Since: plan.Metadata.CreationTimestamp,
			Decision: answer.Decision.String(), For: []string{}, Messages: messages(answer)}
		if answer.Decision == verdict.Allow {
			approver, notes := c.Approver(plan)
			w.For, w.Messages = []string{approver}, notes
		} else {
			for _, reason := range answer.Reasons {
				if source := reason.From.String(); source != "" && !slices.Contains(w.For, source) {
					w.For = append(w.For, source)
				}
			}
		}
		found[i].Waiting, found[i].Next = w, r.CSV
	}
	return found
}

func messages(a *inspect.Answer) []string {
	all := []string{}
	for _, r := range a.Reasons {
		all = append(all, r.Message)
	}
	return all
}

//go:embed page.html page.txt
var files embed.FS

// functions are those of the templates. What tenants wrote is escaped by all of them.
var functions = template.FuncMap{
	"shown": text.Escape,
	"cell":  func(s string) string { return cmp.Or(text.Escape(s), "-") },
	"names": func(names []string) string { return text.Join(names, maxNamed) },
}

// maxNamed bounds the names in a cell.
const maxNamed = 5

// page escapes everything for HTML, and characters that turn text around too; table is a table and what is wrong with each
// operator.
var (
	page  = html.Must(html.New("page.html").Funcs(functions).ParseFS(files, "page.html"))
	table = template.Must(template.New("page.txt").Funcs(functions).ParseFS(files, "page.txt"))
)

func printPage(out io.Writer, r *report) error { return page.Execute(out, r) }

func printText(out io.Writer, r *report) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	return cmp.Or(table.Execute(w, r), w.Flush())
}

// Title is the heading of the page.
func (r *report) Title() string {
	return fmt.Sprintf("%s on %s", text.Count(len(r.Operators), "operator"), text.Count(len(r.Clusters), "cluster"))
}

// Counts are how many operators are in each state, and how many wait.
func (r *report) Counts() string {
	counts, waiting := map[string]int{}, 0
	for _, o := range r.Operators {
		counts[o.Verdict()]++
		if o.Waiting != nil {
			waiting++
		}
	}
	return fmt.Sprintf("%d allowed, %d held, %d refused, %d governed by no policy; %d wait for approval",
		counts[words[allow]], counts[words[hold]], counts[words[deny]], counts[noPolicy], waiting)
}

// Age is how long something has waited.
func (r *report) Age(since string) string {
	at, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return "an unknown time"
	}
	return duration.HumanDuration(r.Generated.Sub(at))
}

// The decisions, as the report has them.
var allow, hold, deny = verdict.Allow.String(), verdict.Hold.String(), verdict.Deny.String()

// words are the decisions as a sign and a word.
var words = map[string]string{allow: "✓ allowed", hold: "‖ held", deny: "✗ refused"}

// noPolicy is for an operator that no policy governs, and nothing else refuses.
const noPolicy = "○ no policy"

// Verdict is the decision on what is installed.
func (o *operator) Verdict() string {
	switch {
	case o.CSV == "":
		return "not installed"
	case len(o.Policies) == 0 && o.Decision == allow:
		return noPolicy
	}
	return words[o.Decision]
}

// State is the name of the style of the decision.
func (o *operator) State() string {
	if o.Verdict() == words[o.Decision] {
		return o.Decision
	}
	return "none"
}

// Verdict is the decision on the plan.
func (w *waiting) Verdict() string { return words[w.Decision] }
