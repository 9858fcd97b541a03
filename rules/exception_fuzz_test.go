package rules

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// FuzzExceptions reads and judges exceptions with hostile values. It panics nowhere; what has ended, or has an end that
// cannot be read, sets nothing aside, and stays ended; another exception takes nothing back, and the order of
// exceptions makes no difference.
func FuzzExceptions(f *testing.F) {
	for _, expires := range []string{
		"2026-12-15T00:00:00Z", "2026-12-15T00:00:00+23:59", "2026-12-15T00:00:00-24:00", "2026-12-31T23:59:60Z",
		"9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
		"-0001-01-01T00:00:00Z", "2026-12-15t00:00:00z", "2026-12-15 00:00:00Z", "2026-02-29T00:00:00Z",
		"2026-12-15T00:00:00.999999999999Z", "2026-12-15T00:00:00,5Z", "", " ", "ended",
		"\uff12\uff10\uff12\uff16-12-15T00:00:00Z",
		strings.Repeat("9", 1<<12), "2026-12-15T00:00:00Z\x00",
	} {
		f.Add(expires, "etcd.v0.9.4", "shop", "why", int64(1797292800), uint64(1), 2)
	}
	f.Add("2026-12-15T00:00:00Z", "etcd.v0.9.4@sha256:"+strings.Repeat("0", 64), "shop", "\u202e", int64(0), uint64(2),
		40)
	f.Add("2026-12-15T00:00:00Z", "\u00e9tcd", "b\u00f6rse", " ", int64(-1<<62), uint64(3), 33)
	f.Add("2026-12-15T00:00:00Z", strings.Repeat("a,", 100), "", "why", int64(1<<62), uint64(4), 1)
	f.Fuzz(func(t *testing.T, expires, version, namespace, reason string, unix int64, seed uint64, n int) {
		r := rand.New(rand.NewPCG(seed, 0))
		const rule = "bundle/version"
		ends := []string{expires, "2026-12-15T00:00:00Z", "2027-12-15T00:00:00+01:00", "soon"}
		specs := make([]operatorpolicy.ExceptionSpec, min(max(n, 1), 40))
		for i := range specs {
			specs[i].Versions = []string{pick(r, version, "etcd.v0.9.2", "etcd.v0.9.4")}
			specs[i].Rules = []string{pick(r, rule, rule, "bundle/upgrade", "policy/unreadable", version)}
			specs[i].Reason, specs[i].Expires = pick(r, reason, "why"), pick(r, ends...)
			if r.IntN(2) == 0 {
				specs[i].Namespaces = []string{namespace}
			}
		}
		known := []string{rule, "bundle/upgrade"}
		all, errs := operatorpolicy.ReadExceptions(specs, known, nil, nil)
		_ = errs.ToAggregate()
		now := time.Unix(unix, 0)
		state := all.At(now)
		if got := len(state.Ended) + len(state.Ending) + len(state.Later); got != len(all) {
			t.Fatalf("%d of %d exceptions have a state", got, len(all))
		}
		next, end := all.Next(now), all.End(now)
		if !next.IsZero() && !next.After(now) || !end.IsZero() && !end.After(now) {
			t.Fatalf("at %s the next change is %s, and the end %s", now, next, end)
		}
		remembered, _ := operatorpolicy.ReadExceptions(specs, known, all.Ended(now), nil)
		shuffled := slices.Clone(specs)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		reordered, _ := operatorpolicy.ReadExceptions(shuffled, known, nil, nil)
		fewer, _ := operatorpolicy.ReadExceptions(specs[:len(specs)-1], known, nil, nil)
		for _, csv := range []string{version, "etcd.v0.9.2", "etcd.v0.9.4"} {
			for _, in := range []string{namespace, "other"} {
				sets := func(l operatorpolicy.Exceptions, at time.Time) bool {
					return l.For(verdict.RuleID(rule), csv, "", in,
						at) != nil
				}
				switch allowed := sets(all, now); {
				case allowed && !admits(specs, csv, in, rule, now):
					t.Errorf("%q in %q is set aside at %s by none of %+v", csv, in, now, specs)
				case allowed != sets(reordered, now):
					t.Errorf("%q in %q depends on the order of %+v", csv, in, specs)
				case len(specs) <= 32 && sets(fewer, now) && !allowed:
					t.Errorf("%q in %q is refused because of one more of %+v", csv, in, specs)
				case sets(all, time.Time{}):
					t.Errorf("%q in %q is set aside at no time", csv, in)
				case !allowed && sets(remembered, now.Add(-time.Hour)) && !sets(all, now.Add(-time.Hour)):
					t.Errorf("%q in %q is open again", csv, in)
				case sets(remembered, now) != allowed:
					t.Errorf("%q in %q: what the status has changes what is in force", csv, in)
				}
			}
		}
	})
}

// admits reports whether one of some exceptions names a version, and ends after a time.
func admits(specs []operatorpolicy.ExceptionSpec, csv, namespace, rule string, now time.Time) bool {
	return slices.ContainsFunc(specs, func(s operatorpolicy.ExceptionSpec) bool {
		end, err := time.Parse(time.RFC3339, s.Expires)
		return err == nil && now.Before(end) && slices.Contains(s.Rules, rule) &&
			slices.ContainsFunc(s.Versions, func(v string) bool { return strings.Contains(v, csv) }) &&
			(len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace))
	})
}

func pick(r *rand.Rand, values ...string) string { return values[r.IntN(len(values))] }
