package check

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// printText writes one block for each object and a summary.
func printText(w io.Writer, r *report) error {
	out := bufio.NewWriter(w)
	if r.total() == 0 {
		fmt.Fprintln(out, "nothing to judge: "+r.nothing)
	} else {
		for i := range r.judged {
			j := &r.judged[i]
			fmt.Fprintf(out, "%-5s %s %s  (%s)\n", j.Decision, strings.ToLower(j.Kind), j.Key(), j.where())
			for _, line := range lines(j) {
				fmt.Fprintln(out, "  "+text.Escape(line))
			}
		}
		if len(r.judged) > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, r.counts())
	}
	printNotes(out, r.notes)
	return out.Flush()
}

// where is the place of a judged object.
func (j *judgement) where() string {
	if j.with != "" {
		return j.Short() + ", with overlay " + text.Escape(j.with)
	}
	return j.Short()
}

// lines are printed below an object: why it is refused, what is warned of and would be changed, and what the verdict
// rests on. Each sentence stands there once; the patch is left to the JSON output.
func lines(j *judgement) (lines []string) {
	add := func(line string) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, r := range j.Reasons {
		add(r.Message)
	}
	if j.HeldByAPIServer {
		add("also held by the API server with --backstop=enforce") // whether it is, the input does not tell
	}
	for _, w := range findings(j) {
		add("warning: " + brief(w))
	}
	// In a refused plan of one ClusterServiceVersion the reasons are complete.
	if j.Decision == verdict.Allow || len(j.CSVs) > 1 {
		for i := range j.CSVs {
			add(j.Operators[i].Describe() + j.Operators[i].Disposition + j.Operators[i].Because())
		}
		for _, note := range j.Notes {
			add(note)
		}
	}
	return lines
}

// brief leaves out why a pending plan may not be approved: the input has the plan, and its verdict says that.
func brief(w inspect.Warning) string {
	if before, _, found := strings.Cut(w.Message, " ("+string(rules.RuleOperatorPolicyPending)+"): "); found &&
		w.Rule == rules.RuleOperatorPolicyPending {
		return before + " (" + string(rules.RuleOperatorPolicyPending) + ")"
	}
	return w.Message
}

// findings are the warnings that are not set aside, and what was not resolved.
func findings(j *judgement) []inspect.Warning {
	list := slices.DeleteFunc(inspect.Warnings(&j.Verdict), func(w inspect.Warning) bool {
		return slices.ContainsFunc(j.aside, func(s suppression) bool { return s.Warning == w })
	})
	if len(j.Hubs) > 0 {
		list = append(list, inspect.Warning{Message: "has hub templates in " + text.Join(j.Hubs, 3) +
			", which only the hub resolves: what it governs is held here; judge what the hub distributes"})
	}
	return list
}

func warnings(j *judgement) []string {
	texts := []string{}
	for _, f := range findings(j) {
		texts = append(texts, f.Message)
	}
	return texts
}

// located are the fields of the JSON output that say which object it is.
type located struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Kustomize string `json:"kustomization,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (j *judgement) located() located {
	return located{j.File, j.Line, j.Kustomization, j.Kind, j.Namespace, j.Name}
}

// item is one element of the JSON output.
type item struct {
	located
	Decision string           `json:"decision"`
	Reasons  []inspect.Reason `json:"reasons"`
	Warnings []string         `json:"warnings"`
	// SetAside are warnings that a comment or the configuration sets aside.
	SetAside []setAside               `json:"setAside,omitempty"`
	Patch    []verdict.PatchOperation `json:"patch"`
	// HeldByAPIServer is set for a refusal that the API server has without the webhooks.
	HeldByAPIServer bool `json:"heldByAPIServer,omitempty"`
	// AlreadyApproved is set for a plan that is not judged.
	AlreadyApproved bool `json:"alreadyApproved,omitempty"`
}

// setAside is a warning in the JSON output that is set aside, with the place that does so.
type setAside struct {
	Rule    verdict.RuleID `json:"rule"`
	Message string         `json:"message"`
	File    string         `json:"file"`
	Line    int            `json:"line"`
	Until   string         `json:"until"`
	Reason  string         `json:"reason"`
}

func (j *judgement) setAside() (list []setAside) {
	for _, s := range j.aside {
		list = append(list, setAside{s.Rule, s.Message, s.by.at.File, s.by.at.Line, s.by.until, s.by.reason})
	}
	return list
}

// printJSON writes a list, in which no list is null.
func printJSON(w io.Writer, r *report) error {
	items := make([]item, len(r.judged))
	for i := range r.judged {
		j := &r.judged[i]
		items[i] = item{located: j.located(), Decision: j.Decision.String(),
			Reasons: inspect.Reasons(&j.Verdict), Warnings: warnings(j), SetAside: j.setAside(),
			Patch: verdict.Patch(j.Changes), HeldByAPIServer: j.HeldByAPIServer, AlreadyApproved: j.AlreadyApproved}
	}
	return cli.JSON(w, items)
}
