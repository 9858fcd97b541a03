package suggest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/template"
	"time"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/cmd/opgate/plan"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// version is a version of an operator. What is not known is empty.
type version struct{ CSV, version, Digest string }

// isNoName reports whether it cannot be written into a policy: plans may name anything.
func (v version) isNoName() bool { return len(validation.IsDNS1123Subdomain(v.CSV)) > 0 }

// step is an upgrade, or a first installation, that is not installed yet.
type step struct {
	namespace, pkg string
	// from is what is installed; empty for a first installation.
	from string
	// Versions are those that are installed one after the other, the last one is where it leads.
	Versions []version
	// Source is where it was found.
	Source string
	// reasons are what holds it.
	reasons []verdict.Reason

	// Changes are the fields that are edited, where each is written, and what is added to it.
	Changes []string
	// Accepted are the messages of changes that the edit accepts, Remaining those of what holds the step also with it.
	Accepted, Remaining []string
}

func (s *step) to() string { return s.Versions[len(s.Versions)-1].CSV }

// waiting returns the steps of the plans that wait for approval.
func waiting(state *snapshot.Snapshot, now time.Time) (steps []step) {
	c := &inspect.Cluster{Snapshot: state, Now: now}
	for ns := range state.All() {
		for _, plan := range ns.Plans() {
			if !ns.Waits(plan) {
				continue
			}
			source := sourceOf(types.NamespacedName{Namespace: ns.Name(), Name: plan.Metadata.Name})
			judged := c.JudgePlan(plan)
			for _, r := range carrier.Replacements(ns, plan) {
				steps = append(steps, step{namespace: ns.Name(), pkg: r.Package, from: r.From, Source: source,
					Versions: []version{{r.CSV, r.Version, plan.BundleDigest(r.CSV)}}, reasons: judged.ReasonsOf(r.CSV)})
			}
		}
	}
	return steps
}

func sourceOf(plan types.NamespacedName) string { return "installplan " + plan.String() }

// isVersion reports whether a reason is that a policy does not allow the version.
func isVersion(r verdict.Reason) bool {
	return r.Rule == bundle.RuleVersion || r.Rule == bundle.RuleVersionRange
}

// isConsent reports whether a reason is a change that a policy holds until its digest is accepted.
func isConsent(r verdict.Reason) bool {
	return r.Rule == bundle.RuleConsent && r.From.Kind == verdict.KindOperatorPolicy && olm.ValidDigest(r.Digest)
}

// Title names the upgrade.
func (s *step) Title() string {
	title := text.Name(s.pkg) + " in " + text.Name(s.namespace) + ", "
	if s.from != "" {
		title += text.Name(s.from) + " to "
	}
	return title + text.Name(s.to())
}

// The values of --to: how far a path is opened.
const (
	toNext   = "next"
	toPatch  = "patch"
	toNewest = "newest"
)

// readPath returns the step that opens a path as far as --to; none for a path that is at its end.
func readPath(name string, stdin io.Reader, to string) ([]step, error) {
	if name != cli.StandardInput {
		file, err := os.Open(name) //nolint:gosec // a file that the user names
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // it is only read
		stdin = file
	}
	var p plan.Result
	if json.NewDecoder(io.LimitReader(stdin, manifests.MaxInput)).Decode(&p) != nil || p.Package == "" || p.Namespace == "" {
		return nil, fmt.Errorf("%s is no JSON of \"opgate plan\"", name)
	}
	s := step{namespace: p.Namespace, pkg: p.Package, from: p.Installed, Source: "the path of " + p.Package}
	for _, hop := range p.Steps {
		if to == toPatch && !samePatches(p.InstalledVersion, hop.Version) || to == toNext && len(s.Versions) > 0 {
			break
		}
		s.Versions = append(s.Versions, version{hop.CSV, hop.Version, olm.ImageDigest(hop.Image)})
		for _, r := range hop.Reasons {
			s.reasons = append(s.reasons,
				verdict.Reason{Rule: r.Rule, From: r.Source, Message: r.Message, Digest: hop.Digest})
		}
	}
	if len(s.Versions) == 0 {
		return nil, nil
	}
	return []step{s}, nil
}

// samePatches reports whether two versions have the same major and minor numbers.
func samePatches(a, b string) bool {
	from, unread := semver.Parse(a)
	to, err := semver.Parse(b)
	return unread == nil && err == nil && from.Major == to.Major && from.Minor == to.Minor
}

// result is what is suggested for files.
type result struct {
	files []*file
	// steps are those that are opened.
	steps []*step
	// faults are why policies cannot be edited for which a step may wait, warnings are of those that are in no file, or
	// that no step needs.
	faults, warnings []string
}

// suggest edits files so that their policies allow steps. Of several steps of a package in a namespace the first one
// counts.
func suggest(names []string, steps []step, acceptChanges bool) (*result, error) {
	files, err := readFiles(names)
	if err != nil {
		return nil, err
	}
	r, isElsewhere := &result{files: files}, false
	for i := range steps {
		s := &steps[i]
		if slices.ContainsFunc(steps[:i], func(o step) bool { return o.namespace == s.namespace && o.pkg == s.pkg }) {
			continue
		}
		if i := slices.IndexFunc(s.Versions, version.isNoName); i >= 0 {
			r.faults = append(r.faults, s.Source+": "+text.Quote(s.Versions[i].CSV)+" is no name of a ClusterServiceVersion")
			continue
		}
		var policies []string
		for _, at := range r.policies() {
			if at.governs(s) && !slices.Contains(policies, at.Metadata.Name) {
				policies = append(policies, at.Metadata.Name)
			}
		}
		for _, reason := range s.reasons {
			if isVersion(reason) && !slices.Contains(policies, reason.From.Name) {
				isElsewhere = true
				r.warnings = append(r.warnings, fmt.Sprintf("warning: %s waits for %s in %s, which is not in the files",
					text.Escape(s.Source), text.Name(s.to()), reason.From))
			}
		}
		for _, name := range policies {
			r.edit(name, s, acceptChanges)
		}
		if len(s.Changes) > 0 {
			r.steps = append(r.steps, s)
		}
		for _, reason := range s.reasons {
			switch {
			case isConsent(reason) && acceptChanges:
				s.Accepted = append(s.Accepted, text.Escape(reason.Message))
			case !isVersion(reason):
				s.Remaining = append(s.Remaining, text.Escape(reason.Message))
			}
		}
	}
	for _, f := range files {
		for _, fault := range f.faults {
			if isElsewhere { // a step may wait for this policy
				r.faults = append(r.faults, fault)
			} else {
				r.warnings = append(r.warnings, "warning: "+fault)
			}
		}
	}
	r.warnings = slices.Compact(r.warnings)
	return r, nil
}

// policies returns the policies in all files.
func (r *result) policies() (all []*policy) {
	for _, f := range r.files {
		all = append(all, f.policies...)
	}
	return all
}

// edit edits the fields of one policy. What cannot be edited is a fault.
func (r *result) edit(name string, s *step, acceptChanges bool) {
	for _, e := range edits {
		if e.field == consent && !acceptChanges {
			continue
		}
		at, err := r.find(s, name, e.field)
		if at != nil {
			var change string
			if change, err = e.edit(at, s); err != nil {
				err = fmt.Errorf("%s: spec.%s %w", at.place(), e.field, err)
			} else if change != "" {
				s.Changes = append(s.Changes, at.place()+": "+change)
			}
		}
		if err != nil {
			r.faults = append(r.faults, err.Error())
		}
	}
}

// find returns where a field of a policy that governs a step is written: in a patch, if one has it. It is nil if it is
// written nowhere.
func (r *result) find(s *step, name, field string) (*policy, error) {
	var found []*policy
	for _, at := range r.policies() {
		switch {
		case at.Metadata.Name != name || !at.has(field):
		case at.isPatch() && slices.ContainsFunc(r.policies(), func(o *policy) bool { return o.governs(s) && o.isSame(at) }):
			found = append([]*policy{at}, found...)
		case at.governs(s):
			found = append(found, at)
		}
	}
	switch {
	case len(found) == 0:
		return nil, nil
	case len(found) > 1 && found[0].isPatch() == found[1].isPatch():
		return nil, fmt.Errorf("spec.%s of OperatorPolicy %s is written in %s and in %s: name the file of one", field,
			text.Name(name), found[0].place(), found[1].place())
	}
	return found[0], nil
}

//go:embed body.md.tmpl
var bodyText string

// body is the text of a pull request for steps, as Markdown. What catalogs have written is code in it.
var body = template.Must(template.New("body").Funcs(template.FuncMap{"shown": text.Escape, "name": text.Name}).Parse(bodyText))
