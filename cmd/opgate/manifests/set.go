// Package manifests reads manifests as they would be sent to an API server, with the file and the line of each object
// and field. It finds what kubectl or the API server would refuse to take at all, and judges nothing.
package manifests

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// Set are objects that are together on a cluster: those without an alternative, and the overlays of one name.
type Set struct {
	// Overlay is the name of the overlays; empty if nothing has alternatives.
	Overlay string
	// Clusters are the directories of what has alternatives.
	Clusters []string
	// Objects are in the order of the input.
	Objects []*Object

	// own are the files and kustomizations that belong to this set alone.
	own      map[string]bool
	problems []Problem
	// foreign are the documents that are no Kubernetes objects, unjudged the objects of Opgate's, OLM's and Open
	// Cluster Management's kinds that are not judged.
	foreign  []Place
	unjudged []unjudged
	// files has what plans change.
	files contents.Files
}

// Made reports whether something is of the overlays.
func (s *Set) Made(at Place) bool { return s.own[cmp.Or(at.Kustomization, at.File)] }

// Stored returns the objects as the gate keeps them.
func (s *Set) Stored() (objects []*snapshot.Object) {
	for _, o := range s.Objects {
		if o.stored != nil {
			objects = append(objects, o.stored)
		}
	}
	return objects
}

// Changes returns what a plan changes, as rules.Changes.
func (s *Set) Changes(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
	return s.files.Changes(plan, replacements)
}

// Package returns a package of a catalog, as a PackageManifest among the objects has it; nil if there is none.
func (s *Set) Package(pkg string, source olm.Catalog) *catalog.Package {
	for _, o := range s.Objects {
		if found, ok := o.Value.(*catalog.Package); ok && found.Name == pkg && found.Catalog == source {
			return found
		}
	}
	return nil
}

// Snapshot returns the state of a cluster that holds nothing but the objects. No policy waits for another one there:
// what the statuses of Policies would show is not known.
func (s *Set) Snapshot(versions facts.Cluster) *snapshot.Snapshot {
	type key struct {
		name   string
		source olm.Catalog
	}
	packages := map[key]*catalog.Package{}
	for _, o := range s.Objects {
		if pkg, ok := o.Value.(*catalog.Package); ok {
			packages[key{pkg.Name, pkg.Catalog}] = pkg
		}
	}
	b := snapshot.Builder{Unsuspended: true, Changes: s.files.Changes,
		Packages: func(pkg, _ string, source olm.Catalog) *catalog.Package {
			return packages[key{pkg, source}]
		}}
	b.SetCluster(time.Time{}, versions)
	return b.Put(time.Time{}, s.Stored()...)
}

// Sets returns the sets that the input has, of which each is to be judged apart. Once all have been read, Problems and
// Notes are complete.
func (in *Input) Sets() iter.Seq[*Set] {
	l := in.layout()
	return func(yield func(*Set) bool) {
		for i := range l.worlds {
			w := &l.worlds[i]
			s := loadDocuments(w.documents(l.contents), &in.options)
			in.describe(s, w, l)
			in.fault(s.problems...)
			for _, at := range s.foreign {
				in.foreign[at] = true
			}
			for _, u := range s.unjudged {
				in.unjudged[u] = true
			}
			if !yield(s) {
				return
			}
		}
	}
}

// describe names the clusters of a set.
func (in *Input) describe(s *Set, w *world, l *layout) {
	s.Overlay, s.own = w.name, map[string]bool{}
	for _, u := range w.units {
		s.Clusters = append(s.Clusters, u.dir)
		if u.pairing != nil {
			s.Clusters = append(s.Clusters, u.pairing.With...)
		}
	}
	for _, c := range l.contents {
		if c.build != nil && slices.ContainsFunc(w.units, func(u *unit) bool { return c.at == u.dir }) {
			s.own[c.dir] = true
		}
		for _, d := range c.documents {
			if c.build == nil && slices.ContainsFunc(w.units, func(u *unit) bool { return c.at == u.dir }) {
				s.own[d.File] = true
			}
		}
	}
}

// layout divides the input into clusters.
func (in *Input) layout() *layout {
	var contents []*content
	for _, file := range in.inputs {
		documents, problems := documentsOf(file)
		contents = append(contents, &content{dir: path.Dir(file.name), documents: documents})
		in.fault(problems...)
	}
	for _, b := range in.builds {
		contents = append(contents, &content{dir: b.dir, documents: b.documents, build: b})
	}
	for _, p := range in.options.Overlays {
		for _, dir := range append([]string{p.Dir}, p.With...) {
			if info, err := os.Stat(filepath.FromSlash(dir)); err != nil || !info.IsDir() {
				in.fault(Problem{p.From, "overlays: " + text.Quote(dir) + " is no directory"})
			}
		}
	}
	l := newLayout(contents, in.options.Overlays,
		func(at Place) int { return in.argument[cmp.Or(at.Kustomization, at.File)] })
	in.unpaired = l.unpaired()
	if in.options.Strict {
		in.fault(in.unpaired...)
		in.unpaired = nil
	}
	return l
}

// Problems returns what makes the input unusable: what cannot be read, then faults in the order of the input.
func (in *Input) Problems() []Problem { return in.sorted(in.problems) }

func (in *Input) sorted(problems []Problem) []Problem {
	position := func(p Problem) int {
		return slices.IndexFunc(in.inputs, func(file input) bool { return file.name == p.File })
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(position(a), position(b)) })
	return problems
}

// Unusable prints the problems, if there are any, and returns an error that counts them.
func (in *Input) Unusable(stderr io.Writer) error {
	problems := in.Problems()
	if len(problems) == 0 {
		return nil
	}
	out := bufio.NewWriter(stderr)
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write problems: %w", err)
	}
	return errors.New(text.Count(len(problems), "problem") + " in the input")
}

// Read reads files, directories, kustomizations or "-", standard input, that describe one cluster. What it cannot use
// it prints, and returns an error with an exit code.
func Read(files []string, stdin io.Reader, stderr io.Writer, o Options) (*Set, error) {
	in, err := Gather(files, stdin, o)
	if err != nil {
		return nil, err
	}
	var all *Set
	var clusters []string
	for s := range in.Sets() {
		clusters, all = append(clusters, s.Clusters...), cmp.Or(all, s)
	}
	if err := in.Unusable(stderr); err != nil {
		return nil, &cli.ExitError{Code: cli.ExitUnusable, Message: err.Error()}
	}
	if len(clusters) > 0 {
		return nil, &cli.ExitError{Code: cli.ExitUnusable,
			Message: "the input describes several clusters: name one of " + text.Join(clusters, maxOthers) +
				", with what belongs to it"}
	}
	for _, p := range in.sorted(in.warnings) {
		fmt.Fprintln(stderr, "warning: not read: "+p.String())
	}
	if left := (skipped{documents: len(in.foreign)}); left.documents > 0 {
		fmt.Fprintln(stderr, "skipped: "+left.String())
	}
	return all, nil
}

// Note is what is said besides verdicts.
type Note struct {
	// Warning is set for what may be a mistake.
	Warning bool
	// Place is where it is; the zero value if that is no place in the input.
	Place
	// Text is one sentence.
	Text string
}

// String is the note as it is printed.
func (n Note) String() string {
	if n.Warning {
		return "warning: " + n.Text
	}
	return n.Text
}

// Notes say what is not judged: clusters without others, what is none of the gate's business and cannot be read,
// objects that decide over operators by kind, all else by count, and what files of the input have left out. judged is a
// kind that is judged all the same.
func (in *Input) Notes(judged string) (notes []Note) {
	for _, p := range in.unpaired {
		notes = append(notes, Note{true, p.Place, p.String()})
	}
	for _, p := range in.sorted(in.warnings) {
		notes = append(notes, Note{true, p.Place, "not read: " + p.String()})
	}
	context, others := map[string]int{}, map[string]int{}
	for u := range in.unjudged {
		switch {
		case u.kind == judged:
		case u.context:
			context[u.kind]++
		default:
			others[u.kind]++
		}
	}
	if len(context) > 0 {
		notes = append(notes, Note{Text: "read as context and not judged: " + countedKinds(context)})
	}
	if len(others) > 0 {
		notes = append(notes, Note{Text: "not judged here: " + countedKinds(others)})
	}
	notes = append(notes, in.excluded.notes()...)
	in.skipped.documents = len(in.foreign)
	if in.skipped != (skipped{}) {
		notes = append(notes, Note{Text: "skipped: " + in.skipped.String()})
	}
	return notes
}

func countedKinds(count map[string]int) string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", count[kind], kind))
	}
	return strings.Join(kinds, ", ")
}
