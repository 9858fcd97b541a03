package admission

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/metakey"
)

// TestStoredBeforeIsAdopted: an object that is not valid, stored before Opgate came, can be labelled, annotated, applied
// unchanged and released from finalizers. A change of its spec, or of an annotation that is read, is judged as a whole. The
// gate is not asked about a deletion.
func TestStoredBeforeIsAdopted(t *testing.T) {
	for name, text := range map[string]string{
		"OperatorPolicy": `{apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: a, namespace: policies},
			spec: {remediationAction: enforce, complianceType: mayhave, versionRange: "~4.16", subscription: {name: etcd, namespace: shop}}}`,
		"Constraint": `{apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: a}, spec: {rules: [{expression: "1"}]}}`,
		"Policy": `{apiVersion: policy.open-cluster-management.io/v1, kind: Policy, metadata: {name: a, namespace: policies},
			spec: {disabled: false, policy-templates: [], dependencies: [
			{apiVersion: policy.open-cluster-management.io/v1, kind: Policy, name: a, namespace: policies, compliance: Compliant}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			old := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &old.Object); err != nil {
				t.Fatal(err)
			}
			handlers := newGate(t, storeOf(t), overrideBy{}).Handlers()
			write := func(edit func(*unstructured.Unstructured)) (asked bool, allowed bool) {
				w := edited{user: "tenant", old: old, object: old.DeepCopy()}
				edit(w.object)
				paths, skipped := w.asked(t, shippedWebhooks(t))
				allowed = true
				for _, path := range slices.Concat(paths, skipped) {
					allowed = ask(t, handlers[path], w).Allowed && allowed
				}
				return len(paths) > 0, allowed
			}
			for what, edit := range map[string]func(*unstructured.Unstructured){
				"unchanged": func(*unstructured.Unstructured) {},
				"a label":   func(o *unstructured.Unstructured) { put(o, "b", "metadata", "labels", "a") },
				"applied":   func(o *unstructured.Unstructured) { put(o, text, "metadata", "annotations", metakey.LastApplied) },
				"tracked": func(o *unstructured.Unstructured) {
					put(o, "a", "metadata", "annotations", "argocd.argoproj.io/tracking-id")
				},
				"finalizers": func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"a/b"}) },
			} {
				if asked, allowed := write(edit); asked || !allowed {
					t.Errorf("%s: the gate is asked %t, and allows it %t", what, asked, allowed)
				}
			}
			if asked, allowed := write(func(o *unstructured.Unstructured) { put(o, "inform", "spec", "remediationAction") }); name !=
				"Constraint" && (!asked || allowed) {
				t.Errorf("a changed spec: the gate is asked %t, and allows it %t", asked, allowed)
			}
			read := map[string]string{"OperatorPolicy": metakey.DisableTemplates, "Constraint": metakey.VirtualOperatorNamespaces}[name]
			if read == "" {
				return
			}
			if asked, allowed := write(func(o *unstructured.Unstructured) { put(o, "", "metadata", "annotations", read) }); !asked || allowed {
				t.Errorf("annotation %s: the gate is asked %t, and allows it %t", read, asked, allowed)
			}
		})
	}
}
