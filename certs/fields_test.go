package certs

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/admission/webhooks"
)

// entries are those of an installation.
func entries(t *testing.T) webhooks.Configurations {
	t.Helper()
	c, err := webhooks.New(webhooks.Settings{OLM: "olm", FailurePolicy: admissionregistrationv1.Fail, TimeoutSeconds: 5})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// completed returns a webhook configuration with an entry as Opgate leaves it, and one of another program.
func completed(t *testing.T, entry *webhooks.Entry) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(entry)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.Object["webhooks"] = []any{map[string]any{"name": "another.example.com"}, fields}
	return u
}

// ownedBy has a client own fields of the first entry for Subscriptions.
func ownedBy(u *unstructured.Unstructured, manager string, fields ...string) {
	owned := map[string]any{}
	for _, field := range fields {
		owned["f:"+field] = map[string]any{}
	}
	raw, _ := json.Marshal(map[string]any{"f:webhooks": map[string]any{`k:{"name":"subscriptions.opgate.io"}`: owned}})
	u.SetManagedFields(append(u.GetManagedFields(),
		metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: &metav1.FieldsV1{Raw: raw}}))
}

// TestChangedFields: each field of an entry that another client changes or removes is set back, and those that are
// written elsewhere are not.
func TestChangedFields(t *testing.T) {
	all := entries(t)
	selector := map[string]any{"matchLabels": map[string]any{"exempt": "yes"}}
	for field, value := range map[string]any{
		"rules":                   []any{},
		"failurePolicy":           "Ignore",
		"timeoutSeconds":          int64(1),
		"objectSelector":          selector,
		"matchConditions":         []any{map[string]any{"name": "never", "expression": "false"}},
		"matchPolicy":             "Exact",
		"reinvocationPolicy":      "Never",
		"sideEffects":             "NoneOnDryRun",
		"admissionReviewVersions": []any{"v1beta1"},
	} {
		for kind, wanted := range map[string][]webhooks.Entry{"mutating": all.Mutating, "validating": all.Validating} {
			if field == "reinvocationPolicy" && kind == "validating" {
				continue
			}
			u := completed(t, &wanted[0])
			entry := u.Object["webhooks"].([]any)[1].(map[string]any)
			if changes := changedFields(u, wanted); len(changes) > 0 {
				t.Errorf("nothing changed: %+v", changes)
			}
			entry[field] = value
			changes := changedFields(u, wanted)
			if len(changes) != 1 || changes[0].Path != "/webhooks/1/"+field ||
				!strings.HasPrefix(changes[0].text, field+" of subscriptions.opgate.io (it was ") {
				t.Errorf("%s of a %s entry: %+v", field, kind, changes)
				continue
			}
			delete(entry, field)
			if changes := changedFields(u, wanted); len(changes) != 1 {
				t.Errorf("%s of a %s entry is removed: %+v", field, kind, changes)
			}
		}
	}
	if changes := changedFields(nil, all.Mutating); changes != nil {
		t.Errorf("the object does not exist: %+v", changes)
	}
}

// TestForeign tells what another client changed, of which an event is recorded, from what Opgate has not written yet.
func TestForeign(t *testing.T) {
	wanted := entries(t).Validating
	for name, test := range map[string]struct {
		own, others []string
		want        bool
	}{
		"a release that was just applied":             {others: []string{"clientConfig", "sideEffects"}},
		"the release before had another value":        {own: []string{"rules", "matchConditions"}},
		"the release before had rules alone":          {own: []string{"clientConfig"}},
		"another client changed the field":            {own: []string{"matchConditions"}, others: []string{"rules"}, want: true},
		"another client removed the field":            {own: []string{"matchConditions"}, want: true},
		"another client changed others, too":          {own: []string{"matchPolicy"}, others: []string{"failurePolicy"}, want: true},
		"another client changed it before completion": {others: []string{"rules"}, want: true},
	} {
		u := completed(t, &wanted[0])
		u.Object["webhooks"].([]any)[1].(map[string]any)["rules"] = []any{}
		ownedBy(u, bundleManager, test.own...)
		ownedBy(u, "kubectl-edit", test.others...)
		if changes := changedFields(u, wanted); len(changes) != 1 || changes[0].foreign != test.want {
			t.Errorf("%s: %+v", name, changes)
		}
	}
}

// TestPathsOfEntriesWithoutRules derives paths before the rules are written: a webhook that took effect before it has a
// path would refuse everything. An entry that is not Opgate's has none.
func TestPathsOfEntriesWithoutRules(t *testing.T) {
	r := &registration{verb: "validate", object: stored(t,
		`{"webhooks":[{"name":"installplans-status.opgate.io","clientConfig":{"service":{}}},{"name":"b","clientConfig":{"service":{}}}]}`)}
	endpoints := r.endpoints()
	if len(endpoints) != 1 || endpoints[0].expected != "/validate/installplans-status" {
		t.Errorf("got %+v", endpoints)
	}
}

// TestAnswers wants no rules to be written before the replica has been ready.
func TestAnswers(t *testing.T) {
	ready := make(chan struct{})
	source, bundle, err := SelfSigned("localhost")
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(bundle)
	if err != nil {
		t.Fatal(err)
	}
	r := &registration{verb: "validate", bundles: entryBundles,
		object: stored(t, `{"webhooks":[{"name":"a","clientConfig":{"url":"https://x","caBundle":`+string(encoded)+
			`}}]}`)}
	l := &Controller{options: Options{Ready: ready, Now: time.Now}, source: source}
	if l.answers(r) {
		t.Error("it answers before it has been ready")
	}
	close(ready)
	if !l.answers(r) {
		t.Error("it does not answer once it has been ready")
	}
	if l.source, _, err = SelfSigned("localhost"); err != nil {
		t.Fatal(err)
	}
	if l.answers(r) {
		t.Error("it answers though its certificate is not trusted")
	}
}
