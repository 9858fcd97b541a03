package certs

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestMissingRules compares the rules of entries with those in the annotation.
func TestMissingRules(t *testing.T) {
	const shipped = `{"metadata":{"name":"opgate","annotations":{"opgate.io/webhook-rules":` +
		`"a: [{apiGroups: [g], apiVersions: ['*'], resources: [r], operations: [CREATE]}]\nempty: []"}},"webhooks":[%]}`
	const has = `"rules":[{"apiGroups":["g"],"apiVersions":["*"],"resources":["r"],"operations":["CREATE"],"scope":"*"}]`
	for _, test := range []struct {
		name, object string
		want         string // the path and the resource of the first rule, for each operation
		err          string
	}{
		{name: "an entry without rules", object: strings.Replace(shipped, "%", `{"name":"a"}`, 1), want: "/webhooks/0/rules r"},
		{name: "an entry with its rules", object: strings.Replace(shipped, "%", `{"name":"a",`+has+`}`, 1)},
		{
			name:   "an entry with fewer operations than it is shipped with",
			object: strings.Replace(shipped, "%", `{"name":"x"},{"name":"a",`+strings.Replace(has, "CREATE", "DELETE", 1)+`}`, 1),
			want:   "/webhooks/1/rules r",
		},
		{name: "an entry with rules of another form", object: strings.Replace(shipped, "%", `{"name":"a","rules":"x"}`, 1), want: "/webhooks/0/rules r"},
		{name: "an entry that the annotation does not name", object: strings.Replace(shipped, "%", `{"name":"b",`+has+`}`, 1)},
		{name: "an annotation that would take all rules away", object: strings.Replace(shipped, "%", `{"name":"empty",`+has+`}`, 1)},
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
			operations, err := missingRules(stored(t, test.object).Get())
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
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

// TestPathsOfEntriesWithoutRules derives paths before the rules are written: a webhook that took effect before it has a path would refuse
// everything. An entry that is not Opgate's has none.
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
	r := &registration{verb: "validate", bundles: webhooks, object: stored(t, `{"webhooks":[{"name":"a","clientConfig":{"url":"https://x","caBundle":`+string(encoded)+`}}]}`)}
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
