package dependency

import (
	"fmt"
	"strings"
	"testing"
)

// TestObserve reads the state of any object. A missing field, or one of another type, is never a state.
func TestObserve(t *testing.T) {
	for _, c := range []struct{ name, object, want string }{
		{name: "nothing", object: "{}", want: "0/0 none"},
		{name: "compliant", object: "{status: {compliant: Compliant}}", want: "0/0 Compliant"},
		{name: "complianceState", object: "{status: {complianceState: NonCompliant}}", want: "0/0 NonCompliant"},
		{name: "both", object: "{status: {compliant: NonCompliant, complianceState: Compliant}}", want: "0/0 NonCompliant"},
		{name: "compliant is empty", object: `{status: {compliant: "", complianceState: Pending}}`,
			want: "0/0 Pending"},
		{name: "compliant is true", object: "{status: {compliant: true}}", want: "0/0 none"},
		{name: "compliant is a list", object: "{status: {compliant: [Compliant]}}", want: "0/0 none"},
		{name: "compliant in the spec", object: "{spec: {compliant: Compliant}}", want: "0/0 none"},
		{name: "status is text", object: "{status: Compliant}", want: "0/0 none"},
		{name: "a state of its own", object: "{status: {compliant: UnknownCompliancy}}", want: "0/0 UnknownCompliancy"},
		{name: "condition", object: `{status: {conditions: [{type: Ready, status: "False"}, {type: Compliant, status: "True"}]}}`, want: "0/0 Compliant"},
		{name: "condition False", object: `{status: {conditions: [{type: Compliant, status: "False"}]}}`,
			want: "0/0 NonCompliant"},
		{name: "condition Unknown", object: `{status: {conditions: [{type: Compliant, status: Unknown}]}}`,
			want: "0/0 none"},
		{name: "condition Unknown, being evaluated",
			object: `{status: {conditions: [{type: Compliant, status: Unknown, reason: NotEvaluated}]}}`,
			want:   "0/0 none evaluating"},
		{name: "a condition does not outvote a state",
			object: `{status: {compliant: NonCompliant, conditions: [{type: Compliant, status: "True"}]}}`,
			want:   "0/0 NonCompliant"},
		{name: "condition True as a boolean", object: `{status: {conditions: [{type: Compliant, status: true}]}}`,
			want: "0/0 none"},
		{name: "conditions of other types", object: `{status: {conditions: [x, 5, {type: 7}]}}`, want: "0/0 none"},
		{name: "condition of an earlier generation",
			object: `{metadata: {generation: 3}, status: {conditions: [{type: Compliant, status: "True", observedGeneration: 2}]}}`, want: "3/2 Compliant stale"},
		{name: "current", object: "{metadata: {generation: 3}, status: {compliant: Compliant, observedGeneration: 3}}",
			want: "3/3 Compliant"},
		{name: "stale", object: "{metadata: {generation: 3}, status: {compliant: Compliant, observedGeneration: 2}}",
			want: "3/2 Compliant stale"},
		{name: "ahead of itself",
			object: "{metadata: {generation: 3}, status: {compliant: Compliant, observedGeneration: 4}}",
			want:   "3/4 Compliant stale"},
		{name: "observed nothing yet",
			object: "{metadata: {generation: 3}, status: {compliant: Compliant, observedGeneration: 0}}",
			want:   "3/0 Compliant stale"},
		{name: "observedGeneration is text",
			object: `{metadata: {generation: 3}, status: {compliant: Compliant, observedGeneration: "3"}}`,
			want:   "3/0 Compliant"},
		{name: "a ConfigurationPolicy of before its edit",
			object: "{apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {generation: 3}, status: {compliant: Compliant, lastEvaluatedGeneration: 2}}", want: "3/2 Compliant stale"},
		{name: "a ConfigurationPolicy",
			object: "{apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {generation: 3}, status: {compliant: Compliant, lastEvaluatedGeneration: 3}}", want: "3/3 Compliant"},
		{name: "another kind that counts something by that name",
			object: "{apiVersion: example.com/v1, kind: Widget, metadata: {generation: 3}, status: {compliant: Compliant, lastEvaluatedGeneration: 2}}", want: "3/0 Compliant"},
		{name: "a ConstraintTemplate is there",
			object: "{apiVersion: templates.gatekeeper.sh/v1, kind: ConstraintTemplate, status: {created: false}}",
			want:   "0/0 Compliant"},
		{name: "a ConstraintTemplate of another group",
			object: "{apiVersion: example.com/v1, kind: ConstraintTemplate}", want: "0/0 none"},
		{name: "something else of that group", object: "{apiVersion: templates.gatekeeper.sh/v1, kind: Other}",
			want: "0/0 none"},
		{name: "a Gatekeeper constraint without violations",
			object: "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, status: {totalViolations: 0}}",
			want:   "0/0 Compliant"},
		{name: "with violations",
			object: "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, status: {totalViolations: 3}}",
			want:   "0/0 NonCompliant"},
		{name: "not audited", object: "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, status: {}}",
			want: "0/0 none"},
		{name: "violations as text",
			object: `{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, status: {totalViolations: "0"}}`,
			want:   "0/0 none"},
		{name: "a Gatekeeper constraint that calls itself Compliant",
			object: "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, status: {compliant: Compliant}}",
			want:   "0/0 none"},
		{name: "a Constraint of OLM is none of Gatekeeper's",
			object: "{apiVersion: operators.coreos.com/v1, kind: Constraint, status: {compliant: NonCompliant, totalViolations: 0}}", want: "0/0 NonCompliant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Observe(object(t, c.object))
			got := fmt.Sprintf("%d/%d ", o.Generation, o.ObservedGeneration)
			if got += string(o.State); o.State == Unknown {
				got += "none"
			}
			if o.Evaluating {
				got += " evaluating"
			}
			if o.Stale() {
				got += " stale"
			}
			if got != c.want || !o.Found() {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if o := Observe(nil); o.State != Unknown {
		t.Error("nil says nothing")
	}
	whole := map[string]any{"metadata": map[string]any{"generation": int64(3), "uid": "u"},
		"status": map[string]any{"observedGeneration": int64(3)}}
	for _, three := range []any{int64(3), float64(3)} {
		whole["status"] = map[string]any{"observedGeneration": three}
		if o := Observe(whole); o.Generation != 3 || o.ObservedGeneration != 3 || !o.HasObserved || o.UID != "u" {
			t.Errorf("%T: %+v", three, o)
		}
	}
	whole["status"] = map[string]any{"observedGeneration": 2.5}
	if o := Observe(whole); o.HasObserved {
		t.Error("half a generation")
	}
}

func TestEvaluate(t *testing.T) {
	seen := func(state State) Observed { return Observed{State: state, UID: "u", Generation: 1} }
	db := dep("Policy", "db", Compliant)
	gk := Dependency{Ref: Ref{GatekeeperTemplateGroup, KindConstraintTemplate, "", "k8s"}, Want: Compliant}
	audit := Dependency{Ref: Ref{GatekeeperConstraintGroup, "K", "", "all"}, Want: Compliant}
	wanting := func(d Dependency, s State) Dependency {
		d.Want = s
		return d
	}
	for _, c := range []struct {
		name string
		d    Dependency
		o    Observed
		want string
	}{
		{name: "as wanted", d: db, o: seen(Compliant), want: "met"},
		{name: "NonCompliant as wanted", d: wanting(db, NonCompliant), o: seen(NonCompliant), want: "met"},
		{name: "Pending as wanted", d: wanting(db, Pending), o: seen(Pending), want: "met"},
		{name: "the other way round", d: wanting(db, NonCompliant), o: seen(Compliant),
			want: "WrongState, it is Compliant, want NonCompliant"},
		{name: "in other letters", d: db, o: seen("compliant"), want: "WrongState, it is compliant, want Compliant"},
		{name: "with a space", d: db, o: seen("Compliant "),
			want: `WrongState, it is "Compliant ", want Compliant`},
		{name: "another state", d: db, o: seen("UnknownCompliancy"),
			want: "WrongState, it is UnknownCompliancy, want Compliant"},
		{name: "nothing is wanted and nothing said", d: wanting(db, ""), o: Observed{},
			want: "NoStatus, it has neither status.compliant nor status.complianceState"},
		{name: "no status", d: db, o: Observed{},
			want: "NoStatus, it has neither status.compliant nor status.complianceState"},
		{name: "no status, and NonCompliant is wanted", d: wanting(db, NonCompliant), o: Observed{},
			want: "NoStatus, it has neither status.compliant nor status.complianceState"},
		{name: "not evaluated yet", d: db, o: Observed{Evaluating: true},
			want: "NoStatus, it has neither status.compliant nor status.complianceState, undecided"},
		{name: "stale, and would do", d: db, o: Observed{State: Compliant, Generation: 3,
			ObservedGeneration: 2, HasObserved: true}, want: "Stale, generation 3 is not evaluated yet, undecided"},
		{name: "stale, and would not do", d: db, o: Observed{State: NonCompliant, Generation: 3,
			ObservedGeneration: 2, HasObserved: true}, want: "Stale, generation 3 is not evaluated yet, undecided"},
		{name: "not there", d: db, o: Observed{Reason: NotFound}, want: "NotFound"},
		{name: "no kind", d: db, o: Observed{Reason: NoKind,
			Detail: "the served versions of Widget.example.com are v1, v2"},
			want: "NoKind, the served versions of Widget.example.com are v1, v2"},
		{name: "no kind, no more", d: db, o: Observed{Reason: NoKind},
			want: "NoKind, the cluster does not serve this kind"},
		{name: "forbidden", d: db, o: Observed{Reason: Forbidden, Detail: "the right to list widgets is missing"},
			want: "Forbidden, the right to list widgets is missing"},
		{name: "forbidden, no more", d: db, o: Observed{Reason: Forbidden}, want: "Forbidden, opgate may not read it"},
		{name: "not read", d: db, o: Observed{Reason: NotRead},
			want: "NotRead, it has not been read yet, undecided, unread"},
		{name: "cannot be read", d: db, o: Observed{Reason: NotRead, Detail: "its webhook is down"},
			want: "NotRead, its webhook is down, undecided"},
		{name: "ConstraintTemplate there", d: gk, o: seen(Compliant), want: "met"},
		{name: "ConstraintTemplate there, and not wanted", d: wanting(gk, NonCompliant), o: seen(Compliant),
			want: "WrongState, it is Compliant, want NonCompliant"},
		{name: "ConstraintTemplate not there, as wanted", d: wanting(gk, NonCompliant), o: Observed{Reason: NotFound},
			want: "met"},
		{name: "ConstraintTemplate not there", d: gk, o: Observed{Reason: NotFound}, want: "NotFound"},
		{name: "no Gatekeeper", d: wanting(gk, NonCompliant), o: Observed{Reason: NoKind},
			want: "NoKind, the cluster does not serve this kind"},
		{name: "anything else not there, and not wanted", d: wanting(db, NonCompliant), o: Observed{Reason: NotFound},
			want: "NotFound"},
		{name: "not audited", d: audit, o: Observed{}, want: "NoStatus, it has no status.totalViolations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Evaluate(c.d, c.o)
			got := "met"
			if !f.Met {
				got = f.says()
			}
			if f.Undecided {
				got += ", undecided"
			}
			if f.Unread {
				got += ", unread"
			}
			if got != c.want || f.Met == (f.Reason != "") {
				t.Errorf("got %q, want %q: %+v", got, c.want, f)
			}
		})
	}
	if f := Evaluate(db, Observed{Reason: NoKind, Detail: strings.Repeat("x\n", 5000)}); len(f.Text) > 500 ||
		strings.Contains(f.Text, "\n") {
		t.Errorf("%d bytes", len(f.Text))
	}
}

func TestSettled(t *testing.T) {
	met, no, open := Result{Met: true}, Result{Reason: NotFound}, Result{Reason: Stale, Undecided: true}
	for _, c := range []struct {
		name         string
		results      []Result
		met, decided bool
	}{
		{name: "none", met: true, decided: true},
		{name: "met", results: []Result{met, met}, met: true, decided: true},
		{name: "one is not", results: []Result{met, no}, decided: true},
		{name: "one may be", results: []Result{met, open}},
		{name: "one may be and one is not", results: []Result{open, no}, decided: true},
		{name: "one is not and one may be", results: []Result{no, open}, decided: true},
	} {
		if gotMet, gotDecided := AllMet(c.results); gotMet != c.met || gotDecided != c.decided {
			t.Errorf("%s: %t, %t", c.name, gotMet, gotDecided)
		}
	}
}

func TestPendingText(t *testing.T) {
	x, db := dep("ConfigurationPolicy", "x", Compliant), dep("Policy", "db", Compliant)
	wrong := Evaluate(db, Observed{State: NonCompliant})
	gone := Evaluate(x, Observed{Reason: NotFound})
	met := Evaluate(dep("Policy", "fine", Compliant), Observed{State: Compliant})
	many := []Result{met}
	for i := range 8 {
		many = append(many, Evaluate(dep("Policy", fmt.Sprint("p", 9-i), Compliant), Observed{Reason: NotFound}))
	}
	for _, c := range []struct {
		name    string
		results []Result
		cycle   []Ref
		ignored bool
		want    string
	}{
		{name: "one", results: []Result{met, wrong},
			want: "Dependencies were not satisfied: 1 is still pending (Policy shop/db: WrongState, it is NonCompliant, want Compliant)"},
		{name: "two, sorted", results: []Result{wrong, met, gone},
			want: "Dependencies were not satisfied: 2 are still pending (ConfigurationPolicy shop/x: NotFound, Policy shop/db: WrongState, it is NonCompliant, want Compliant)"},
		{name: "many", results: many,
			want: "Dependencies were not satisfied: 8 are still pending (Policy shop/p2: NotFound, Policy shop/p3: NotFound, Policy shop/p4: NotFound, Policy shop/p5: NotFound, Policy shop/p6: NotFound and 3 more)"},
		{name: "ignored", results: []Result{gone}, ignored: true,
			want: "Dependencies were not satisfied: 1 is still pending (ConfigurationPolicy shop/x: NotFound) but ignorePending is true"},
		{name: "a cycle", results: []Result{gone}, cycle: []Ref{app(), db.Ref, app()},
			want: "Dependencies were not satisfied: 1 is still pending (ConfigurationPolicy shop/x: NotFound); they wait for one another: Policy shop/app -> Policy shop/db -> Policy shop/app"},
	} {
		if got := PendingText(c.results, c.cycle, c.ignored); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}
