// Package exception reads exceptions of policies and Constraints: rules that are set aside for some versions until a
// time. Time is an input.
package exception

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// Bounds of exceptions.
const (
	maxExceptions = 32
	maxVersions   = 32
	maxRules      = 16
	maxNamespaces = 64
	maxReason     = 256
	// maxShown bounds, in bytes, what a fault shows of a value.
	maxShown = 64
)

// Notice is how long before its end an exception is reported as one that ends soon.
const Notice = 14 * 24 * time.Hour

// AfterEnd is what to do about an exception that has ended.
const AfterEnd = "remove it, or prolong it with the verb override"

// Spec is an exception as it is written.
type Spec struct {
	// Versions are in the form of spec.versions of an OperatorPolicy.
	Versions []string
	// Namespaces are those in which it counts; none for all.
	Namespaces []string
	Rules      []string
	Reason     string
	// Expires is a time as in RFC 3339.
	Expires string
}

// Exception is one that is prepared for judging (R-AP-10).
type Exception struct {
	// index is the one in spec.exceptions.
	index      int
	entries    []string
	namespaces []string
	rules      []verdict.RuleID
	reason     string
	expires    time.Time
	// id is the digest of what is set aside and until when. ended is set if the status has it: the leader has seen the
	// end, and a clock that is behind, or was set back, does not open the exception again.
	id    string
	ended bool
}

// List are the exceptions of one policy or Constraint, in the order of its spec.
type List []Exception

// Read returns exceptions, and what is not valid about them, by the path of their list. One that is not valid is left
// out: it sets nothing aside. Known are the IDs of the rules that may be named, ended the IDs that the status has.
func Read(path *field.Path, specs []Spec, known, ended []string) (all List, errs field.ErrorList) {
	if len(specs) > maxExceptions {
		return nil, field.ErrorList{field.TooMany(path, len(specs), maxExceptions)}
	}
	for i := range specs {
		e, faults := read(path.Index(i), &specs[i], known)
		if errs = append(errs, faults...); len(faults) > 0 {
			continue
		}
		e.index, e.id = i, e.digest()
		e.ended = slices.Contains(ended, e.id)
		all = append(all, e)
	}
	return all, errs
}

func read(path *field.Path, from *Spec, known []string) (e Exception, errs field.ErrorList) {
	e = Exception{entries: operatorpolicy.SplitVersions(from.Versions), namespaces: from.Namespaces,
		reason: from.Reason}
	versions, ids := path.Child("versions"), path.Child("rules")
	switch n := len(e.entries); {
	case n == 0:
		errs = append(errs, field.Required(versions, "name the ClusterServiceVersions that the exception is for"))
	case n > maxVersions:
		errs = append(errs, field.TooMany(versions, n, maxVersions))
	default:
		errs = append(errs, operatorpolicy.ValidateVersions(versions, from.Versions)...)
	}
	switch {
	case len(from.Rules) == 0:
		errs = append(errs, field.Required(ids, "name the rules that are set aside: "+text.Names(known, len(known))))
	case len(from.Rules) > maxRules:
		errs = append(errs, field.TooMany(ids, len(from.Rules), maxRules))
	default:
		for i, id := range from.Rules {
			if !slices.Contains(known, id) {
				errs = append(errs, field.NotSupported(ids.Index(i), text.Truncate(id, maxShown), known))
			}
			e.rules = append(e.rules, verdict.RuleID(id))
		}
	}
	if len(from.Namespaces) > maxNamespaces {
		errs = append(errs, field.TooMany(path.Child("namespaces"), len(from.Namespaces), maxNamespaces))
	}
	switch reason := path.Child("reason"); {
	case strings.TrimSpace(from.Reason) == "":
		errs = append(errs, field.Required(reason, "write why the rules are set aside"))
	case len([]rune(from.Reason)) > maxReason:
		errs = append(errs, field.TooLong(reason, "", maxReason))
	}
	expires, faults := operatorpolicy.Moment(path.Child("expires"), from.Expires)
	e.expires = expires
	return e, append(errs, faults...)
}

// digest identifies what an exception sets aside and until when. The reason does not count.
func (e *Exception) digest() string {
	hash := sha256.New()
	for _, part := range [][]string{slices.Sorted(slices.Values(e.entries)), slices.Sorted(slices.Values(e.namespaces)),
		e.ruleNames(), {e.expires.UTC().Format(time.RFC3339Nano)}} {
		_, _ = fmt.Fprintf(hash, "%q\n", part) // hashes return no errors
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}

func (e *Exception) ruleNames() []string {
	var names []string
	for _, id := range e.rules {
		names = append(names, string(id))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// names returns the names that the exception is for, with some contents or any.
func (e *Exception) names() []string {
	var names []string
	for _, entry := range e.entries {
		name, _ := olm.CutDigest(entry)
		names = append(names, name)
	}
	return names
}

// matches reports whether the exception is for a ClusterServiceVersion with a bundle image, of which the digest is ""
// if it is not known.
func (e *Exception) matches(csv, digest string) bool {
	if strings.Contains(csv, "@") {
		return false // an entry with a digest is no name
	}
	return slices.Contains(e.entries, csv) || digest != "" && slices.Contains(e.entries, csv+"@"+digest)
}

// in reports whether the exception counts in a namespace.
func (e *Exception) in(namespace string) bool {
	return len(e.namespaces) == 0 || slices.Contains(e.namespaces, namespace)
}

// inForce reports whether the exception counts at a time. It does not while the time is not known.
func (e *Exception) inForce(now time.Time) bool {
	return !e.ended && !now.IsZero() && now.Before(e.expires)
}

// Text returns the exception of a source as messages name it, after "set aside by".
func (e *Exception) Text(source string) string {
	return fmt.Sprintf("exception %d of %s until %s (%s)", e.index+1, source, e.expires.Format(time.RFC3339),
		text.Quote(e.reason))
}

// For returns the exception by which a rule does not refuse a ClusterServiceVersion in a namespace at a time; nil for
// none. The digest is that of its bundle image, "" if it is not known.
func (l List) For(id verdict.RuleID, csv, digest, namespace string, now time.Time) *Exception {
	for i := range l {
		if e := &l[i]; slices.Contains(e.rules, id) && e.inForce(now) && e.in(namespace) && e.matches(csv, digest) {
			return e
		}
	}
	return nil
}

// ForName is For in a namespace for a ClusterServiceVersion of which the contents are not known: there the name counts.
func (l List) ForName(id verdict.RuleID, csv, namespace string, now time.Time) bool {
	return slices.ContainsFunc(l, func(e Exception) bool {
		return slices.Contains(e.rules, id) && e.inForce(now) && e.in(namespace) && slices.Contains(e.names(), csv)
	})
}

// Names returns the names of the ClusterServiceVersions for which a rule is set aside at a time somewhere, with some
// contents or any.
func (l List) Names(id verdict.RuleID, now time.Time) []string {
	var names []string
	for i := range l {
		if e := &l[i]; slices.Contains(e.rules, id) && e.inForce(now) {
			names = append(names, e.names()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NeedsDigest reports whether an exception names a ClusterServiceVersion with a digest.
func (l List) NeedsDigest(csv string) bool {
	return slices.ContainsFunc(l, func(e Exception) bool {
		return slices.ContainsFunc(e.entries, func(entry string) bool { return strings.HasPrefix(entry, csv+"@") })
	})
}

// Was reports whether a rule was set aside for a ClusterServiceVersion in a namespace at a time of the past, whether or
// not that has ended since.
func (l List) Was(id verdict.RuleID, csv, namespace string, then time.Time) bool {
	return slices.ContainsFunc(l, func(e Exception) bool {
		return slices.Contains(e.rules, id) && e.in(namespace) && slices.Contains(e.names(), csv) &&
			then.Before(e.expires)
	})
}

// End returns when the first exception ends of those in force; zero if none is.
func (l List) End(now time.Time) time.Time {
	var end time.Time
	for i := range l {
		if e := &l[i]; e.inForce(now) && (end.IsZero() || e.expires.Before(end)) {
			end = e.expires
		}
	}
	return end
}

// Next returns when the time alone ends an exception, or makes it one that ends soon; zero for never.
func (l List) Next(now time.Time) time.Time {
	var next time.Time
	for i := range l {
		e := &l[i]
		if !e.inForce(now) {
			continue
		}
		at := e.expires
		if notice := at.Add(-Notice); now.Before(notice) {
			at = notice
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// Ended returns the IDs of the exceptions that have ended, for the status.
func (l List) Ended(now time.Time) []string {
	var ids []string
	for i := range l {
		if !l[i].inForce(now) {
			ids = append(ids, l[i].id)
		}
	}
	return ids
}

// SameEnded reports whether two lists have the same exceptions that are known to have ended.
func SameEnded(a, b List) bool {
	return slices.EqualFunc(a, b, func(x, y Exception) bool { return x.id == y.id && x.ended == y.ended })
}

// Widened returns the paths of the exceptions that set more aside than others do, or for longer, whatever has ended.
func (l List) Widened(before List) []string {
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
func (e *Exception) widens(others List) bool {
	for _, entry := range e.entries {
		name, _ := olm.CutDigest(entry)
		for _, id := range e.rules {
			covered := func(o Exception) bool {
				return slices.Contains(o.rules, id) && !e.expires.After(o.expires) &&
					(slices.Contains(o.entries, entry) || slices.Contains(o.entries, name)) &&
					(len(o.namespaces) == 0 || len(e.namespaces) > 0 &&
						!slices.ContainsFunc(e.namespaces, func(n string) bool { return !o.in(n) }))
			}
			if !slices.ContainsFunc(others, covered) {
				return true
			}
		}
	}
	return false
}
