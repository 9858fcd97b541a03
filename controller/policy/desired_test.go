package policy

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// app returns Policy shop/app, with changes.
func app(changes ...func(*policyv1.Policy)) *policyv1.Policy {
	p := &policyv1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app", UID: "app-uid"}}
	for _, change := range changes {
		change(p)
	}
	return p
}

// object parses YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func template(t *testing.T, text string) *policyv1.PolicyTemplate {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &policyv1.PolicyTemplate{ObjectDefinition: runtime.RawExtension{Raw: raw}}
}

// wanted is the desired object of a template of Policy shop/app.
func wanted(t *testing.T, text string, namespaced bool) *desired {
	t.Helper()
	d, err := desire(app(), template(t, text), namespaced)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	plain = "{apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: x}, spec: {severity: low}}"
	// head is what Opgate writes into the metadata of the object of a template.
	head = `{name: x, namespace: shop, labels: {cluster-name: shop, cluster-namespace: shop, policy.open-cluster-management.io/cluster-name: shop,
  policy.open-cluster-management.io/cluster-namespace: shop, policy.open-cluster-management.io/policy: app},
  ownerReferences: [{apiVersion: policy.open-cluster-management.io/v1, kind: Policy, name: app, uid: app-uid, controller: true, blockOwnerDeletion: true}]}`
)

func TestDesire(t *testing.T) {
	for _, tc := range []struct {
		name, template string
		parent         *policyv1.Policy
		cluster        bool
		want           string
	}{
		{name: "labels and owner are added", template: plain,
			want: "{apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: " + head +
				", spec: {severity: low}}"},
		{name: "the namespace is that of the Policy",
			template: "{apiVersion: v/v1, kind: K, metadata: {name: x, namespace: kube-system}}",
			want:     "{apiVersion: v/v1, kind: K, metadata: " + head + "}"},
		{name: "attack: what the API server writes is not the author's to say", template: `{apiVersion: v/v1, kind: K, metadata: {name: x, uid: u, resourceVersion: "1", generation: 7,
			creationTimestamp: "2020-01-01T00:00:00Z", deletionTimestamp: "2020-01-01T00:00:00Z", generateName: y, ownerReferences: [{kind: ClusterRole}], managedFields: [{}]}, status: {compliant: Compliant}}`,
			want: "{apiVersion: v/v1, kind: K, metadata: " + head + "}"},
		{name: "attack: labels that name another Policy",
			template: "{apiVersion: v/v1, kind: K, metadata: {name: x, labels: {policy.open-cluster-management.io/policy: other, cluster-namespace: other}}}",
			want:     "{apiVersion: v/v1, kind: K, metadata: " + head + "}"},
		{name: "attack: the mark of a guard that waits",
			template: "{apiVersion: v/v1, kind: K, metadata: {name: x, annotations: {opgate.io/pending: shop/other}}}",
			want:     "{apiVersion: v/v1, kind: K, metadata: " + head + "}"},
		{name: "the Policy says what is done",
			parent:   app(func(p *policyv1.Policy) { p.Spec.RemediationAction = policyv1.Enforce }),
			template: "{apiVersion: v/v1, kind: K, metadata: {name: x}, spec: {remediationAction: inform}}",
			want:     "{apiVersion: v/v1, kind: K, metadata: " + head + ", spec: {remediationAction: enforce}}"},
		{name: "cluster-scoped", template: "{apiVersion: v/v1, kind: K, metadata: {name: x, namespace: shop}}",
			cluster: true,
			want: `{apiVersion: v/v1, kind: K, metadata: {name: x, labels: {cluster-name: shop, cluster-namespace: shop, policy.open-cluster-management.io/cluster-name: shop,
				policy.open-cluster-management.io/cluster-namespace: shop, policy.open-cluster-management.io/policy: app}}}`},
		{name: "a hub has named the cluster", template: "{apiVersion: v/v1, kind: K, metadata: {name: x}}",
			cluster: true,
			parent: app(func(p *policyv1.Policy) {
				p.Labels = map[string]string{"policy.open-cluster-management.io/cluster-name": "east",
					"policy.open-cluster-management.io/cluster-namespace": "other"}
			}),
			want: `{apiVersion: v/v1, kind: K, metadata: {name: x, labels: {cluster-name: east, cluster-namespace: shop, policy.open-cluster-management.io/cluster-name: east,
				policy.open-cluster-management.io/cluster-namespace: shop, policy.open-cluster-management.io/policy: app}}}`},
		{name: "what is not known stays, to be refused by the API server",
			template: "{apiVersion: v/v1, kind: K, metadata: {name: x, lables: {a: b}}, speck: {}}", cluster: true,
			want: `{apiVersion: v/v1, kind: K, speck: {}, metadata: {name: x, lables: {a: b}, labels: {cluster-name: shop, cluster-namespace: shop, policy.open-cluster-management.io/cluster-name: shop,
				policy.open-cluster-management.io/cluster-namespace: shop, policy.open-cluster-management.io/policy: app}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			parent := tc.parent
			if parent == nil {
				parent = app()
			}
			got, err := desire(parent, template(t, tc.template), !tc.cluster)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(roundTrip(t, object(t, tc.want)), roundTrip(t, got.object)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// roundTrip returns an object as it is encoded: empty maps are omitted from metadata.
func roundTrip(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	u = u.DeepCopy()
	if len(u.GetAnnotations()) == 0 {
		u.SetAnnotations(nil)
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	back := map[string]any{}
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func TestDesireRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{apiVersion: v/v1, kind: K}":                                                    "objectDefinition has no metadata",
		"{apiVersion: v/v1, kind: K, metadata: {name: x, labels: {a: 1}}}":               "objectDefinition.metadata.labels must be strings, put others in quotes: .metadata.labels accessor error: contains non-string value in the map under key \"a\": 1 is of the type int64, expected string",
		"{apiVersion: v/v1, kind: K, metadata: {name: x, annotations: {a: x, b: true}}}": "objectDefinition.metadata.annotations must be strings, put others in quotes: .metadata.annotations accessor error: contains non-string value in the map under key \"b\": true is of the type bool, expected string",
		"{apiVersion: v/v1, kind: K, metadata: {name: x, labels: [a]}}":                  "objectDefinition.metadata.labels must be strings, put others in quotes: .metadata.labels accessor error: [a] is of the type []interface {}, expected map[string]interface{}",
	} {
		if _, err := desire(app(), template(t, text), true); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

func TestOntoKeepsWhatOthersPutThere(t *testing.T) {
	live := object(t, `{apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: x, namespace: shop, uid: x-uid, resourceVersion: "7", finalizers: [theirs],
  labels: {policy.open-cluster-management.io/policy: wrong, theirs: kept}, annotations: {theirs: kept, opgate.io/pending: shop/app},
  ownerReferences: [{apiVersion: policy.open-cluster-management.io/v1, kind: Policy, name: app, uid: former, controller: true}, {apiVersion: v1, kind: ConfigMap, name: z, uid: z-uid}]}, status: {compliant: Compliant}}`)
	before := live.DeepCopy()
	d := wanted(t, plain, true)
	got := d.onto(live, app(), "")
	want := object(t, `{apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, spec: {severity: low}, metadata: {name: x, namespace: shop, uid: x-uid, resourceVersion: "7", finalizers: [theirs],
  labels: {cluster-name: shop, cluster-namespace: shop, policy.open-cluster-management.io/cluster-name: shop,
    policy.open-cluster-management.io/cluster-namespace: shop, policy.open-cluster-management.io/policy: app, theirs: kept}, annotations: {theirs: kept},
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: z, uid: z-uid},
    {apiVersion: policy.open-cluster-management.io/v1, kind: Policy, name: app, uid: app-uid, controller: true, blockOwnerDeletion: true}]}}`)
	if diff := cmp.Diff(roundTrip(t, want), roundTrip(t, got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, live.Object); diff != "" {
		t.Errorf("the live object was changed\n%s", diff)
	}
	if got := d.onto(live, app(), "shop/app").GetAnnotations()["opgate.io/pending"]; got != "shop/app" {
		t.Errorf("the mark is %q", got)
	}
}

func TestSuspended(t *testing.T) {
	d := wanted(t, plain, true)
	if got := d.onto(nil, app(), "shop/app").GetAnnotations()["opgate.io/pending"]; got != "shop/app" {
		t.Errorf("the mark is %q", got)
	}
	if _, marked := d.onto(nil, app(), "").GetAnnotations()["opgate.io/pending"]; marked {
		t.Error("marked though it does not wait")
	}
}

// TestAsWritten checks drift detection: what counts as a change of what was written.
func TestAsWritten(t *testing.T) {
	d := wanted(t, "{apiVersion: v/v1, kind: K, metadata: {name: x, annotations: {mine: a}}}", true)
	stored := d.onto(object(t,
		"{apiVersion: v/v1, kind: K, metadata: {name: x, namespace: shop, uid: u, generation: 3}}"), app(), "")
	stored.SetGeneration(3)
	remembered := d.asWritten(stored, app())
	for name, tc := range map[string]struct {
		change func(u *unstructured.Unstructured)
		same   bool
	}{
		"nothing":                {func(*unstructured.Unstructured) {}, true},
		"a status":               {func(u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"compliant": "Compliant"} }, true},
		"another client's label": {func(u *unstructured.Unstructured) { set1(u, "labels", "theirs", "x") }, true},
		"an annotation":          {func(u *unstructured.Unstructured) { set1(u, "annotations", "theirs", "x") }, true},
		"the spec":               {func(u *unstructured.Unstructured) { u.SetGeneration(4) }, false},
		"made anew":              {func(u *unstructured.Unstructured) { u.SetUID("v") }, false},
		"our label":              {func(u *unstructured.Unstructured) { set1(u, "labels", "cluster-name", "x") }, false},
		"the template's":         {func(u *unstructured.Unstructured) { set1(u, "annotations", "mine", "x") }, false},
		"the owner taken away":   {func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) }, false},
	} {
		live := stored.DeepCopy()
		tc.change(live)
		now := d.asWritten(live, app())
		if (now == remembered) != tc.same {
			t.Errorf("%s: the same is %t, want %t", name, now == remembered, tc.same)
		}
	}
	other := wanted(t, "{apiVersion: v/v1, kind: K, metadata: {name: x, annotations: {mine: b}}}", true)
	if other.asWritten(stored, app()) == remembered {
		t.Error("another template counts as the same one")
	}
}

func set1(u *unstructured.Unstructured, field, key, value string) {
	_ = unstructured.SetNestedField(u.Object, value, "metadata", field, key)
}
