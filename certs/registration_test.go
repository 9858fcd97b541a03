package certs

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

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

// of returns a registration with these entries.
func of(t *testing.T, entries []webhooks.Entry) *registration {
	t.Helper()
	k := &Controller{options: Options{Client: dynamic.NewForConfigOrDie(&rest.Config{Host: "127.0.0.1:1"})}}
	return k.newRegistration(schema.GroupVersionKind{Kind: "ValidatingWebhookConfiguration"}, "opgate", "validate",
		entries)
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
			u, r := completed(t, &wanted[0]), of(t, wanted)
			entry := u.Object["webhooks"].([]any)[1].(map[string]any)
			want := runtime.DeepCopyJSONValue(entry[field])
			if changed, _ := r.setFields(u); len(changed) > 0 {
				t.Errorf("nothing changed: %q", changed)
			}
			entry[field] = value
			changed, _ := r.setFields(u)
			if len(changed) != 1 || !reflect.DeepEqual(entry[field], want) ||
				!strings.HasPrefix(changed[0], field+" of subscriptions.opgate.io (it was ") {
				t.Errorf("%s of a %s entry is %v: %q", field, kind, entry[field], changed)
				continue
			}
			delete(entry, field)
			if changed, _ := r.setFields(u); len(changed) != 1 || !reflect.DeepEqual(entry[field], want) {
				t.Errorf("%s of a %s entry is removed: %q", field, kind, changed)
			}
		}
	}
}

// TestForeign tells what another client changed, of which an event is recorded, from what Opgate has not written yet:
// the entry was complete before.
func TestForeign(t *testing.T) {
	wanted := entries(t).Validating
	r, u := of(t, wanted), completed(t, &wanted[0])
	entry := u.Object["webhooks"].([]any)[1].(map[string]any)
	delete(entry, "rules")
	if changed, restored := r.setFields(u); len(changed) != 1 || len(restored) > 0 {
		t.Errorf("a release that was just applied: %q and %q", changed, restored)
	}
	if changed, restored := r.setFields(u); len(changed)+len(restored) > 0 {
		t.Errorf("nothing changed: %q and %q", changed, restored)
	}
	entry["rules"], entry["failurePolicy"] = []any{}, "Ignore"
	for range 2 { // another client does it again
		if changed, restored := r.setFields(u.DeepCopy()); len(changed) != 2 || !slices.Equal(restored, changed) {
			t.Errorf("another client changed fields: %q and %q", changed, restored)
		}
	}
}

// TestPathsOfEntriesWithoutRules derives paths before the rules are written: a webhook that took effect before it has a
// path would refuse everything. An entry that is not Opgate's has none.
func TestPathsOfEntriesWithoutRules(t *testing.T) {
	r := &registration{verb: "validate", Object: stored(t,
		`{"webhooks":[{"name":"installplans-status.opgate.io","clientConfig":{"service":{}}},{"name":"b","clientConfig":{"service":{}}}]}`)}
	endpoints := r.endpoints(r.Get())
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
	r := &registration{verb: "validate",
		Object: stored(t, `{"webhooks":[{"name":"a","clientConfig":{"url":"https://x","caBundle":`+string(encoded)+
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

// TestG12Selectors finds selectors by which who may label namespaces exempts them.
func TestG12Selectors(t *testing.T) {
	const shipped = `{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["opgate-system"]}`
	for _, test := range []struct {
		name, entry string
		want        bool
	}{
		{name: "as shipped", entry: `{"name":"a","namespaceSelector":{"matchExpressions":[` + shipped + `]}}`},
		{name: "of a kind without namespaces", entry: `{"name":"a"}`},
		{
			name: "an expression that AKS adds",
			entry: `{"name":"a","namespaceSelector":{"matchExpressions":[` + shipped +
				`,{"key":"control-plane","operator":"DoesNotExist"}]}}`,
			want: true,
		},
		{
			name:  "labels instead of the shipped expression",
			entry: `{"name":"b","namespaceSelector":{"matchLabels":{"judged":"yes"}}}`,
			want:  true,
		},
		{name: "an expression without a key", entry: `{"name":"a","namespaceSelector":{"matchExpressions":["x"]}}`,
			want: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			entry := map[string]any{}
			if err := json.Unmarshal([]byte(test.entry), &entry); err != nil {
				t.Fatal(err)
			}
			if got := selectsByLabel(entry); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestRegistrations reads the client configurations through which the API server calls us, and whom they are owned by.
func TestRegistrations(t *testing.T) {
	hook := map[string]any{"name": "a", "clientConfig": map[string]any{"service": map[string]any{}, "caBundle": "QQ=="},
		"rules": []any{}}
	bare := map[string]any{"name": "b", "clientConfig": map[string]any{"url": "https://x"}}
	got := clients(&unstructured.Unstructured{Object: map[string]any{"webhooks": []any{hook, bare}}})
	if len(got) != 2 || got[0]["caBundle"] != "QQ==" || got[1]["caBundle"] != nil {
		t.Errorf("read %+v", got)
	}
	definition := func(strategy string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": strategy,
			"webhook": map[string]any{"clientConfig": map[string]any{"caBundle": "QQ=="}}}}}}
	}
	if got := clients(definition("None")); got != nil {
		t.Errorf("a CRD without webhook gives %v", got)
	}
	if got := clients(definition("Webhook")); len(got) != 1 || got[0]["caBundle"] != "QQ==" {
		t.Errorf("a CRD with webhook gives %v", got)
	}
	for _, damaged := range []map[string]any{{}, {"webhooks": "x"}, {"webhooks": []any{"x"}}, {"spec": []any{}}} {
		_ = clients(&unstructured.Unstructured{Object: damaged})
	}
}

// TestOwner makes a namespace an owner of an object, beside the owners that it has, and takes it away.
func TestOwner(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "opgate"}}}
	u.SetOwnerReferences([]metav1.OwnerReference{{UID: "other"}})
	k := &Controller{options: Options{Namespace: "opgate-system"}}
	if k.setOwner(u) {
		t.Error("the owner is set though its UID is not known")
	}
	k.owner = "uid"
	if !k.setOwner(u) || k.setOwner(u) || len(u.GetOwnerReferences()) != 2 {
		t.Errorf("owners are %v", u.GetOwnerReferences())
	}
	k.options.Unowned = true
	if !k.setOwner(u) || k.setOwner(u) || len(u.GetOwnerReferences()) != 1 {
		t.Errorf("owners that remain are %v", u.GetOwnerReferences())
	}
}
