package suggest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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
type version struct{ csv, version, digest string }

// step is an upgrade, or a first installation, that is not installed yet.
type step struct {
	namespace, pkg string
	// from is what is installed; empty for a first installation.
	from string
	// versions are those that are installed one after the other, the last one is where it leads.
	versions []version
	// source is where it was found.
	source string
	// reasons are what holds it.
	reasons []verdict.Reason
	// changes are the fields that are edited, where each is written, and what is added to it.
	changes []string
}

func (s *step) to() *version { return &s.versions[len(s.versions)-1] }

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
				s := step{namespace: ns.Name(), pkg: r.Package, from: r.From, source: source,
					versions: []version{{r.CSV, r.Version, plan.BundleDigest(r.CSV)}}}
				for _, reason := range judged.Reasons {
					if slices.ContainsFunc(judged.CSVs, func(v verdict.CSV) bool {
						return v.CSV == r.CSV && slices.Contains(v.Because, reason.Message)
					}) {
						s.reasons = append(s.reasons, reason)
					}
				}
				steps = append(steps, s)
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

// policyOf returns the OperatorPolicy that a reason is of, by namespace/name; "" for another source.
func policyOf(r verdict.Reason) string {
	key, ok := strings.CutPrefix(r.Source, verdict.KindOperatorPolicy+" ")
	if !ok {
		return ""
	}
	return key
}

// isConsent reports whether a reason is a change that a policy holds until its digest is accepted.
func isConsent(r verdict.Reason) bool {
	return r.Rule == bundle.RuleConsent && policyOf(r) != "" && olm.ValidDigest(r.Digest)
}

// split returns what accepted changes, and what else holds the step also with the edit, as messages.
func (s *step) split(acceptChanges bool) (accepted, remaining []string) {
	for _, r := range s.reasons {
		switch {
		case isConsent(r) && acceptChanges:
			accepted = append(accepted, text.Escape(r.Message))
		case !isVersion(r):
			remaining = append(remaining, text.Escape(r.Message))
		}
	}
	return accepted, remaining
}

// fault returns why the versions of a step are not written into a policy: plans may name anything.
func (s *step) fault() string {
	for _, v := range s.versions {
		if len(validation.IsDNS1123Subdomain(v.csv)) > 0 {
			return text.Quote(v.csv) + " is no name of a ClusterServiceVersion"
		}
	}
	return ""
}

// title names the upgrade.
func (s *step) title() string {
	title := text.Name(s.pkg) + " in " + text.Name(s.namespace) + ", "
	if s.from != "" {
		title += text.Name(s.from) + " to "
	}
	return title + text.Name(s.to().csv)
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
	s := step{namespace: p.Namespace, pkg: p.Package, from: p.Installed, source: "the path of " + p.Package}
	for _, hop := range p.Steps {
		if to == toPatch && !samePatches(p.InstalledVersion, hop.Version) || to == toNext && len(s.versions) > 0 {
			break
		}
		s.versions = append(s.versions, version{hop.CSV, hop.Version, olm.ImageDigest(hop.Image)})
		for _, r := range hop.Reasons {
			s.reasons = append(s.reasons,
				verdict.Reason{Rule: r.Rule, Source: r.Source, Message: r.Message, Digest: hop.Digest})
		}
	}
	if len(s.versions) == 0 {
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
