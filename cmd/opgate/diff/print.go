package diff

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
)

// formats print results.
var formats = map[string]func(out io.Writer, results []*result) error{
	"text": printText, "json": printJSON,
}

func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }

// printText writes a block for each result: what replaces what, its differences with the risky ones first, notes, and
// the digest with where to write it.
func printText(w io.Writer, results []*result) error {
	out := cli.NewPrinter(w)
	for i, r := range results {
		if i > 0 {
			out.Line(0)
		}
		out.Line(0, cli.Cell{Text: r.title(), Color: cli.Bold})
		if origin := r.origin(); origin != "" {
			out.Line(2, cli.Plain(origin))
		}
		out.Line(0)
		if r.Fault != "" {
			out.Line(2, cli.Cell{Text: "cannot be compared: " + r.Fault, Color: cli.Red})
			continue
		}
		textDifferences(out, r)
	}
	return out.Flush()
}

func textDifferences(out *cli.Printer, r *result) {
	for _, d := range r.Differences {
		sign, color := "+", cli.Yellow
		if d.Risk == change.Risky {
			sign, color = "!", cli.Red
		}
		out.Line(0, cli.Cell{Text: fmt.Sprintf("%s %-13s %s", sign, d.Class, d.Text), Color: color})
	}
	if len(r.Differences) > 0 {
		out.Line(0)
	}
	for _, note := range r.Notes {
		out.Line(2, cli.Plain("note: "+note))
	}
	if missing := r.missing(); missing != "" {
		out.Line(2, cli.Cell{Text: "not compared: " + missing, Color: cli.Red})
	}
	out.Line(2, cli.Plain(r.counts()))
	if r.digest() == "" || !r.reviewed() {
		return
	}
	out.Line(2, cli.Plain("to accept exactly this change, add to the OperatorPolicy:"))
	out.Line(0)
	for i, line := range []string{"spec:", "consent:", "accepted:", "- " + r.digest() + " # " + r.CSV} {
		out.Line(4+2*min(i, 2), cli.Plain(line))
	}
}

// counts is one line on how much differs.
func (r *result) counts() string {
	n, digest := "no difference", r.digest()
	if len(r.Differences) > 0 {
		n = text.Count(len(r.Differences), "difference")
	}
	if risky := r.risky(); risky > 0 {
		n += fmt.Sprintf(", %d risky", risky)
	}
	if len(r.notCompared) > 0 {
		n += " in what was compared; no digest"
	}
	if digest != "" {
		n += "; digest " + digest
	}
	return n
}

// item is one element of the JSON output.
type item struct {
	Plan        string       `json:"plan,omitempty"`
	CSV         string       `json:"csv"`
	Package     string       `json:"package"`
	Version     string       `json:"version"`
	Release     string       `json:"release,omitempty"`
	Channel     string       `json:"channel,omitempty"`
	Catalog     string       `json:"catalog,omitempty"`
	From        string       `json:"from"`
	FromVersion string       `json:"fromVersion"`
	FromRelease string       `json:"fromRelease,omitempty"`
	Digest      string       `json:"digest"`
	Differences []difference `json:"differences"`
	Notes       []string     `json:"notes"`
	NotCompared []part       `json:"notCompared"`
	Fault       string       `json:"fault,omitempty"`
}

type difference struct {
	Class change.Class `json:"class"`
	Risky bool         `json:"risky"`
	Text  string       `json:"text"`
}

// printJSON writes a list, in which no list is null.
func printJSON(w io.Writer, results []*result) error {
	items := make([]item, len(results))
	for i, r := range results {
		items[i] = item{Plan: r.plan, CSV: r.CSV, Package: r.Package, Version: r.Version, Release: r.Release,
			Channel: r.Channel, Catalog: r.Catalog, From: r.From, FromVersion: r.FromVersion,
			FromRelease: r.FromRelease, Digest: r.digest(), Differences: []difference{},
			Notes:       append([]string{}, r.Notes...),
			NotCompared: append([]part{}, r.notCompared...), Fault: r.Fault}
		for _, d := range r.Differences {
			items[i].Differences = append(items[i].Differences, difference{d.Class, d.Risk == change.Risky, d.Text})
		}
		if r.why != "" {
			items[i].Notes = append(items[i].Notes, r.why)
		}
	}
	return cli.JSON(w, items)
}
