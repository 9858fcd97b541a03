package dependency

import (
	"fmt"
	"strings"
	"testing"
	"time"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
)

func TestNextSetStatus(t *testing.T) {
	of := func(state State) *Policy { return &Policy{State: state, Generation: 2, ObservedGeneration: 2} }
	members := map[string]*Policy{
		"good": of(Compliant), "fine": of(Compliant), "bad": of(NonCompliant), "waits": of(Pending),
		"waits2": of(Pending), "silent": of(Unknown),
		"new":      {State: Unknown, Generation: 1, ObservedGeneration: 1, Evaluating: true},
		"edited":   {State: Compliant, Generation: 3, ObservedGeneration: 2},
		"disabled": {State: NonCompliant, Disabled: true},
	}
	for _, c := range []struct {
		name, members, want string
	}{
		{name: "empty", want: "Compliant (True Compliant) All policies are reporting status"},
		{name: "all good", members: "good fine", want: "Compliant (True Compliant) All policies are reporting status"},
		{name: "one is bad", members: "good bad",
			want: "NonCompliant (False NonCompliant) All policies are reporting status"},
		{name: "one waits", members: "good waits",
			want: "Pending (False Pending) Policies awaiting pending dependencies: waits"},
		{name: "in the order of the PolicySet", members: "waits2 waits waits2",
			want: "Pending (False Pending) Policies awaiting pending dependencies: waits2, waits"},
		{name: "bad before waiting", members: "waits bad",
			want: "NonCompliant (False NonCompliant) Policies awaiting pending dependencies: waits"},
		{name: "bad before missing", members: "gone bad", want: "NonCompliant (False NonCompliant) Deleted policies: gone"},
		{name: "waiting before missing", members: "gone waits",
			want: "Pending (False Pending) Policies awaiting pending dependencies: waits; Deleted policies: gone"},
		{name: "missing is not good", members: "good gone", want: " (Unknown Unknown) Deleted policies: gone"},
		{name: "silent is not good", members: "good silent",
			want: " (Unknown Unknown) No status provided while awaiting policy status: silent"},
		{name: "not evaluated is not good", members: "good new",
			want: " (Unknown NotEvaluated) No status provided while awaiting policy status: new"},
		{name: "good before its edit is not good", members: "good edited",
			want: " (Unknown NotEvaluated) No status provided while awaiting policy status: edited"},
		{name: "not evaluated and missing", members: "edited gone",
			want: " (Unknown Unknown) No status provided while awaiting policy status: edited; Deleted policies: gone"},
		{name: "not evaluated and silent", members: "new silent",
			want: " (Unknown Unknown) No status provided while awaiting policy status: new, silent"},
		{name: "disabled does not count", members: "good disabled",
			want: "Compliant (True Compliant) Disabled policies: disabled"},
		{name: "all disabled", members: "disabled", want: "Compliant (True Compliant) Disabled policies: disabled"},
		{name: "everything", members: "good bad waits waits2 waits silent gone disabled",
			want: "NonCompliant (False NonCompliant) Policies awaiting pending dependencies: waits, waits2; Disabled policies: disabled; No status provided while awaiting policy status: silent; Deleted policies: gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := storedSet("all", strings.Fields(c.members)...)
			set.Generation = 5
			set.Status.Placement = []policyv1beta1.PolicySetStatusPlacement{{Placement: "kept"}}
			lookUp := func(name string) *Policy { return members[name] }
			s := NextSetStatus(ReadSet(set), &set.Status, lookUp, false, noon)
			con := s.Conditions[0]
			if got := fmt.Sprintf("%s (%s %s) %s", s.Compliant, con.Status, con.Reason,
				s.StatusMessage); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if s.ObservedGeneration != 5 || con.ObservedGeneration != 5 || len(s.Placement) != 1 {
				t.Errorf("%+v", s)
			}
			set.Status = s
			if again := NextSetStatus(ReadSet(set), &set.Status, lookUp, false,
				noon.Add(time.Hour)); fmt.Sprint(again) != fmt.Sprint(s) {
				t.Errorf("not settled: %+v", again)
			}
			if o := ReadSet(set).Observed(); string(o.State) != s.Compliant ||
				o.Evaluating != (con.Reason == ReasonNotEvaluated) || o.Stale() {
				t.Errorf("what depends on it sees %+v", o)
			}
		})
	}
	set := storedSet("all", "good")
	set.Status = NextSetStatus(ReadSet(set), &set.Status, func(string) *Policy { return of(Compliant) }, false, noon)
	if s := NextSetStatus(ReadSet(set), &set.Status, func(string) *Policy { return of(NonCompliant) }, true, noon); s.Compliant != "" || s.Conditions[0].Reason != ReasonExcluded ||
		s.StatusMessage != s.Conditions[0].Message || s.ObservedGeneration != 1 {
		t.Errorf("%+v", s)
	}
	for i := range 500 {
		set.Spec.Policies = append(set.Spec.Policies,
			policyv1beta1.NonEmptyString(fmt.Sprint(strings.Repeat("n", 200), i)))
	}
	if s := NextSetStatus(ReadSet(set), &set.Status, func(string) *Policy { return nil },
		false, noon); len(s.StatusMessage) > 16<<10 || !strings.HasSuffix(s.StatusMessage, " and 451 more") {
		t.Errorf("%d bytes", len(s.StatusMessage))
	}
}

// TestF1LargeSets: a PolicySet that is stored with more members than are read is not evaluated, and what depends on it
// waits.
func TestF1LargeSets(t *testing.T) {
	set := storedSet("all")
	for i := range MaxMembers + 1 {
		set.Spec.Policies = append(set.Spec.Policies, policyv1beta1.NonEmptyString(fmt.Sprint("p", i)))
	}
	set.Status.Compliant = string(Compliant)
	read := ReadSet(set)
	const fault = "spec.policies has 1001 members, at most 1000 are read: split the PolicySet"
	if s := NextSetStatus(read, &set.Status, func(string) *Policy { return nil }, false, noon); s.Compliant != "" ||
		s.StatusMessage != fault ||
		s.Conditions[0].Status != "Unknown" {
		t.Errorf("%+v", s)
	}
	f := Evaluate(Dependency{Ref: read.Ref(), Want: Compliant}, read.Observed())
	if f.Met || !f.Undecided || f.Reason != TooMany || f.Text != fault {
		t.Errorf("%+v", f)
	}
}
