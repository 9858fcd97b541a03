package check

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// report is what is printed.
type report struct {
	judged []judgement
	// nothing is what is said if nothing was judged.
	nothing string
	// count has all verdicts, those included that are not printed.
	count map[rules.Decision]int
	// notes say what was not judged.
	notes []string
}

// formats write reports.
var formats = map[string]func(io.Writer, *report) error{
	"text": printText, "json": printJSON, "sarif": printSARIF, "junit": printJUnit, "github": printGitHub, "markdown": printMarkdown,
}

// withNotes are the formats that have room for notes.
var withNotes = []string{"text", "markdown"}

func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }

func (r *report) total() int { return r.count[rules.Allow] + r.count[rules.Hold] + r.count[rules.Deny] }

func (r *report) counts() string {
	return fmt.Sprintf("%d allowed, %d held, %d denied", r.count[rules.Allow], r.count[rules.Hold], r.count[rules.Deny])
}

// print writes the report, and the notes that the format has no room for to stderr.
func (r *report) print(stdout, stderr io.Writer, format string) error {
	if err := formats[format](stdout, r); err != nil || slices.Contains(withNotes, format) {
		return err
	}
	printNotes(stderr, r.notes)
	return nil
}

func printNotes(w io.Writer, notes []string) {
	for _, note := range notes {
		fmt.Fprintln(w, text.Escape(note))
	}
}

// judgeAll judges everything that was gathered: each world apart, and each object that is judged in several once for each verdict on it.
func (o *options) judgeAll(g *gathered, how *judging) (*report, []problem, error) {
	common, list := worlds(g.builds)
	documents, problems := allDocuments(g.inputs)
	problems = append(g.problems, problems...)
	for _, b := range common {
		documents = append(documents, b.documents...)
	}
	r := &report{count: map[rules.Decision]int{}, nothing: how.nothing}
	printed, foreign, objects := map[string]bool{}, map[place]bool{}, map[unjudged]bool{}
	for i, w := range list {
		m := loadDocuments(slices.Concat(documents, w.documents()), o.namespace, o.strict)
		for _, p := range m.problems {
			if i == 0 || !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
		}
		if len(problems) > 0 {
			continue
		}
		for _, at := range m.foreign {
			foreign[at] = true
		}
		for _, u := range m.unjudged {
			objects[u] = !how.installed || u.kind != olm.KindClusterServiceVersion
		}
		judged, unread, err := how.judge(m)
		if err != nil {
			return nil, nil, err
		}
		r.notes = append(r.notes, unread...)
		for _, j := range judged {
			if len(list) > 1 {
				verdict := fmt.Sprint(j.place, j.kind, j.key(), j.verdict.Decision, lines(&j))
				if printed[verdict] {
					continue
				}
				printed[verdict] = true
				if i > 0 && !w.made(j.place) {
					j.with = w.name
				}
			}
			r.count[j.verdict.Decision]++
			r.judged = append(r.judged, j)
		}
	}
	g.skipped.documents = len(foreign)
	slices.Sort(r.notes)
	r.notes = append(slices.Compact(r.notes), notes(objects, g.skipped)...)
	// What cannot be read comes first, then faults in the order of the input.
	slices.SortStableFunc(problems, func(a, b problem) int { return cmp.Compare(g.position(a.file), g.position(b.file)) })
	return r, problems, nil
}

// leaveOut takes out what --summary and --only do not print.
func (o *options) leaveOut(r *report) {
	r.judged = slices.DeleteFunc(r.judged, func(j judgement) bool {
		return o.summary || o.only == onlyRefused && j.verdict.Decision == rules.Allow
	})
}

// position returns the place of a file in the input, or -1.
func (g *gathered) position(file string) int {
	return slices.IndexFunc(g.inputs, func(in input) bool { return in.name == file })
}

func (w *world) documents() (all []document) {
	for _, b := range w.builds {
		all = append(all, b.documents...)
	}
	return all
}

// made reports whether something is of the overlays of this world.
func (w *world) made(at place) bool {
	return slices.ContainsFunc(w.builds, func(b *build) bool { return b.dir == at.kustomization })
}

// notes say what was not judged: objects that decide over operators by kind, if the value is set, all else by count.
func notes(objects map[unjudged]bool, s skipped) (notes []string) {
	context, others := map[string]int{}, map[string]int{}
	for u, reported := range objects {
		if !reported {
			continue
		}
		if u.context {
			context[u.kind]++
		} else {
			others[u.kind]++
		}
	}
	if len(context) > 0 {
		notes = append(notes, "read as context and not judged: "+countedKinds(context))
	}
	if len(others) > 0 {
		notes = append(notes, "not judged here: "+countedKinds(others))
	}
	if s != (skipped{}) {
		notes = append(notes, "skipped: "+s.String())
	}
	return notes
}

func countedKinds(count map[string]int) string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		kinds = append(kinds, strconv.Itoa(count[kind])+" "+kind)
	}
	return strings.Join(kinds, ", ")
}
