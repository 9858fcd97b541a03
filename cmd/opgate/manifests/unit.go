package manifests

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// maxNamed bounds the paths that one line names.
const maxNamed = 5

// Unit is what is on one cluster: a kustomization, or all plain files of an argument.
type Unit struct {
	// Name is the directory of the kustomization, or the argument.
	Name string
	// Objects are those of the unit, in the order of the input.
	Objects []*Object
	// Files has what plans change, and are compared with.
	Files contents.Files

	source *source
	// build is nil for plain files.
	build *build
	// shared are the objects of other units by which it is judged.
	shared []*Object
	// hidden is the first problem that may be about what it is judged by.
	hidden string
	// ambiguous is a Namespace that is defined twice with other labels, which Constraints read.
	ambiguous string
}

// Hidden returns the place of a problem for which no object of the unit can be allowed; empty if there is none.
func (u *Unit) Hidden() string {
	if u.ambiguous != "" && u.has(func(o *Object) bool { return o.Kind == constraintv1.Kind }) {
		return u.ambiguous
	}
	return u.hidden
}

// HasPolicies reports whether it is judged by an OperatorPolicy or a Constraint.
func (u *Unit) HasPolicies() bool {
	return u.has(func(o *Object) bool { return o.Kind == policyv1beta2.Kind || o.Kind == constraintv1.Kind })
}

func (u *Unit) has(what func(*Object) bool) bool {
	return slices.ContainsFunc(u.Objects, what) || slices.ContainsFunc(u.shared, what)
}

// judgesOthers reports whether an object of plain files is one by which kustomizations beside them are judged.
func judgesOthers(o *Object) bool {
	return !slices.Contains([]string{olm.KindSubscription, olm.KindInstallPlan, olm.KindClusterServiceVersion,
		olm.KindOperatorGroup, olm.KindOperatorCondition, olm.KindClusterExtension, olm.KindClusterCatalog}, o.Kind)
}

// IsPolicy reports whether it judges others, so that there may be one of its name.
func (o *Object) IsPolicy() bool {
	return o.Group == policyv1beta2.GroupVersion.Group || o.Kind == constraintv1.Kind
}

// isCarrier reports whether an object only carries policies, which are read by themselves.
func isCarrier(o *Object) bool {
	return o.Kind == policyv1.Kind || o.Kind == policyv1beta1.PolicySetKind
}

// share adds the policies and the context of other units to a unit: its own objects count before those of plain files,
// and these before those of Options.Policies. Two policies of one name are a problem, whatever counts.
func (in *Input) share(u *Unit) {
	seen := map[identity]*Object{}
	for _, o := range u.Objects {
		seen[o.identity()] = o
	}
	for _, own := range []bool{true, false} {
		for _, other := range in.Units {
			if other == u || own && (other.build != nil || other.source != u.source) || !own && !other.source.policies {
				continue
			}
			for _, o := range other.Objects {
				if o.identified && o.stored == nil && o.Kind != olm.KindPackageManifest {
					continue // the second of one name
				}
				first := seen[o.identity()]
				switch {
				case !judgesOthers(o):
				case first == nil:
					seen[o.identity()] = o
					u.shared = append(u.shared, o)
				case o.IsPolicy() && !first.equal(o):
					in.problem(u, Problem{Place: first.Place, Operators: true, hides: !isCarrier(o),
						Text: fmt.Sprintf("%s %s is defined twice, also in %s", o.Kind, o.Key(), o.Place)})
				}
			}
		}
	}
}

// Stored returns the objects as the gate keeps them.
func (u *Unit) Stored() (objects []*snapshot.Object) {
	for _, o := range slices.Concat(u.shared, u.Objects) {
		if o.stored != nil {
			objects = append(objects, o.stored)
		}
	}
	return objects
}

// Package returns a package of a catalog, as a PackageManifest among the objects has it; nil if there is none.
func (u *Unit) Package(pkg string, source olm.Catalog) *catalog.Package {
	for _, o := range slices.Concat(u.Objects, u.shared) {
		if found, ok := o.Value.(*catalog.Package); ok && found.Name == pkg && found.Catalog == source {
			return found
		}
	}
	return nil
}

// Snapshot returns the state of a cluster that holds nothing but the unit.
func (u *Unit) Snapshot(versions facts.Cluster) *snapshot.Snapshot {
	b := u.Builder(versions)
	return b.Put(time.Time{})
}

// Builder returns what builds that state. No policy waits for another one there: what the statuses of Policies would
// show is not known.
func (u *Unit) Builder(versions facts.Cluster) snapshot.Builder {
	b := snapshot.Builder{Unsuspended: true, WithoutServices: true, Changes: u.Files.Changes,
		Packages: func(pkg, _ string, source olm.Catalog) *catalog.Package { return u.Package(pkg, source) }}
	b.SetCluster(time.Time{}, versions)
	b.Put(time.Time{}, u.Stored()...)
	return b
}

// describe adds what is said of the input as a whole.
func (in *Input) describe() {
	for _, dir := range slices.Sorted(maps.Keys(in.templates)) {
		t := in.templates[dir]
		what := "templates of another program in " + text.Escape(dir) + " (" + text.Count(t.files, "file") + ")"
		if t.names {
			how := "render them, and judge what they make"
			if chart := path.Dir(dir); exists(path.Join(chart, chartFile)) {
				how = "judge what they make: helm template " + chart + " | opgate check -p POLICIES -"
			}
			in.problem(nil, Problem{Place: t.first, Operators: true, Text: what + " name operators or policies: " + how})
		} else {
			in.Notes = append(in.Notes, Note{Text: what + " are not read"})
		}
	}
	if n := len(in.foreign); n > 0 {
		in.skipped["document without apiVersion and kind|documents without apiVersion and kind"] = n
	}
	counts := func(of map[string]int) string {
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(of)) {
			one, many, _ := strings.Cut(what, "|")
			if of[what] > 1 {
				one = cmp.Or(many, one)
			}
			parts = append(parts, fmt.Sprintf("%d %s", of[what], one))
		}
		return strings.Join(parts, ", ")
	}
	if len(in.unjudged) > 0 {
		in.Notes = append(in.Notes, Note{Text: "not judged: " + counts(in.unjudged)})
	}
	if len(in.excluded) > 0 {
		in.Notes = append(in.Notes, Note{Text: "excluded, and naming operators or policies: " +
			text.Count(len(in.excluded), "file") + ", " + text.Join(in.excluded, maxNamed)})
	}
	if len(in.skipped) > 0 {
		in.Notes = append(in.Notes, Note{Text: "skipped: " + counts(in.skipped)})
	}
}

// unusable prints the problems that concern operators, and returns an error that counts them.
func (in *Input) unusable(stderr io.Writer) error {
	out, n := bufio.NewWriter(stderr), 0
	for _, p := range in.Problems {
		if p.Operators || p.hides {
			n++
			fmt.Fprintln(out, p)
		}
	}
	if err := out.Flush(); err != nil || n == 0 {
		return err
	}
	return &cli.ExitError{Code: cli.ExitUnusable, Message: text.Count(n, "problem") + " in the input"}
}

// Read reads files, directories, kustomizations or "-", standard input, that describe one cluster. A problem that
// concerns operators is an error, with an exit code.
func Read(files []string, stdin io.Reader, stderr io.Writer, o Options) (*Unit, error) {
	o.Together = true
	in, err := Gather(files, stdin, o)
	if err != nil {
		return nil, &cli.ExitError{Code: cli.ExitUnusable, Message: err.Error()}
	}
	if err := in.unusable(stderr); err != nil {
		return nil, err
	}
	for _, p := range in.Problems {
		fmt.Fprintln(stderr, "warning: not read: "+p.String())
	}
	for _, n := range in.Notes {
		fmt.Fprintln(stderr, n)
	}
	return in.Units[0], nil
}
