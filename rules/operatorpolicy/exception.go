package operatorpolicy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// maxExceptionVersions bounds the names of an exception: an entry may have several.
const maxExceptionVersions = 32

// maxShown bounds, in bytes, what a fault shows of a value.
const maxShown = 64

// Notice is how long before its end an exception is reported as one that ends soon.
const Notice = 14 * 24 * time.Hour

// afterEnd is what to do about an exception that has ended.
const afterEnd = "remove it, or prolong it with the verb override"

// ExceptionSpec is an exception as a Constraint has it, or a policy, which names rules in place of a package and
// namespaces.
type ExceptionSpec struct {
	constraintv1.Exception
	Rules []string
}

// Exception is one that is prepared for judging.
type Exception struct {
	ExceptionSpec
	// index is the one in spec.exceptions.
	index    int
	versions VersionList
	expires  time.Time
	// ended is set if the leader has seen the end, or a later one, of which the status has the latest: a clock that is
	// behind, or was set back, does not open the exception again, nor does a write that shortens or narrows it.
	ended bool
}

// Exceptions are the exceptions of one policy or Constraint, in the order of its spec.
type Exceptions []Exception

// exceptions returns the exceptions of a policy; known are the IDs of the rules that they may name.
func (r *reader) exceptions(op *policyv1beta2.OperatorPolicy, known []string) Exceptions {
	specs := make([]ExceptionSpec, len(op.Spec.Exceptions))
	for i, e := range op.Spec.Exceptions {
		specs[i] = ExceptionSpec{constraintv1.Exception{Versions: e.Versions, Reason: e.Reason, Expires: e.Expires}, e.Rules}
	}
	all, errs := ReadExceptions(specs, known, op.Status.EndedExceptions, r.refused)
	r.add(errs...)
	return all
}

// ReadExceptions returns exceptions, and what is not valid about them besides what their schema refuses. One that is
// not valid is left out: it sets nothing aside. Known are the IDs of the rules that may be named, ended is what Ended has
// returned.
func ReadExceptions(
	specs []ExceptionSpec, known, ended []string, refused field.ErrorList,
) (all Exceptions, errs field.ErrorList) {
	path, r := specPath.Child("exceptions"), &reader{refused: refused}
	for i := range specs {
		at := path.Index(i)
		if !r.admits(path.String()) {
			return nil, nil
		}
		if slices.ContainsFunc(refused,
			func(err *field.Error) bool { return strings.HasPrefix(err.Field, at.String()) }) {
			continue
		}
		e, faults := readException(at, &specs[i], known)
		if errs = append(errs, faults...); len(faults) > 0 {
			continue
		}
		e.index = i
		e.ended = slices.ContainsFunc(ended, func(text string) bool {
			end, err := time.Parse(time.RFC3339, text) // earlier releases have written digests
			return err == nil && !e.expires.After(end)
		})
		all = append(all, e)
	}
	return all, errs
}

func readException(path *field.Path, from *ExceptionSpec, known []string) (e Exception, errs field.ErrorList) {
	versions, ids := path.Child("versions"), path.Child("rules")
	names, faults := (&reader{}).list(versions, from.Versions)
	e = Exception{ExceptionSpec: *from, versions: newVersionList(names)}
	switch n := len(names); {
	case n == 0:
		errs = append(errs, field.Required(versions, "name the ClusterServiceVersions that the exception is for"))
	case n > maxExceptionVersions:
		errs = append(errs, field.TooMany(versions, n, maxExceptionVersions))
	default:
		errs = append(errs, faults...)
	}
	for i, id := range from.Rules {
		if !slices.Contains(known, id) {
			errs = append(errs, field.NotSupported(ids.Index(i), text.Truncate(id, maxShown), known))
		}
	}
	expires, faults := moment(path.Child("expires"), from.Expires)
	e.expires = expires
	return e, append(errs, faults...)
}

// in reports whether the exception counts in a namespace.
func (e *Exception) in(namespace string) bool {
	return len(e.Namespaces) == 0 || slices.Contains(e.Namespaces, namespace)
}

// sets reports whether the exception sets a rule aside in a namespace while it is in force.
func (e *Exception) sets(id verdict.RuleID, namespace string) bool {
	return slices.Contains(e.Rules, string(id)) && e.in(namespace)
}

// inForce reports whether the exception counts at a time. It does not while the time is not known.
func (e *Exception) inForce(now time.Time) bool {
	return !e.ended && !now.IsZero() && now.Before(e.expires)
}

// Text returns the exception of a source as messages name it, after "set aside by".
func (e *Exception) Text(source string) string {
	return fmt.Sprintf("exception %d of %s until %s (%s)", e.index+1, source, e.expires.Format(time.RFC3339),
		text.Quote(e.Reason))
}

// For returns the exception by which a rule does not refuse a ClusterServiceVersion in a namespace at a time; nil for
// none. The digest is that of its bundle image, "" if it is not known.
func (l Exceptions) For(id verdict.RuleID, csv, digest, namespace string, now time.Time) *Exception {
	for i := range l {
		if e := &l[i]; e.sets(id, namespace) && e.inForce(now) && e.versions.Matches(csv, digest) {
			return e
		}
	}
	return nil
}

// ForName is For in a namespace for a ClusterServiceVersion of which the contents are not known: there the name counts.
func (l Exceptions) ForName(id verdict.RuleID, csv, namespace string, now time.Time) bool {
	return slices.ContainsFunc(l, func(e Exception) bool {
		return e.sets(id, namespace) && e.inForce(now) && e.versions.Mentions(csv)
	})
}

// Names returns the names of the ClusterServiceVersions for which a rule is set aside at a time somewhere, with some
// contents or any.
func (l Exceptions) Names(id verdict.RuleID, now time.Time) []string {
	var names []string
	for i := range l {
		if e := &l[i]; slices.Contains(e.Rules, string(id)) && e.inForce(now) {
			names = append(names, e.versions.Names()...)
		}
	}
	return unique(names)
}

// NeedsDigest reports whether an exception names a ClusterServiceVersion with a digest.
func (l Exceptions) NeedsDigest(csv string) bool {
	return slices.ContainsFunc(l, func(e Exception) bool { return e.versions.digested(csv) })
}

// Was reports whether a rule was set aside for a ClusterServiceVersion in a namespace at a time of the past, whether or
// not that has ended since.
func (l Exceptions) Was(id verdict.RuleID, csv, namespace string, then time.Time) bool {
	return slices.ContainsFunc(l, func(e Exception) bool {
		return e.sets(id, namespace) && e.versions.Mentions(csv) && then.Before(e.expires)
	})
}

// End returns when the first exception ends of those in force; zero if none is.
func (l Exceptions) End(now time.Time) (first time.Time) {
	for i := range l {
		if e := &l[i]; e.inForce(now) && (first.IsZero() || e.expires.Before(first)) {
			first = e.expires
		}
	}
	return first
}

// Next returns when the time alone ends an exception, or makes it one that ends soon; zero for never.
func (l Exceptions) Next(now time.Time) time.Time {
	next := l.End(now)
	if later := l.End(now.Add(Notice)); !later.IsZero() && (later.Add(-Notice).Before(next)) {
		next = later.Add(-Notice)
	}
	return next
}

// Of returns the exceptions that name a package, or none.
func (l Exceptions) Of(pkg string) Exceptions {
	return slices.DeleteFunc(slices.Clone(l), func(e Exception) bool { return e.Package != "" && e.Package != pkg })
}

// Ended returns the latest end of those that have ended, for the status; nothing if none has.
func (l Exceptions) Ended(now time.Time) []string {
	var last *Exception
	for i := range l {
		if e := &l[i]; !e.inForce(now) && (last == nil || e.expires.After(last.expires)) {
			last = e
		}
	}
	if last == nil {
		return nil
	}
	return []string{last.expires.Format(time.RFC3339Nano)}
}

// SameEnded reports whether of two lists the same exceptions are known to have ended.
func SameEnded(a, b Exceptions) bool {
	return slices.EqualFunc(a, b, func(x, y Exception) bool { return x.index == y.index && x.ended == y.ended })
}

// Widened returns the paths of the exceptions that set more aside than others do, or for longer, whatever has ended.
func (l Exceptions) Widened(before Exceptions) []string {
	var paths []string
	for i := range l {
		if e := &l[i]; e.widens(before) {
			paths = append(paths, fmt.Sprintf("spec.exceptions[%d]", e.index))
		}
	}
	return paths
}

// widens reports whether the exception sets a rule aside for a name that none of some others does for as long and
// everywhere. A name with a digest is not wider than one without.
func (e *Exception) widens(others Exceptions) bool {
	for _, entry := range e.versions.Entries {
		name, _, _ := strings.Cut(entry, "@")
		for _, id := range e.Rules {
			covered := func(o Exception) bool {
				return slices.Contains(o.Rules, id) && !e.expires.After(o.expires) && (o.Package == "" || o.Package == e.Package) &&
					(slices.Contains(o.versions.Entries, entry) || o.versions.Lists(name)) &&
					(len(o.Namespaces) == 0 || len(e.Namespaces) > 0 &&
						!slices.ContainsFunc(e.Namespaces, func(n string) bool { return !o.in(n) }))
			}
			if !slices.ContainsFunc(others, covered) {
				return true
			}
		}
	}
	return false
}

// ExceptionState is the state of exceptions at a time.
type ExceptionState struct {
	// Ended, Ending and Later are clauses on those that have ended, that end within Notice, and the others.
	Ended, Ending, Later []string
}

// At returns the state at a time, which has to be known.
func (l Exceptions) At(now time.Time) ExceptionState {
	var s ExceptionState
	for i := range l {
		e := &l[i]
		set, names := text.Names(unique(slices.Clone(e.Rules)), verdict.MaxListed), text.Names(e.versions.Entries, verdict.MaxListed)
		if e.Package != "" {
			names += " of package " + text.Name(e.Package)
		}
		if len(e.Namespaces) > 0 {
			names += " in " + text.Names(e.Namespaces, verdict.MaxListed)
		}
		until, reason := e.expires.Format(time.RFC3339), text.Quote(e.Reason)
		clause := fmt.Sprintf("exception %d sets %s aside for %s until %s (%s)", e.index+1, set, names, until, reason)
		switch {
		case !e.inForce(now):
			s.Ended = append(s.Ended, fmt.Sprintf("exception %d, which set %s aside for %s, ended at %s (%s)",
				e.index+1, set, names, until, reason))
		case e.expires.Sub(now) <= Notice:
			s.Ending = append(s.Ending, clause)
		default:
			s.Later = append(s.Later, clause)
		}
	}
	return s
}

// The condition on exceptions, which does not count for compliance: what an exception lets in does, once that has
// ended.
const (
	// ConditionAuthor is False if the rights of the author that a policy needs were not verified. Absent otherwise.
	ConditionAuthor = "AuthorVerified"
	// ConditionExceptions is True if an exception is in force. Absent without exceptions.
	ConditionExceptions = "ExceptionsInForce"

	ReasonInForce  = "ExceptionsInForce"
	ReasonEndsSoon = "ExceptionEndsSoon"
	ReasonEnded    = "ExceptionEnded"
)

// Condition returns what the condition has: whether an exception is in force, the reason, and clauses on all
// exceptions, those that have ended first. There are none without exceptions.
func (s *ExceptionState) Condition() (inForce bool, reason string, clauses []string) {
	clauses = slices.Concat(s.Ended, s.Ending, s.Later)
	switch inForce = len(s.Ending)+len(s.Later) > 0; {
	case len(s.Ended) > 0:
		return inForce, ReasonEnded, clauses
	case len(s.Ending) > 0:
		return inForce, ReasonEndsSoon, clauses
	}
	return inForce, ReasonInForce, clauses
}

// Judge records by a rule what is wrong with the ends of exceptions. One that has ended is warned of, and
// refused in a review of files, which have to be corrected: a stored object with one may still be edited. Such a review
// warns of those that end soon.
func (l Exceptions) Judge(v *verdict.Verdict, id verdict.RuleID, now time.Time, files bool) {
	if now.IsZero() {
		return
	}
	state := l.At(now)
	for _, ended := range state.Ended {
		f := verdict.Finding{Field: "spec.exceptions", What: ended, Accepted: afterEnd}
		if files {
			f.Decision = verdict.Deny
		}
		v.Add(id, f)
	}
	if !files {
		return
	}
	for _, ending := range state.Ending {
		v.Add(id, verdict.Finding{Field: "spec.exceptions", What: ending,
			Accepted: "that is in less than 14 days; " + afterEnd})
	}
}
