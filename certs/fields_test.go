package certs

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestChangedRules compares the rules of entries with those in the annotation.
func TestChangedRules(t *testing.T) {
	const shipped = `{"metadata":{"name":"opgate","annotations":{"opgate.io/webhook-rules":` +
		`"a: [{apiGroups: [g], apiVersions: ['*'], resources: [r], operations: [CREATE]}]\nempty: []"}},"webhooks":[%]}`
	const has = `"rules":[{"apiGroups":["g"],"apiVersions":["*"],"resources":["r"],"operations":["CREATE"],"scope":"*"}]`
	for _, test := range []struct {
		name, object string
		want         string // the path and the resource of the first rule, for each operation
		err          string
	}{
		{name: "an entry without rules", object: strings.Replace(shipped, "%", `{"name":"a"}`, 1),
			want: "/webhooks/0/rules r"},
		{name: "an entry with its rules", object: strings.Replace(shipped, "%", `{"name":"a",`+has+`}`, 1)},
		{
			name: "an entry with fewer operations than it is shipped with",
			object: strings.Replace(shipped, "%", `{"name":"x"},{"name":"a",`+
				strings.Replace(has, "CREATE", "DELETE", 1)+`}`, 1),
			want: "/webhooks/1/rules r",
		},
		{name: "an entry with rules of another form",
			object: strings.Replace(shipped, "%", `{"name":"a","rules":"x"}`, 1), want: "/webhooks/0/rules r"},
		{name: "an entry that the annotation does not name",
			object: strings.Replace(shipped, "%", `{"name":"b",`+has+`}`, 1)},
		{name: "an annotation that would take all rules away",
			object: strings.Replace(shipped, "%", `{"name":"empty",`+has+`}`, 1)},
		{name: "no annotation", object: `{"metadata":{"name":"opgate"},"webhooks":[{"name":"a"}]}`},
		{
			name:   "an annotation that is no YAML",
			object: `{"metadata":{"name":"opgate","annotations":{"opgate.io/webhook-rules":"a: ["}},"webhooks":[{"name":"a"}]}`,
			err:    "annotation opgate.io/webhook-rules of webhook configuration opgate: want lists of rules by name of the webhook",
		},
		{
			name:   "an annotation with a misspelt field",
			object: `{"metadata":{"name":"opgate","annotations":{"opgate.io/webhook-rules":"a: [{resource: [r]}]"}},"webhooks":[{"name":"a"}]}`,
			err:    `unknown field "resource"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			operations, err := changedFields(stored(t, test.object).Get())
			if test.err == "" && err != nil || test.err != "" &&
				(err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Fatalf("got error %v, want %q", err, test.err)
			}
			var got []string
			for _, o := range operations {
				text, err := json.Marshal(o.Value)
				if err != nil {
					t.Fatal(err)
				}
				var rules []struct{ Resources []string }
				if err := json.Unmarshal(text, &rules); err != nil {
					t.Fatal(err)
				}
				got = append(got, o.Path+" "+rules[0].Resources[0])
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// released returns the webhook configurations of the manifests, with rules, as a replica leaves them.
func released(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	file, err := os.ReadFile("../manifests/base/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for _, document := range strings.Split(string(file), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		entries, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		rules, err := ShippedRules(u)
		if err != nil || len(entries) == 0 {
			t.Fatal(u.GetKind(), err)
		}
		for _, e := range entries {
			entry := e.(map[string]any)
			raw, err := json.Marshal(rules[entry["name"].(string)])
			if err != nil {
				t.Fatal(err)
			}
			var list []any
			if err := json.Unmarshal(raw, &list); err != nil {
				t.Fatal(err)
			}
			entry["rules"] = list
			defaults := map[string]any{"objectSelector": map[string]any{}, "namespaceSelector": map[string]any{},
				"failurePolicy": "Fail",
				"matchPolicy":   "Equivalent", "timeoutSeconds": int64(10)}
			if u.GetKind() == "MutatingWebhookConfiguration" {
				defaults["reinvocationPolicy"] = "Never"
			}
			for field, value := range defaults { // as the API server does
				if entry[field] == nil {
					entry[field] = value
				}
			}
		}
		u.Object["webhooks"] = entries
		all = append(all, u)
	}
	return all
}

// TestReleasedFields: what the manifests have in their entries is what their annotations say, so that applying them and
// setting fields back never disagree.
func TestReleasedFields(t *testing.T) {
	for _, u := range released(t) {
		changes, err := changedFields(u)
		if err != nil || len(changes) > 0 {
			t.Errorf("%s: %+v, %v", u.GetKind(), changes, err)
		}
	}
}

// TestChangedFields: each field of an entry that another client changes or removes is set back, and those that are
// written elsewhere are not.
func TestChangedFields(t *testing.T) {
	entry := func(u *unstructured.Unstructured) map[string]any {
		return u.Object["webhooks"].([]any)[0].(map[string]any)
	}
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
		for _, u := range released(t) {
			if field == "reinvocationPolicy" && entry(u)[field] == nil {
				continue // of mutating webhooks only
			}
			entry(u)[field] = value
			changes, err := changedFields(u)
			if err != nil || len(changes) != 1 || changes[0].Path != "/webhooks/0/"+
				field || !strings.HasPrefix(changes[0].text, field+" of subscriptions.opgate.io (it was ") {
				t.Errorf("%s of a %s: %+v, %v", field, u.GetKind(), changes, err)
				continue
			}
			got, err := json.Marshal(changes[0].Value)
			if err != nil {
				t.Fatal(err)
			}
			var back any
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatal(err)
			}
			entry(u)[field] = back
			if changes, err := changedFields(u); err != nil || len(changes) > 0 {
				t.Errorf("%s of a %s, set back to %s: %+v, %v", field, u.GetKind(), got, changes, err)
			}
			delete(entry(u), field)
			if changes, err := changedFields(u); err != nil || len(changes) != 1 {
				t.Errorf("%s of a %s is removed: %+v, %v", field, u.GetKind(), changes, err)
			}
		}
	}
	u := released(t)[0]
	entry(u)["clientConfig"] = map[string]any{"url": "https://x"}
	entry(u)["name"] = "another.example.com"
	if changes, err := changedFields(u); err != nil || len(changes) > 0 {
		t.Errorf("an entry of another program: %+v, %v", changes, err)
	}
	u.SetAnnotations(map[string]string{fieldsAnnotation: "webhooks: ["})
	if _, err := changedFields(u); err == nil {
		t.Error("an annotation that is no YAML is no error")
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
	r := &registration{verb: "validate", bundles: webhooks,
		object: stored(t, `{"webhooks":[{"name":"a","clientConfig":{"url":"https://x","caBundle":`+string(encoded)+
			`}}]}`)}
	l := &leadership{Controller: &Controller{options: Options{Ready: ready, Now: time.Now}, source: source}}
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
