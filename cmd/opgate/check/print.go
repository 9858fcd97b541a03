package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
func printText(w io.Writer, judged []judgement) error {
	out := bufio.NewWriter(w)
	if len(judged) == 0 {
		fmt.Fprintln(out, "nothing to judge: the input holds no OperatorPolicy, Constraint, Policy, PolicySet, Subscription or InstallPlan")
		return out.Flush()
	}
	count := map[rules.Decision]int{}
	for i := range judged {
		j := &judged[i]
		count[j.verdict.Decision]++
		fmt.Fprintf(out, "%-5s %s %s  (%s)\n", j.verdict.Decision, strings.ToLower(j.kind), j.key(), text.Escape(displayFile(j.file)))
		for _, line := range lines(j) {
			fmt.Fprintln(out, "  "+text.Escape(line))
		}
	}
	fmt.Fprintf(out, "\n%d allowed, %d held, %d denied\n", count[rules.Allow], count[rules.Hold], count[rules.Deny])
	return out.Flush()
}

// lines are printed below an object: why it is refused, what is warned of and changed, and what the
// verdict rests on. Defaults that are filled in without a message are left to the JSON output.
func lines(j *judgement) (lines []string) {
	for _, r := range j.verdict.Reasons {
		lines = append(lines, r.Message)
	}
	for _, w := range warnings(&j.verdict) {
		lines = append(lines, "warning: "+w)
	}
	for _, c := range j.verdict.Changes {
		if c.Message == "" {
			continue
		}
		value, err := compact(c.Value)
		if err != nil {
			value = fmt.Sprint(c.Value)
		}
		lines = append(lines, "patch: add "+c.Path+" "+value)
	}
	// In a refused plan of one ClusterServiceVersion the reasons are complete.
	if j.verdict.Decision == rules.Allow || len(j.verdict.CSVs) > 1 {
		lines = append(lines, j.notes...)
	}
	return lines
}

// warnings are the admission warnings, in their order, without the object's name.
func warnings(v *rules.Verdict) []string {
	texts := []string{}
	for _, c := range v.Changes {
		if c.Message != "" {
			texts = append(texts, c.Message)
		}
	}
	for _, w := range v.Warnings {
		texts = append(texts, w.Message)
	}
	return texts
}

func compact(value any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSpace(b.String()), err
}

// item is one element of the JSON output.
type item struct {
	File      string                 `json:"file"`
	Kind      string                 `json:"kind"`
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Decision  string                 `json:"decision"`
	Reasons   []reason               `json:"reasons"`
	Warnings  []string               `json:"warnings"`
	Patch     []rules.PatchOperation `json:"patch"`
	// AlreadyApproved is set for a plan that is not judged.
	AlreadyApproved bool `json:"alreadyApproved,omitempty"`
}

type reason struct {
	Rule    rules.RuleID `json:"rule"`
	Source  string       `json:"source"`
	Message string       `json:"message"`
}

// printJSON writes a list, in which no list is null.
func printJSON(w io.Writer, judged []judgement) error {
	items := make([]item, len(judged))
	for i := range judged {
		j := &judged[i]
		items[i] = item{File: j.file, Kind: j.kind, Namespace: j.namespace, Name: j.displayName(), Decision: j.verdict.Decision.String(),
			Reasons: []reason{}, Warnings: warnings(&j.verdict), Patch: rules.Patch(j.verdict.Changes), AlreadyApproved: j.alreadyApproved}
		for _, r := range j.verdict.Reasons {
			items[i].Reasons = append(items[i].Reasons, reason{r.Rule, r.Source, r.Message})
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(items)
}
