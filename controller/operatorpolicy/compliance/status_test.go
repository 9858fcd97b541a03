package compliance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// finishing is the input of a musthave policy, as far as Finish reads it.
func finishing() *Input {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name, op.UID, op.Generation = "policies", "etcd", "uid-policy", 3
	op.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "policy.open-cluster-management.io/v1", Kind: "Policy", Name: "default.etcd",
			UID: types.UID("uid-owner")}, {Kind: "Other"},
	}
	op.Spec = policyv1beta2.OperatorPolicySpec{ComplianceType: policyv1beta2.MustHave,
		Subscription: policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop"}}
	return &Input{Policy: op, Rules: rules.NewOperatorPolicy(op), Now: noon}
}

// good are compliant conditions whose messages contain their type.
func good() []Condition {
	var conditions []Condition
	for _, a := range aggregatedTypes {
		conditions = append(conditions, Condition{Type: a.conditionType, Status: a.good, Reason: "Good",
			Message: "good " + a.conditionType})
	}
	return conditions
}

// saying changes the condition of a type.
func saying(conditions []Condition, conditionType string, status metav1.ConditionStatus, message string) []Condition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			conditions[i].Status, conditions[i].Message = status, message
		}
	}
	return conditions
}

func without(conditions []Condition, conditionType string) []Condition {
	var rest []Condition
	for _, f := range conditions {
		if f.Type != conditionType {
			rest = append(rest, f)
		}
	}
	return rest
}

// later copies a status, after a round trip through storage, to an evaluation some time later.
func later(t *testing.T, in *Input, status policyv1beta2.OperatorPolicyStatus, by time.Duration) *Input {
	t.Helper()
	raw, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	next := *in
	next.Policy = in.Policy.DeepCopy()
	next.Policy.Status = policyv1beta2.OperatorPolicyStatus{}
	if err := json.Unmarshal(raw, &next.Policy.Status); err != nil {
		t.Fatal(err)
	}
	next.Now = in.Now.Add(by)
	return &next
}

func relatedTo(kind, name, uid string) policyv1beta2.RelatedObject {
	in := &Input{Policy: &policyv1beta2.OperatorPolicy{}}
	return in.related(kind, olm.ObjectMeta{Namespace: "shop", Name: name, UID: uid}, policyv1beta2.Compliant,
		relatedFound)
}

func TestFinishWholeStatus(t *testing.T) {
	in := finishing()
	in.Overlaps = []string{"etcd.policies", "other.policies"}
	stuck := metav1.NewTime(noon.Add(30 * time.Second))
	status, event := Finish(in,
		Outcome{Conditions: []Condition{{Type: TypeValidPolicySpec, Status: metav1.ConditionFalse,
			Reason: "InvalidPolicySpec", Message: "no"}},
			Intervention: &stuck, InstalledVersion: "etcd.v0.9.4"}, 10)
	at := metav1.NewTime(noon.Truncate(time.Second))
	until := metav1.NewTime(at.Add(30 * time.Second))
	want := policyv1beta2.OperatorPolicyStatus{
		Compliant: policyv1beta2.NonCompliant, ObservedGeneration: 3,
		Conditions: []metav1.Condition{
			{Type: TypeCompliant, Status: metav1.ConditionFalse, Reason: "NonCompliant", Message: "NonCompliant; no",
				LastTransitionTime: at},
			{Type: TypeValidPolicySpec, Status: metav1.ConditionFalse, Reason: "InvalidPolicySpec", Message: "no",
				LastTransitionTime: at},
		},
		RelatedObjects: []policyv1beta2.RelatedObject{}, ResolvedSubscriptionLabel: "etcd.shop",
		OverlappingPolicies:          in.Overlaps,
		SubscriptionInterventionTime: &until, InstalledVersion: "etcd.v0.9.4",
		History: []policyv1beta2.HistoryEvent{{LastTimestamp: metav1.NewMicroTime(noon.Truncate(time.Microsecond)),
			Message: "NonCompliant; no"}},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&Event{Message: "NonCompliant; no", Type: "Warning", Time: noon}, event); diff != "" {
		t.Error(diff)
	}
}

func TestFinishTransitionTimes(t *testing.T) {
	in := finishing()
	first, _ := Finish(in, Outcome{Conditions: good()}, 10)
	began := metav1.NewTime(noon.Truncate(time.Second))
	olms := metav1.NewTime(noon.Add(-time.Hour).Truncate(time.Second))
	for name, c := range map[string]struct {
		edit func(*Condition)
		want metav1.Time
	}{
		"kept while nothing changes": {func(*Condition) {}, began},
		"moved by the status": {func(f *Condition) { f.Status = metav1.ConditionFalse },
			metav1.NewTime(began.Add(time.Minute))},
		"moved by the reason": {func(f *Condition) { f.Reason = "Other" },
			metav1.NewTime(began.Add(time.Minute))},
		"moved by the message": {func(f *Condition) { f.Message = "other" },
			metav1.NewTime(began.Add(time.Minute))},
		"OLM's, where a change is OLM's":  {func(f *Condition) { f.Message, f.Since = "other", olms }, olms},
		"kept, though OLM wrote its anew": {func(f *Condition) { f.Since = olms }, began},
		"moved where the reason is no use": {func(f *Condition) { f.Reason = "" },
			metav1.NewTime(began.Add(time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := good()
			c.edit(&conditions[2])
			status, _ := Finish(later(t, in, first, time.Minute), Outcome{Conditions: conditions}, 10)
			got := meta.FindStatusCondition(status.Conditions, TypeSubscription)
			if !got.LastTransitionTime.Equal(&c.want) {
				t.Errorf("%s, want %s", got.LastTransitionTime, c.want)
			}
			if got.Reason == "" {
				t.Error("the API server refuses an empty reason")
			}
		})
	}
}

func TestFinishDropsWhatNoFindingCovers(t *testing.T) {
	in := finishing()
	in.Policy.Status.Conditions = []metav1.Condition{{Type: "CatalogSourcesUnknownState", Status: metav1.ConditionTrue,
		Message: "stale"}}
	in.Policy.Status.RelatedObjects = []policyv1beta2.RelatedObject{relatedTo("Stale", "stale", "1"),
		relatedTo(kindDeployment, "old", "2"), relatedTo(kindOperatorGroup, "kept", "3")}
	conditions := good()
	conditions[1].KeepRelated = true
	status, _ := Finish(in, Outcome{Conditions: conditions}, 10)
	if meta.FindStatusCondition(status.Conditions, "CatalogSourcesUnknownState") != nil {
		t.Error("a stale condition is left (R-ST-8)")
	}
	if diff := cmp.Diff([]policyv1beta2.RelatedObject{relatedTo(kindOperatorGroup, "kept", "3")},
		status.RelatedObjects); diff != "" {
		t.Error(diff)
	}
	if raw, err := json.Marshal(status); err != nil || strings.Contains(string(raw), "stale") {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestFinishHasOneConditionOfAType(t *testing.T) {
	conditions := append(good(), Condition{Type: TypeSubscription, Status: metav1.ConditionTrue, Reason: "Later",
		Message: "later"})
	status, _ := Finish(finishing(), Outcome{Conditions: conditions}, 10)
	seen := map[string]string{}
	for _, c := range status.Conditions {
		if seen[c.Type] != "" {
			t.Errorf("two conditions of type %s", c.Type)
		}
		seen[c.Type] = c.Reason
	}
	if seen[TypeSubscription] != "Later" {
		t.Errorf("%s counts", seen[TypeSubscription])
	}
}

// TestFinishRelatedObjects: an object that the policy created is recorded as such by its annotation, and by the status,
// for the object of this name and UID alone.
func TestFinishRelatedObjects(t *testing.T) {
	mark := func(r policyv1beta2.RelatedObject) policyv1beta2.RelatedObject {
		r.Properties.CreatedByPolicy = new(true)
		return r
	}
	in := finishing()
	in.Policy.UID, in.Key = "uid-policy", []byte("key")
	in.Policy.Status.RelatedObjects = []policyv1beta2.RelatedObject{
		mark(relatedTo(kindSubscription, "same", "1")), mark(relatedTo(kindSubscription, "anew", "2")),
		mark(relatedTo(kindOperatorGroup, "named", "1")),
	}
	related := func(kind, name, uid, by string) policyv1beta2.RelatedObject {
		return in.related(kind, olm.ObjectMeta{Namespace: "shop", Name: name, UID: uid,
			Annotations: olm.Annotations{CreatedBy: by}}, policyv1beta2.Compliant, relatedFound)
	}
	conditions := good()
	conditions[2].Related = []policyv1beta2.RelatedObject{related(kindSubscription, "same", "1", ""),
		related(kindSubscription, "anew", "3", ""), related(kindSubscription, "a", "4", "uid-policy")}
	conditions[1].Related = []policyv1beta2.RelatedObject{related(kindOperatorGroup, "same", "1",
		createdMark(kindOperatorGroup, olm.ObjectMeta{Namespace: "shop", Name: "same"}, "targetNamespaces")),
		related(kindOperatorGroup, "named", "", "")}
	status, _ := Finish(in, Outcome{Conditions: conditions}, 10)
	want := []policyv1beta2.RelatedObject{
		relatedTo(kindOperatorGroup, "named", ""), mark(relatedTo(kindOperatorGroup, "same", "1")),
		relatedTo(kindSubscription, "a", "4"), relatedTo(kindSubscription, "anew", "3"),
		mark(relatedTo(kindSubscription, "same", "1")),
	}
	if diff := cmp.Diff(want, status.RelatedObjects); diff != "" {
		t.Error(diff)
	}
}

func TestFinishEventsAndHistory(t *testing.T) {
	in := finishing()
	first, _ := Finish(in, Outcome{Conditions: good()}, 10)
	changed := saying(good(), TypeDeployment, metav1.ConditionFalse, "down")
	for name, c := range map[string]struct {
		edit       func(*Input)
		conditions []Condition
		event      string
		history    int
	}{
		"nothing changed":           {func(*Input) {}, good(), "", 1},
		"the message changed":       {func(*Input) {}, changed, "Warning", 2},
		"the policy was changed":    {func(in *Input) { in.Policy.Generation++ }, good(), "Normal", 1},
		"11.3 compliance was reset": {func(in *Input) { in.Policy.Status.Compliant = "" }, good(), "Normal", 1},
		"the history was lost": {func(in *Input) { in.Policy.Status.History, in.Policy.Generation = nil, 9 },
			good(), "Normal", 1},
		"only a related object is new": {func(*Input) {}, func() []Condition {
			f := good()
			f[1].Related = []policyv1beta2.RelatedObject{{}}
			return f
		}(), "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			next := later(t, in, first, time.Minute)
			c.edit(next)
			status, event := Finish(next, Outcome{Conditions: c.conditions}, 10)
			got := ""
			if event != nil {
				got = event.Type
				if event.Message != meta.FindStatusCondition(status.Conditions, TypeCompliant).Message ||
					!event.Time.Equal(next.Now) {
					t.Errorf("event %+v", event)
				}
			}
			if got != c.event || len(status.History) != c.history {
				t.Errorf("event %q and %d entries, want %q and %d", got, len(status.History), c.event, c.history)
			}
			if status.History[0].Message != meta.FindStatusCondition(status.Conditions, TypeCompliant).Message {
				t.Errorf("newest entry: %s", status.History[0].Message)
			}
		})
	}
	t.Run("a message that passes is an event, and not kept", func(t *testing.T) {
		in, events := finishing(), 0
		for i := range 7 {
			status, event := Finish(in,
				Outcome{Conditions: saying(good(), TypeDeployment, metav1.ConditionFalse, fmt.Sprint("step ", i))}, 10)
			if event != nil {
				events++
			}
			in = later(t, in, status, time.Second)
		}
		if history := in.Policy.Status.History; events != 7 || len(history) != 2 ||
			!strings.Contains(history[0].Message, "step 6") {
			t.Errorf("%d events and %d entries, want 7 and 2", events, len(history))
		}
	})
	t.Run("the history has a length", func(t *testing.T) {
		for _, most := range []int{2, 3, 10} {
			in := finishing()
			for i := range 15 {
				status, _ := Finish(in, Outcome{Conditions: saying(good(), TypeDeployment, metav1.ConditionTrue,
					fmt.Sprint("turn ", i))}, most)
				in = later(t, in, status, time.Minute)
			}
			history := in.Policy.Status.History
			if len(history) != most || !strings.Contains(history[0].Message, "turn 14") ||
				!strings.Contains(history[1].Message, "turn 13") {
				t.Errorf("most %d: %d entries, newest %q", most, len(history), history[0].Message)
			}
		}
	})
}

// TestFinishIsIdempotent: on its own result, stored or not, Finish changes nothing and reports nothing (R-ST-5).
func TestFinishIsIdempotent(t *testing.T) {
	texts := []string{"", "fine", "\xff broken", strings.Repeat("ü", 3000), strings.Repeat("x", 40000),
		"the operator namespace is gone", "a; b, c"}
	for seed := range uint64(cases.Of(400)) {
		r := rand.New(rand.NewPCG(seed, 2))
		conditions := func() []Condition {
			var conditions []Condition
			for _, a := range aggregatedTypes {
				if r.IntN(8) == 0 {
					continue
				}
				f := Condition{Type: a.conditionType, Status: a.good, Reason: []string{"Good", "", "not good"}[r.IntN(3)],
					Message: texts[r.IntN(len(texts))]}
				if r.IntN(3) == 0 {
					f.Status = []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse,
						metav1.ConditionUnknown}[r.IntN(3)]
				}
				if r.IntN(4) == 0 {
					f.Since = metav1.NewTime(noon.Add(-time.Duration(r.IntN(1e9))))
				}
				if kindOf[f.Type] != "" {
					f.KeepRelated = r.IntN(3) == 0
					for range r.IntN(3) {
						f.Related = append(f.Related,
							relatedTo(kindOf[f.Type], fmt.Sprint(r.IntN(3)), []string{"", "1", "2"}[r.IntN(3)]))
					}
				}
				conditions = append(conditions, f)
			}
			return conditions
		}
		in := finishing()
		in.Overlaps = []string{}
		for range 3 {
			out := Outcome{Conditions: conditions()}
			status, _ := Finish(in, out, 1+r.IntN(3))
			message := meta.FindStatusCondition(status.Conditions, TypeCompliant).Message
			if len(message) > messageLength || !utf8.ValidString(message) ||
				!strings.HasPrefix(message, string(status.Compliant)+"; ") {
				t.Fatalf("seed %d: %d bytes: %.40q", seed, len(message), message)
			}
			in = later(t, in, status, time.Minute)
			again, event := Finish(in, out, len(status.History))
			if diff := cmp.Diff(in.Policy.Status, again); diff != "" || event != nil {
				t.Fatalf("seed %d: event %v, %s", seed, event, diff)
			}
		}
	}
}
