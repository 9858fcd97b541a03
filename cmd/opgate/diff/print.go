package diff

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
)

// formats print results.
var formats = map[string]func(out io.Writer, results []*result) error{
	"text": printText, "json": printJSON,
}

// printText writes a block for each result: what replaces what, its differences with the risky ones first, notes, and
// the digest with where to write it.
func printText(w io.Writer, results []*result) error {
	out := cli.NewPrinter(w)
	for i, r := range results {
		if i > 0 {
			out.Line(0, "")
		}
		out.Line(0, r.title())
		if origin := r.origin(); origin != "" {
			out.Line(2, origin)
		}
		out.Line(0, "")
		if r.Fault != "" {
			out.Line(2, "cannot be compared: "+r.Fault)
			continue
		}
		textDifferences(out, r)
	}
	return out.Flush()
}

func textDifferences(out *cli.Printer, r *result) {
	for _, d := range r.Differences {
		sign := "+"
		if d.Risk == change.Risky {
			sign = "!"
		}
		out.Line(0, fmt.Sprintf("%s %-13s %s", sign, d.Class, d.Text))
	}
	if len(r.Differences) > 0 {
		out.Line(0, "")
	}
	for _, note := range r.Notes {
		out.Line(2, "note: "+note)
	}
	out.Line(2, r.counts())
	if !r.reviewed() {
		return
	}
	out.Line(2, "to accept exactly this change, add to the OperatorPolicy:")
	out.Line(0, "")
	for i, line := range []string{"spec:", "consent:", "accepted:", "- " + r.Digest() + " # " + r.CSV} {
		out.Line(4+2*min(i, 2), line)
	}
}

// counts is one line on how much differs.
func (r *result) counts() string {
	n := "no difference"
	if len(r.Differences) > 0 {
		n = text.Count(len(r.Differences), "difference")
	}
	if risky := r.risky(); risky > 0 {
		n += fmt.Sprintf(", %d risky", risky)
	}
	return n + "; digest " + r.Digest()
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
			FromRelease: r.FromRelease, Digest: r.Digest(), Differences: []difference{},
			Notes: append([]string{}, r.Notes...), Fault: r.Fault}
		for _, d := range r.Differences {
			items[i].Differences = append(items[i].Differences, difference{d.Class, d.Risk == change.Risky, d.Text})
		}
	}
	return cli.JSON(w, items)
}

// result is what is printed of one ClusterServiceVersion.
type result struct {
	// plan is the InstallPlan that brings it, as namespace/name; empty for one of a catalog.
	plan string
	*change.Set
}

// reviewed reports whether a policy can hold the change.
func (r *result) reviewed() bool {
	return slices.ContainsFunc(r.Differences,
		func(d change.Difference) bool { return slices.Contains(change.Reviewable, d.Class) })
}

// risky returns the number of risky differences.
func (r *result) risky() int {
	n := 0
	for _, d := range r.Differences {
		if d.Risk == change.Risky {
			n++
		}
	}
	return n
}

// title names what replaces what.
func (r *result) title() string {
	title := text.Name(r.CSV)
	if r.From == "" {
		title += " is installed for the first time"
	} else {
		title += " replaces " + text.Name(r.From)
	}
	if r.plan != "" {
		title = text.Escape(r.plan) + ": " + title
	}
	return title
}

// origin names the package, and where it comes from.
func (r *result) origin() string {
	var parts []string
	add := func(what, name string) {
		if name != "" {
			parts = append(parts, what+" "+text.Name(name))
		}
	}
	add("package", r.Package)
	addVersion := func(what, version, release string) {
		if version != "" {
			parts = append(parts, what+" "+olm.VersionText(text.Name(version), release))
		}
	}
	addVersion("version", r.Version, r.Release)
	addVersion("before", r.FromVersion, r.FromRelease)
	add("channel", r.Channel)
	add("catalog", r.Catalog)
	return strings.Join(parts, ", ")
}
