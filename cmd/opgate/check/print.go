package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
)

func printProblems(w io.Writer, problems []problem) error {
	out := bufio.NewWriter(w)
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	return out.Flush()
}

// printText writes one block for each object and a summary.
func printText(w io.Writer, r *report) error {
	out := bufio.NewWriter(w)
	if r.total() == 0 {
		fmt.Fprintln(out, "nothing to judge: "+r.nothing)
	} else {
		for i := range r.judged {
			j := &r.judged[i]
			fmt.Fprintf(out, "%-5s %s %s  (%s)\n", j.verdict.Decision, strings.ToLower(j.kind), j.key(), j.where())
			for _, line := range lines(j) {
				fmt.Fprintln(out, "  "+text.Escape(line))
			}
		}
		if len(r.judged) > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, r.counts())
	}
	for _, note := range r.notes {
		fmt.Fprintln(out, text.Escape(note))
	}
	return out.Flush()
}

// where is the place of a judged object.
func (j *judgement) where() string {
	if j.with != "" {
		return j.short() + ", with overlay " + text.Escape(j.with)
	}
	return j.short()
}

// lines are printed below an object: why it is refused, what is warned of and would be changed, and what the verdict rests on. Each
// sentence stands there once; the patch is left to the JSON output.
func lines(j *judgement) (lines []string) {
	add := func(line string) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, r := range j.verdict.Reasons {
		add(r.Message)
	}
	if j.held {
		add("also held by the API server with --backstop=enforce") // whether it is, the input does not tell
	}
	for _, w := range findings(j) {
		add("warning: " + w.brief())
	}
	// In a refused plan of one ClusterServiceVersion the reasons are complete.
	if j.verdict.Decision == rules.Allow || len(j.verdict.CSVs) > 1 {
		for _, note := range j.notes {
			add(note)
		}
	}
	return lines
}

// finding is a warning.
type finding struct {
	rule           rules.RuleID
	field, message string
}

// brief leaves out why a pending plan may not be approved: the input has the plan, and its verdict says that.
func (f *finding) brief() string {
	if before, _, found := strings.Cut(f.message, " ("+string(rules.RuleOperatorPolicyPending)+"): "); found && f.rule == rules.RuleOperatorPolicyPending {
		return before + " (" + string(rules.RuleOperatorPolicyPending) + ")"
	}
	return f.message
}

// findings are the admission warnings, in their order, without the object's name, and what was not resolved.
func findings(j *judgement) []finding {
	list := []finding{}
	for _, c := range j.verdict.Changes {
		if c.Message != "" {
			// Nothing is changed here.
			list = append(list, finding{c.Rule, "", c.Preview()})
		}
	}
	for _, w := range j.verdict.Warnings {
		list = append(list, finding{w.Rule, w.Field, w.Message})
	}
	if len(j.hubs) > 0 {
		list = append(list, finding{message: "has hub templates in " + text.Join(j.hubs, 3) +
			", which only the hub resolves: what it governs is held here; judge what the hub distributes"})
	}
	return list
}

func warnings(j *judgement) []string {
	texts := []string{}
	for _, f := range findings(j) {
		texts = append(texts, f.message)
	}
	return texts
}

// item is one element of the JSON output.
type item struct {
	File      string                 `json:"file"`
	Line      int                    `json:"line"`
	Kustomize string                 `json:"kustomization,omitempty"`
	Kind      string                 `json:"kind"`
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Decision  string                 `json:"decision"`
	Reasons   []reason               `json:"reasons"`
	Warnings  []string               `json:"warnings"`
	Patch     []rules.PatchOperation `json:"patch"`
	// HeldByAPIServer is set for a refusal that the API server has without the webhooks.
	HeldByAPIServer bool `json:"heldByAPIServer,omitempty"`
	// AlreadyApproved is set for a plan that is not judged.
	AlreadyApproved bool `json:"alreadyApproved,omitempty"`
}

type reason struct {
	Rule    rules.RuleID `json:"rule"`
	Source  string       `json:"source"`
	Message string       `json:"message"`
}

// printJSON writes a list, in which no list is null.
func printJSON(w io.Writer, r *report) error {
	items := make([]item, len(r.judged))
	for i := range r.judged {
		j := &r.judged[i]
		items[i] = item{File: j.file, Line: j.line, Kustomize: j.kustomization, Kind: j.kind, Namespace: j.namespace, Name: j.name, Decision: j.verdict.Decision.String(),
			Reasons: []reason{}, Warnings: warnings(j), Patch: rules.Patch(j.verdict.Changes), HeldByAPIServer: j.held, AlreadyApproved: j.alreadyApproved}
		for _, why := range j.verdict.Reasons {
			items[i].Reasons = append(items[i].Reasons, reason{why.Rule, why.Source, why.Message})
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(items)
}
