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
	counts := map[verdict.Decision]int{}
	waiting, ungoverned := 0, 0
	for _, o := range r.Operators {
		switch {
		case o.CSV == "":
		case !o.Governed && o.decision == verdict.Allow:
			ungoverned++
		default:
			counts[o.decision]++
		}
		if o.Waiting != nil {
			waiting++
		}
	}
	return fmt.Sprintf("%d allowed, %d held, %d refused, %d governed by no policy; %d wait for approval", counts[verdict.Allow],
		counts[verdict.Hold], counts[verdict.Deny], ungoverned, waiting)
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

// Verdict is the decision on what is installed, as a sign and a word.
func (o *operator) Verdict() string {
	switch {
	case o.CSV == "":
		return "not installed"
	case !o.Governed && o.decision == verdict.Allow:
		return "○ no policy"
	}
	return word(o.decision)
}

// State is the name of the style of the decision.
func (o *operator) State() string {
	if o.CSV == "" || !o.Governed && o.decision == verdict.Allow {
		return "none"
	}
	return o.decision.String()
}

// Verdict is the decision on the plan.
func (w *waiting) Verdict() string { return word(w.decision) }

func word(d verdict.Decision) string {
	return map[verdict.Decision]string{verdict.Allow: "✓ allowed", verdict.Hold: "‖ held", verdict.Deny: "✗ refused"}[d]
}

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
