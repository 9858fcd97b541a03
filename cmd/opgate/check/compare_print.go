package check

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// comparisonFormats write comparisons.
var comparisonFormats = map[string]func(io.Writer, *comparison) error{
	"text": printComparison, "json": printComparisonJSON, "markdown": printComparisonMarkdown,
}

func comparisonFormatNames() []string { return slices.Sorted(maps.Keys(comparisonFormats)) }

var headings = map[effect]string{newlyRefused: "newly refused", newlyAllowed: "newly allowed", changed: "changed"}

// printComparison writes a block for each effect, with the objects on which the verdict differs and the sentences that
// differ.
func printComparison(w io.Writer, c *comparison) error {
	out := bufio.NewWriter(w)
	last := effect("")
	for i := range c.differences {
		d := &c.differences[i]
		if d.effect != last {
			last = d.effect
			fmt.Fprintf(out, "%s:\n", headings[last])
		}
		fmt.Fprintf(out, "%-5s %s  (%s)\n", d.after.Decision, d.after.title(), d.after.where())
		before, now := d.sentences()
		for _, line := range now {
			fmt.Fprintln(out, "  "+text.Escape(line))
		}
		for _, line := range before {
			fmt.Fprintln(out, "  before: "+text.Escape(line))
		}
	}
	if len(c.differences) > 0 {
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, c.counts())
	printNotes(out, c.notes)
	return out.Flush()
}

// differenceItem is one element of the JSON output of --diff.
type differenceItem struct {
	Change effect `json:"change"`
	located
	Before side `json:"before"`
	After  side `json:"after"`
}

// side is the verdict with one set of policies.
type side struct {
	Decision string           `json:"decision"`
	Reasons  []inspect.Reason `json:"reasons"`
	Warnings []string         `json:"warnings"`
}

// sideOf returns the verdict on an object, and Allow for one that is not there.
func sideOf(j *judgement) side {
	if j == nil {
		return side{verdict.Allow.String(), []inspect.Reason{}, []string{}}
	}
	return side{j.Decision.String(), inspect.Reasons(&j.Verdict), warnings(j)}
}

// printComparisonJSON writes a list, in which no list is null.
func printComparisonJSON(w io.Writer, c *comparison) error {
	items := make([]differenceItem, len(c.differences))
	for i, d := range c.differences {
		items[i] = differenceItem{d.effect, d.after.located(), sideOf(d.before), sideOf(d.after)}
	}
	return cli.JSON(w, items)
}
