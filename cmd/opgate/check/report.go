package check

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

// judgement is the verdict on one object.
type judgement struct {
	*manifests.Object
	*inspect.Answer
	// with names the overlays that an object outside of them is judged with, where that makes a difference.
	with string
	// aside are the warnings that are set aside.
	aside []suppression
}

// report is what is printed.
type report struct {
	judged []judgement
	// nothing is what is said if nothing was judged.
	nothing string
	// count has all verdicts, those included that are not printed.
	count map[verdict.Decision]int
	// warned is set if there is a warning on an object that is not set aside.
	warned bool
	// notes say what was not judged.
	notes []manifests.Note
	// problems make the input unusable: nothing was judged.
	problems []manifests.Problem
	// version is that of the program.
	version string
}

// formats write reports.
var formats = map[string]func(io.Writer, *report) error{
	"text": printText, "json": printJSON, "sarif": printSARIF, "junit": printJUnit, "github": printGitHub,
	"markdown": printMarkdown,
}

// withNotes are the formats that have room for notes.
var withNotes = []string{"text", "markdown"}

// withFaults are the formats that are written for an input that cannot be used, too.
var withFaults = []string{"sarif", "junit", "github"}

func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }

func (r *report) total() int {
	return r.count[verdict.Allow] + r.count[verdict.Hold] + r.count[verdict.Deny]
}

func (r *report) counts() string {
	return fmt.Sprintf("%d allowed, %d held, %d denied", r.count[verdict.Allow], r.count[verdict.Hold],
		r.count[verdict.Deny])
}

// print writes the report, and the notes that the format has no room for to stderr.
func (r *report) print(stdout, stderr io.Writer, format string) error {
	if err := formats[format](stdout, r); err != nil || slices.Contains(withNotes, format) {
		return err
	}
	printNotes(stderr, r.notes)
	return nil
}

func printNotes(w io.Writer, notes []manifests.Note) {
	for _, note := range notes {
		fmt.Fprintln(w, text.Escape(note.String()))
	}
}

// judgeAll judges everything that was gathered: each set apart, and each object that is judged in several once for each
// verdict on it. It judges nothing if there are problems.
func (o *options) judgeAll(ctx context.Context, in *manifests.Input, how *judging) (*report, error) {
	r := &report{count: map[verdict.Decision]int{}, nothing: nothingRead, version: o.version}
	if o.cluster {
		r.nothing = nothingStored
	}
	printed, first := map[string]bool{}, true
	by := judgedBy{cluster: o.cluster}
	aside := o.newIgnores()
	var unread []string
	for m := range in.Sets() {
		if len(in.Problems()) > 0 {
			continue
		}
		judged, notes, err := o.judge(ctx, m, how)
		if err != nil {
			return nil, err
		}
		unread = append(unread, notes...)
		by.add(m, judged)
		for _, j := range judged {
			aside.apply(&j, in)
			if m.Overlay != "" {
				judged := fmt.Sprint(j.Place, j.Kind, j.Key(), j.Decision, lines(&j))
				if printed[judged] {
					continue
				}
				printed[judged] = true
				if !first && !m.Made(j.Place) {
					j.with = m.Overlay
				}
			}
			r.warned = r.warned || len(findings(&j)) > 0
			r.count[j.Decision]++
			r.judged = append(r.judged, j)
		}
		first = false
	}
	judged := ""
	if o.diff || o.cluster {
		judged = olm.KindClusterServiceVersion
	}
	slices.Sort(unread)
	for _, note := range slices.Compact(unread) {
		r.notes = append(r.notes, manifests.Note{Text: note})
	}
	r.notes = slices.Concat(r.notes, in.Notes(judged), aside.notes(), by.notes())
	r.problems = in.Problems()
	return r, nil
}

// leaveOut takes out what --summary and --only do not print.
func (o *options) leaveOut(r *report) {
	r.judged = slices.DeleteFunc(r.judged, func(j judgement) bool {
		return o.summary || o.only == onlyRefused && j.Decision == verdict.Allow
	})
}
