package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleException is on refusals that spec.exceptions of a policy sets aside.
const RuleBundleException verdict.RuleID = "bundle/exception"

var bundleException = verdict.Rule{ID: RuleBundleException, Outcomes: verdict.Warns,
	Summary: "what a rule refuses is set aside by an exception of the policy, until that ends"}

// Bounds of spec.exceptions.
const (
	maxExceptions        = 32
	maxExceptionVersions = 32
	maxExceptionRules    = 16
	maxExceptionReason   = 256
	// maxShownRule bounds, in bytes, what a fault shows of what should be the ID of a rule.
	maxShownRule = 64
)

// ExceptionNotice is how long before its end an exception is reported as one that ends soon.
const ExceptionNotice = 14 * 24 * time.Hour

// exception is one of spec.exceptions (R-AP-10), prepared for judging.
type exception struct {
	// index is the one in spec.exceptions.
	index    int
	versions versionList
	rules    []verdict.RuleID
	reason   string
	expires  time.Time
	// id is the digest of what is set aside and until when. ended is set if the status has it: the leader has seen the
	// end, and a clock that is behind, or was set back, does not open the exception again.
	id    string
	ended bool
}

// newExceptions returns the exceptions of a policy, and what is not valid about them. One that is not valid is left
// out: it sets nothing aside.
func newExceptions(op *policyv1beta2.OperatorPolicy) (all []exception, errs field.ErrorList) {
	path := field.NewPath("spec", "exceptions")
	if len(op.Spec.Exceptions) > maxExceptions {
		return nil, field.ErrorList{field.TooMany(path, len(op.Spec.Exceptions), maxExceptions)}
	}
	for i := range op.Spec.Exceptions {
		e, faults := newException(path.Index(i), &op.Spec.Exceptions[i])
		if errs = append(errs, faults...); len(faults) > 0 {
			continue
		}
		e.index, e.ended = i, slices.Contains(op.Status.EndedExceptions, e.id)
		all = append(all, e)
	}
	return all, errs
}

func newException(path *field.Path, from *policyv1beta2.Exception) (e exception, errs field.ErrorList) {
	e = exception{versions: newVersionList(from.Versions), reason: from.Reason}
	versions, ids := path.Child("versions"), path.Child("rules")
	switch n := len(e.versions.entries); {
	case n == 0:
		errs = append(errs, field.Required(versions, "name the ClusterServiceVersions that the exception is for"))
	case n > maxExceptionVersions:
		errs = append(errs, field.TooMany(versions, n, maxExceptionVersions))
	default:
		errs = append(errs, operatorpolicy.ValidateVersions(versions, from.Versions)...)
	}
	switch known := exceptable(); {
	case len(from.Rules) == 0:
		errs = append(errs, field.Required(ids, "name the rules that are set aside: "+text.Names(known, len(known))))
	case len(from.Rules) > maxExceptionRules:
		errs = append(errs, field.TooMany(ids, len(from.Rules), maxExceptionRules))
	default:
		for i, id := range from.Rules {
			if !slices.Contains(known, id) {
				errs = append(errs, field.NotSupported(ids.Index(i), text.Truncate(id, maxShownRule), known))
			}
			e.rules = append(e.rules, verdict.RuleID(id))
		}
	}
	switch reason := path.Child("reason"); {
	case strings.TrimSpace(from.Reason) == "":
		errs = append(errs, field.Required(reason, "write why the rules are set aside"))
	case len([]rune(from.Reason)) > maxExceptionReason:
		errs = append(errs, field.TooLong(reason, "", maxExceptionReason))
	}
	expires, faults := operatorpolicy.Moment(path.Child("expires"), from.Expires)
	e.expires = expires
	if errs = append(errs, faults...); len(errs) == 0 {
		e.id = e.digest()
	}
	return e, errs
}

// exceptable returns the IDs of the rules that an exception may name, in reading order: those by which one policy
// judges what is installed and that override sets aside. A policy that cannot be read has no exceptions that could be read.
func exceptable() []string {
	var ids []string
	add := func(r verdict.Rule) {
		if r.Override && r.ID != RulePolicyUnreadable {
			ids = append(ids, string(r.ID))
		}
	}
	for _, check := range contentChecks {
		add(check.Rule)
	}
	for _, check := range progressChecks {
		add(check.Rule)
	}
	add(bundleConsent)
	add(bundleContents)
	return ids
}

// digest identifies what an exception sets aside and until when. The reason does not count.
func (e *exception) digest() string {
	hash := sha256.New()
	for _, part := range [][]string{slices.Sorted(slices.Values(e.versions.entries)), ruleNames(e.rules),
		{e.expires.UTC().Format(time.RFC3339Nano)}} {
		_, _ = fmt.Fprintf(hash, "%q\n", part) // hashes return no errors
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}

func ruleNames(ids []verdict.RuleID) []string {
	var names []string
	for _, id := range ids {
		names = append(names, string(id))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inForce reports whether the exception counts at a time. It does not while the time is not known.
func (e *exception) inForce(now time.Time) bool {
	return !e.ended && !now.IsZero() && now.Before(e.expires)
}

// text returns the exception as messages name it, after "set aside by".
func (e *exception) text(p *OperatorPolicy) string {
	return fmt.Sprintf("exception %d of %s until %s (%s)", e.index+1, p.Source(), e.expires.Format(time.RFC3339),
		text.Quote(e.reason))
}

// excepted returns the exception by which a rule does not refuse a bundle at a time; nil for none.
func (p *OperatorPolicy) excepted(c *Bundle, id verdict.RuleID, now time.Time) *exception {
	for i := range p.exceptions {
		e := &p.exceptions[i]
		if !slices.Contains(e.rules, id) || !e.inForce(now) {
			continue
		}
		if match, _ := e.versions.matches(c); match {
			return e
		}
	}
	return nil
}

// exceptedName is excepted for a ClusterServiceVersion of which the contents are not known: there the name counts.
func (p *OperatorPolicy) exceptedName(csv string, id verdict.RuleID, now time.Time) bool {
	return slices.Contains(p.ExceptedNames(id, now), csv)
}

// ExceptedNames returns the names of the ClusterServiceVersions for which exceptions set a rule aside at a time, with
// some contents or any.
func (p *OperatorPolicy) ExceptedNames(id verdict.RuleID, now time.Time) []string {
	var names []string
	for i := range p.exceptions {
		if e := &p.exceptions[i]; slices.Contains(e.rules, id) && e.inForce(now) {
			names = append(names, e.versions.names()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// recordOn records a finding of a policy on a bundle. If an exception sets the rule aside, that is a warning, which
// names the exception before the refusal.
func (p *OperatorPolicy) recordOn(c *Bundle, now time.Time, v *verdict.Verdict, id verdict.RuleID, f verdict.Finding) {
	if f.Silent() {
		return
	}
	e := p.excepted(c, id, now)
	if e == nil {
		p.record(v, id, f)
		return
	}
	v.Warn(verdict.Reason{Rule: RuleBundleException, Source: p.Source(), From: p.ref(), Field: f.Field,
		Message: verdict.Sentence("set aside by "+e.text(p), RuleBundleException,
			verdict.Sentence(f.What+" by "+p.Source(), id, f.Accepted))})
}

// wasExcepted reports whether an exception set a rule of a source aside for a ClusterServiceVersion at a time of the
// past, whether or not it has ended since.
func (n *Namespace) wasExcepted(from verdict.PolicyRef, id verdict.RuleID, csv string, then time.Time) bool {
	for _, p := range n.Policies() {
		if p.ref() != from {
			continue
		}
		for i := range p.exceptions {
			e := &p.exceptions[i]
			if slices.Contains(e.rules, id) && slices.Contains(e.versions.names(), csv) && then.Before(e.expires) {
				return true
			}
		}
	}
	return false
}

// ExceptionEnd returns when the first exception of the policy ends of those in force; zero if none is.
func (p *OperatorPolicy) ExceptionEnd(now time.Time) time.Time {
	var end time.Time
	for i := range p.exceptions {
		if e := &p.exceptions[i]; e.inForce(now) && (end.IsZero() || e.expires.Before(end)) {
			end = e.expires
		}
	}
	return end
}

// NextException returns when the time alone ends an exception of the policy, or makes it one that ends soon; zero for
// never.
func (p *OperatorPolicy) NextException(now time.Time) time.Time {
	var next time.Time
	for i := range p.exceptions {
		e := &p.exceptions[i]
		if !e.inForce(now) {
			continue
		}
		at := e.expires
		if notice := at.Add(-ExceptionNotice); now.Before(notice) {
			at = notice
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// ExceptionState is the state of the exceptions of a policy at a time.
type ExceptionState struct {
	// Ended, Ending and Later are clauses on those that have ended, that end within ExceptionNotice, and the others.
	Ended, Ending, Later []string
	// IDs are those of the ones that have ended, for status.endedExceptions.
	IDs []string
}

// afterEnd is what to do about an exception that has ended.
const afterEnd = "remove it, or prolong it with the verb override on the policy"

// Exceptions returns the state of the exceptions of the policy at a time, which has to be known.
func (p *OperatorPolicy) Exceptions(now time.Time) ExceptionState {
	var s ExceptionState
	for i := range p.exceptions {
		e := &p.exceptions[i]
		names := text.Names(e.versions.entries, verdict.MaxListed)
		until := e.expires.Format(time.RFC3339)
		set := text.Names(ruleNames(e.rules), verdict.MaxListed)
		sets := fmt.Sprintf("exception %d sets %s aside for %s until %s (%s)", e.index+1, set, names, until,
			text.Quote(e.reason))
		switch {
		case !e.inForce(now):
			s.IDs = append(s.IDs, e.id)
			s.Ended = append(s.Ended, fmt.Sprintf("exception %d, which set %s aside for %s, ended at %s (%s)", e.index+1,
				set, names, until, text.Quote(e.reason)))
		case e.expires.Sub(now) <= ExceptionNotice:
			s.Ending = append(s.Ending, sets)
		default:
			s.Later = append(s.Later, sets)
		}
	}
	return s
}
