package suggest

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/cmd/opgate/inspect"
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
	// consent are the changes that policies hold, others is what else holds it.
	consent []held
	others  []string
	// refused are the policies that do not allow the version.
	refused []string
}

// held is a change that a policy holds, by namespace/name, until its digest is accepted.
type held struct{ policy, digest, message string }

func (s *step) to() *version { return &s.versions[len(s.versions)-1] }

// waiting returns the steps of the plans that wait for approval.
func waiting(state *snapshot.Snapshot, only func(types.NamespacedName) bool, now time.Time) (steps []step) {
	c := &inspect.Cluster{Snapshot: state, Now: now}
	for ns := range state.All() {
		for _, plan := range ns.Plans() {
			key := types.NamespacedName{Namespace: ns.Name(), Name: plan.Metadata.Name}
			if !ns.Waits(plan) || !only(key) {
				continue
			}
			judged := c.JudgePlan(plan)
			for _, r := range carrier.Replacements(ns, plan) {
				s := step{namespace: ns.Name(), pkg: r.Package, from: r.From, source: "installplan " + key.String(),
					versions: []version{{r.CSV, r.Version, plan.BundleDigest(r.CSV)}}}
				i := slices.IndexFunc(judged.CSVs, func(v verdict.CSV) bool { return v.CSV == r.CSV })
				for _, reason := range judged.Reasons {
					if i >= 0 && slices.Contains(judged.CSVs[i].Because, reason.Message) {
						s.note(reason.Rule, reason.Source, reason.Message, reason.Digest)
					}
				}
				steps = append(steps, s)
			}
		}
	}
	return steps
}

// note notes what holds the step beside its version.
func (s *step) note(rule verdict.RuleID, source, message, digest string) {
	policy, ofPolicy := strings.CutPrefix(source, verdict.KindOperatorPolicy+" ")
	switch {
	case rule == bundle.RuleVersion || rule == bundle.RuleVersionRange:
		s.refused = append(s.refused, source)
	case ofPolicy && rule == bundle.RuleConsent && olm.ValidDigest(digest):
		s.consent = append(s.consent, held{policy, digest, message})
	default:
		s.others = append(s.others, message)
	}
}

// remaining returns what holds the step also with the edit.
func (s *step) remaining(acceptChanges bool) (why []string) {
	for _, c := range s.consent {
		if !acceptChanges {
			why = append(why, text.Escape(c.message))
		}
	}
	for _, other := range s.others {
		why = append(why, text.Escape(other))
	}
	return why
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
