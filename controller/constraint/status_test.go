package constraint

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

var (
	earlier = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	later   = earlier.Add(time.Hour)
)

func two() *constraint.Definition {
	return &constraint.Definition{Name: "one", Generation: 3, Properties: make([]olm.Property, 3),
		Constraints: []*constraint.Constraint{{Index: 0, Message: "must be certified"}, {Index: 1}}}
}

// input is a Constraint of two constraints that is checked against 14 installed operators.
func input(change func(in *statusInput)) *statusInput {
	in := &statusInput{
		Object:     &constraintv1.Constraint{ObjectMeta: metav1.ObjectMeta{Name: "one", Generation: 3}},
		Definition: two(),
		Counts:     []constraintv1.ConstraintCount{{Index: 0, Satisfied: 14}, {Index: 1, Satisfied: 11, Violating: 1, Unknown: 2}},
		Installed:  14,
		Violators: []constraintv1.ConstraintViolator{{Namespace: "shop", ClusterServiceVersion: "etcd.v0.9.2",
			Message: "it must satisfy version"}},
		Now: earlier,
	}
	if change != nil {
		change(in)
	}
	return in
}

func faulty(faults ...constraint.Fault) func(in *statusInput) {
	return func(in *statusInput) { in.Definition.Faults = faults }
}

func asking(wanted, made, missing int, writeErrors map[string]int) func(in *statusInput) {
	return func(in *statusInput) {
		in.Operator = &virtual.Operator{Constraint: "one", Name: "opgate-properties-one"}
		in.Wanted, in.Made, in.Missing, in.WriteErrors = wanted, made, missing, writeErrors
	}
}

func TestConditions(t *testing.T) {
	const valid = "Ready=True Valid: 2 constraints, 3 properties, 14 installed operators, 1 violation, 2 not decided"
	fault := constraint.Fault{Kind: constraint.Rule, Path: "spec.constraints[0].value.rule", Value: "1 +",
		Message: "does not compile"}
	for _, tc := range []struct {
		name   string
		change func(in *statusInput)
		want   []string
	}{
		{"valid", nil, []string{valid}},
		{"one of each", func(in *statusInput) {
			in.Definition.Constraints, in.Definition.Properties = in.Definition.Constraints[:1],
				in.Definition.Properties[:1]
			in.Counts, in.Installed = []constraintv1.ConstraintCount{{Satisfied: 1}}, 1
		}, []string{"Ready=True Valid: 1 constraint, 1 property, 1 installed operator, 0 violations"}},
		{"properties only", func(in *statusInput) { in.Definition.Constraints, in.Counts = nil, nil },
			[]string{"Ready=True Valid: 0 constraints, 3 properties"}},
		{"protects", func(in *statusInput) {
			in.Definition.Constraints, in.Counts = nil, nil
			in.Definition.Deletion = &constraint.Deletion{Action: policyv1beta2.DeletionDeny}
		}, []string{"Ready=True Valid: 0 constraints, 3 properties, deletion Deny"}},
		{"faulty", faulty(fault),
			[]string{`Ready=False Invalid: every installation and upgrade is held until this is corrected: spec.constraints[0].value.rule (1 +) does not compile`}},
		{"many faults", faulty(fault, fault, fault, fault, fault),
			[]string{"Ready=False Invalid: every installation and upgrade is held until this is corrected: " +
				strings.Repeat(`spec.constraints[0].value.rule (1 +) does not compile; `, 3) + "and 2 more"}},
		{"ineffective is no fault", faulty(constraint.Fault{Kind: constraint.Ineffective, Message: "stands alone"}),
			[]string{valid}},
		{"shown", asking(2, 2, 0, nil),
			[]string{valid, "VirtualOperators=True Current: the selector names 2 namespaces with Subscriptions, and OLM is shown the properties there"}},
		{"the selector names nothing", asking(0, 0, 0, nil), []string{valid,
			"VirtualOperators=True Current: the selector names no namespace with a Subscription, so OLM is shown the properties nowhere"}},
		{"still to be made", asking(2, 1, 1, nil),
			[]string{valid, "VirtualOperators=False Pending: in 1 of 2 namespaces ClusterServiceVersion opgate-properties-one is still to be made"}},
		{"name taken", asking(3, 2, 1, map[string]int{nameTaken: 1}),
			[]string{valid, "VirtualOperators=False NameTaken: in 1 of 3 namespaces there is another ClusterServiceVersion " +
				"opgate-properties-one, without label opgate.io/virtual-operator, which is left alone: delete or rename it"}},
		{"refused", asking(3, 1, 2, map[string]int{"Forbidden": 1, "Invalid": 1}), []string{valid,
			"VirtualOperators=False NotWritten: in 2 of 3 namespaces ClusterServiceVersion opgate-properties-one could not be written, it is tried again: Forbidden, Invalid"}},
		{"problem", func(in *statusInput) {
			in.Operator = &virtual.Operator{Problem: &virtual.Problem{Reason: virtual.ReasonTooLarge,
				Message: "it is too large"}}
		}, []string{valid, "VirtualOperators=False TooLarge: it is too large"}},
		{"not asked for any more", func(in *statusInput) {
			in.Object.Status.Conditions = []metav1.Condition{{Type: constraintv1.ConditionVirtualOperators,
				Status: metav1.ConditionTrue}}
		}, []string{valid}},
		{"suspended", func(in *statusInput) { in.Definition.Pending = "policies/guards" }, []string{valid,
			"DependenciesSatisfied=False DependencyPending: the Constraint waits for what Policy policies/guards depends on; until then it holds every installation and upgrade where it applies"}},
		{"not suspended any more", func(in *statusInput) {
			in.Object.Status.Conditions = []metav1.Condition{{Type: dependency.ConditionDependencies,
				Status: metav1.ConditionFalse}}
		}, []string{valid}},
		{"conditions of others stay", func(in *statusInput) {
			in.Object.Status.Conditions = []metav1.Condition{{Type: "Reviewed", Status: metav1.ConditionTrue,
				Reason: "ByHand"}}
		}, []string{"Reviewed=True ByHand: ", valid}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, c := range evaluate(input(tc.change)).Conditions {
				got = append(got, c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	got := evaluate(input(nil))
	want := constraintv1.ConstraintStatus{ObservedGeneration: 3, EvaluatedGeneration: 3, Violating: 1,
		Compliant: "NonCompliant", Conditions: got.Conditions, Constraints: []constraintv1.ConstraintCount{
			{Index: 0, Message: "must be certified", Satisfied: 14}, {Index: 1, Satisfied: 11, Violating: 1, Unknown: 2}},
		Violators: []constraintv1.ConstraintViolator{{Namespace: "shop", ClusterServiceVersion: "etcd.v0.9.2",
			Message: "it must satisfy version"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestCompliant checks what a Policy reads that applies the Constraint or depends on it.
func TestCompliant(t *testing.T) {
	counted := func(counts ...constraintv1.ConstraintCount) func(in *statusInput) {
		return func(in *statusInput) {
			in.Definition.Constraints, in.Counts = in.Definition.Constraints[:len(counts)], counts
		}
	}
	for _, tc := range []struct {
		name   string
		change func(in *statusInput)
		want   string
	}{
		{"satisfied", counted(constraintv1.ConstraintCount{Satisfied: 2}), "Compliant"},
		{"asks for nothing", counted(), "Compliant"},
		{"violated", counted(constraintv1.ConstraintCount{Violating: 1}, constraintv1.ConstraintCount{Unknown: 1}), "NonCompliant"},
		{"not decided is not compliant", counted(constraintv1.ConstraintCount{Satisfied: 2, Unknown: 1}), ""},
		{"faulty", faulty(constraint.Fault{Kind: constraint.Syntax, Message: "is not JSON"}), "NonCompliant"},
		{"suspended", func(in *statusInput) { in.Definition.Pending = "policies/guards" }, "Pending"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := evaluate(input(tc.change)).Compliant; got != tc.want {
				t.Errorf("compliant is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCountsOfAFaultyConstraintStayThoseOfBefore(t *testing.T) {
	before := evaluate(input(nil))
	after := evaluate(input(func(in *statusInput) {
		in.Object.Status, in.Definition.Generation, in.Now = before, 4, later
		in.Definition.Constraints, in.Counts = nil, nil
		in.Definition.Faults = []constraint.Fault{{Kind: constraint.Syntax, Path: "spec.constraints",
			Message: "is not JSON"}}
	}))
	if after.ObservedGeneration != 4 || after.EvaluatedGeneration != 3 || after.Violating != 1 ||
		len(after.Constraints) != 2 || len(after.Violators) != 1 {
		t.Errorf("got %+v", after)
	}
	if at := after.Conditions[0].LastTransitionTime; !at.Time.Equal(later) ||
		after.Conditions[0].ObservedGeneration != 4 {
		t.Errorf("condition %+v", after.Conditions[0])
	}
}

func TestUnchangedInputGivesTheSameStatus(t *testing.T) {
	for name, change := range map[string]func(in *statusInput){
		"valid":   nil,
		"faulty":  faulty(constraint.Fault{Kind: constraint.Syntax, Message: "is not JSON"}),
		"shown":   asking(2, 2, 0, nil),
		"refused": asking(3, 1, 2, map[string]int{"Forbidden": 1, "Invalid": 1, "Timeout": 1}),
		"empty":   func(in *statusInput) { in.Definition.Constraints, in.Counts = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			before := evaluate(input(change))
			in := input(change)
			in.Object.Status, in.Now = before, later
			if after := evaluate(in); !equality.Semantic.DeepEqual(before, after) {
				t.Errorf("-before +after\n%s", cmp.Diff(before, after))
			}
		})
	}
}

func TestAttackLongTextsOfOthersAreCut(t *testing.T) {
	long := strings.Repeat("é", 40_000)
	status := evaluate(input(func(in *statusInput) { in.Definition.Constraints[0].Message = long }))
	if got := status.Constraints[0].Message; len(got) > 1100 || strings.ToValidUTF8(got, "?") != got {
		t.Errorf("%d bytes", len(got))
	}
	f := constraint.Fault{Path: "spec.constraints", Message: long}
	status = evaluate(input(faulty(f, f, f, f)))
	if got := status.Conditions[0].Message; len(got) > 4000 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestExceptions: the status reports an exception until its end and from then on that it has ended, also to a leader
// whose clock is behind.
func TestExceptions(t *testing.T) {
	object := &constraintv1.Constraint{ObjectMeta: metav1.ObjectMeta{Name: "one", Generation: 3}}
	object.Spec.Constraints = `[{"type":"olm.constraint","value":{"rule":"true"}}]`
	object.Spec.Exceptions = []constraintv1.Exception{{Versions: []string{"etcd.v0.9.4"}, Reason: "CVE-2026-1234",
		Expires: later.Format(time.RFC3339)}}
	lead := func(now time.Time) string {
		object.Status = evaluate(&statusInput{Object: object, Definition: rules.NewDefinition(object, nil), Now: now})
		for _, c := range object.Status.Conditions {
			if c.Type == operatorpolicy.ConditionExceptions {
				return string(c.Status) + " " + c.Reason
			}
		}
		return ""
	}
	for _, step := range []struct {
		now   time.Time
		want  string
		ended int
	}{
		{later.Add(-15 * 24 * time.Hour), "True ExceptionsInForce", 0},
		{earlier, "True ExceptionEndsSoon", 0},
		{later, "False ExceptionEnded", 1},
		{later.Add(-time.Minute), "False ExceptionEnded", 1}, // another leader
	} {
		if got := lead(step.now); got != step.want || len(object.Status.EndedExceptions) != step.ended {
			t.Errorf("at %s: %s, %d have ended, want %s, %d", step.now, got, len(object.Status.EndedExceptions),
				step.want, step.ended)
		}
	}
	object.Spec.Exceptions = nil
	if got := lead(later); got != "" || len(object.Status.EndedExceptions) > 0 {
		t.Errorf("without exceptions: %s, %v", got, object.Status.EndedExceptions)
	}
}
