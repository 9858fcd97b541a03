package diff

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
)

// formats print results; colored is for terminals.
var formats = map[string]func(out io.Writer, results []*result, colored bool) error{
	"text": printText, "json": printJSON,
}

func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }

// The colors of a terminal.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[1;31m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// painter writes lines in colors, or without.
type painter struct {
	*bufio.Writer
	colored bool
}

// line writes a line of which no part is markup for a terminal.
func (p *painter) line(color, format string, args ...any) {
	content := fmt.Sprintf(format, args...)
	if p.colored && color != "" {
		content = color + content + reset
	}
	fmt.Fprintln(p, content)
}

// printText writes a block for each result: what replaces what, its differences with the risky ones first, notes, and
// the digest with where to write it.
func printText(w io.Writer, results []*result, colored bool) error {
	out := &painter{bufio.NewWriter(w), colored}
	for i, r := range results {
		if i > 0 {
			out.line("", "")
		}
		out.line(bold, "%s", r.title())
		if origin := r.origin(); origin != "" {
			out.line("", "  %s", origin)
		}
		out.line("", "")
		if r.Fault != "" {
			out.line(red, "  cannot be compared: %s", text.Escape(r.Fault))
			continue
		}
		textDifferences(out, r)
	}
	return out.Flush()
}

func textDifferences(out *painter, r *result) {
	for _, d := range r.Differences {
		sign, color := "+", yellow
		if d.Risk == change.Risky {
			sign, color = "!", red
		}
		out.line(color, "%s %-13s %s", sign, d.Class, text.Escape(d.Text))
	}
	if len(r.Differences) > 0 {
		out.line("", "")
	}
	for _, note := range r.Notes {
		out.line("", "  note: %s", text.Escape(note))
	}
	if missing := r.missing(); missing != "" {
		out.line(red, "  not compared: %s", text.Escape(missing))
	}
	out.line("", "  %s", r.counts())
	if r.digest() == "" || !r.reviewed() {
		return
	}
	out.line("", "  to accept exactly this change, add to the OperatorPolicy:")
	out.line("", "")
	for _, line := range r.accepting() {
		out.line("", "    %s", line)
	}
}

// counts is one line on how much differs.
func (r *result) counts() string {
	n, digest := "no difference", r.digest()
	switch len(r.Differences) {
	case 0:
	case 1:
		n = "1 difference"
	default:
		n = fmt.Sprintf("%d differences", len(r.Differences))
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

// accepting is the part of an OperatorPolicy by which a user accepts the change.
func (r *result) accepting() []string {
	return []string{"spec:", "  consent:", "    accepted:", "    - " + r.digest() + " # " + text.Escape(r.CSV)}
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
func printJSON(w io.Writer, results []*result, _ bool) error {
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
