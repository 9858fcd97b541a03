package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

//go:embed page.html
var page string

// pageTemplate makes the page. Everything in it is escaped for HTML, and characters that turn text around are too.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"shown": text.Escape,
	"names": func(names []string) string { return text.Join(names, maxNamed) },
}).Parse(page))

// maxNamed bounds the policies in a cell.
const maxNamed = 5

func printPage(out io.Writer, r *report) error {
	return pageTemplate.Execute(out, r)
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

// At is when the report was made.
func (r *report) At() string { return r.Generated.Format("2006-01-02 15:04 MST") }

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

// printText prints a table, and then what is wrong with each operator.
func printText(out io.Writer, r *report) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tNAMESPACE\tPACKAGE\tINSTALLED\tVERDICT\tPOLICY\tNEXT\tWAITS\tFOR")
	var details []string
	for _, o := range r.Operators {
		since, whom := "-", "-"
		all := slices.Clone(o.Messages)
		if o.Waiting != nil {
			since, whom = r.Age(o.Waiting.Since), text.Join(o.Waiting.For, maxNamed)
			all = append(all, o.Waiting.Messages...)
		}
		row := []string{o.Cluster, o.Namespace, o.Package, o.CSV, o.Verdict(), text.Join(o.Policies, maxNamed), o.Next,
			since, whom}
		for i, cell := range row {
			row[i] = cmp.Or(text.Escape(cell), "-")
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
		for _, m := range all {
			details = append(details, text.Escape(o.Cluster+" "+o.Namespace+"/"+o.Package+": "+m))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	slices.Sort(details)
	details = append(slices.Compact(details), r.Title()+": "+r.Counts())
	for _, c := range r.Clusters {
		for _, note := range c.Notes {
			details = append(details, text.Escape(c.Name+": "+note))
		}
	}
	_, err := fmt.Fprintln(out, "\n"+strings.Join(details, "\n"))
	return err
}
