package admission

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario/play"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
)

// edited is a write of a stored object, or of a new one where old is nil.
type edited struct {
	user        string
	status      bool
	old, object *unstructured.Unstructured
}

// asked returns the paths to which the API server sends a write, and those to which it does not. Steps count as sent to
// the path of their resource, which judges the same.
func (w edited) asked(t *testing.T, hooks []shipped) (asked, skipped []string) {
	paths, handlers := map[string]bool{}, map[string]http.Handler{}
	resource, operation := play.ResourceOf(w.object), admissionregistrationv1.Update
	if w.status {
		resource += "/status"
	}
	if w.old == nil {
		operation = admissionregistrationv1.Create
	}
	for _, h := range hooks {
		path := h.path[:strings.LastIndex(h.path, "/")+1] + strings.ReplaceAll(h.Rules[0].Resources[0], "/", "-")
		if h.Rules[0].Resources[0] == resource && slices.Contains(h.Rules[0].Operations, operation) {
			paths[path] = paths[path]
		}
		handlers[h.path] = http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
			paths[path] = true
			_ = write(answer, "", &admissionv1.AdmissionResponse{Allowed: true}) // Send fails without it
		})
	}
	if _, err := (&play.Write{User: w.user, Status: w.status, Old: w.old, New: w.object}).Send(t.Context(), handlers); err != nil {
		t.Fatal(err)
	}
	asked = slices.Sorted(maps.Keys(paths))
	skipped = slices.DeleteFunc(slices.Clone(asked), func(path string) bool { return paths[path] })
	return slices.DeleteFunc(asked, func(path string) bool { return !paths[path] }), skipped
}

// edits are changes of one object, of what rules read and of what they do not.
var edits = []func(r *rand.Rand, o *unstructured.Unstructured){
	func(_ *rand.Rand, _ *unstructured.Unstructured) {},
	func(r *rand.Rand, o *unstructured.Unstructured) {
		put(o, pick(r, "", "x", "shop"), "metadata", "labels",
			pick(r, "a", "olm.copiedFrom", metakey.VirtualOperator, "olm.managed", "operators.coreos.com/etcd.shop"))
	},
	func(r *rand.Rand, o *unstructured.Unstructured) {
		put(o, pick(r, "", "x", "{}", "true"), "metadata", "annotations",
			pick(r, "a", metakey.OverrideReason, "opgate.io/consent", "opgate.io/consent-by",
				metakey.ConsentExpires, metakey.OverrideExpires,
				"operatorframework.io/properties", "olm.properties", "olm.operatorGroup", metakey.Verified,
				"opgate.io/requested-approval", "sidecar.istio.io/proxyImage", "argocd.argoproj.io/tracking-id",
				metakey.ImageTemplate))
	},
	func(_ *rand.Rand, o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "metadata", "labels")
	},
	func(_ *rand.Rand, o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	},
	func(r *rand.Rand, o *unstructured.Unstructured) { o.SetFinalizers([]string{pick(r, "a/b", "c/d")}) },
	func(_ *rand.Rand, o *unstructured.Unstructured) {
		put(o, "2026-11-23T00:00:00Z", "metadata", "deletionTimestamp")
	},
	func(r *rand.Rand, o *unstructured.Unstructured) {
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		if fields := slices.Sorted(maps.Keys(spec)); len(fields) > 0 {
			unstructured.RemoveNestedField(o.Object, "spec", pick(r, fields...))
		}
	},
	func(r *rand.Rand, o *unstructured.Unstructured) {
		put(o, pick(r, "Automatic", "x", ""), "spec", pick(r, "installPlanApproval", "channel", "approval", "a"))
	},
	func(r *rand.Rand, o *unstructured.Unstructured) {
		if o.GetKind() == "InstallPlan" {
			_ = unstructured.SetNestedField(o.Object, pick(r, true, true, false), "spec", "approved")
		}
	},
	func(r *rand.Rand, o *unstructured.Unstructured) {
		put(o, pick(r, "Installing", "Complete", "RequiresApproval"), "status", "phase")
	},
}

// put sets a text where its parents are objects.
func put(o *unstructured.Unstructured, value string, fields ...string) {
	_ = unstructured.SetNestedField(o.Object, value, fields...)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// TestSkippedWritesPass: whatever the conditions of the shipped webhooks keep from the gate, it would have allowed
// unchanged. Each write is an update of an object in a scenario by one to three random edits, or creates the edited
// object.
func TestSkippedWritesPass(t *testing.T) {
	each, seed := 3, uint64(1)
	if cases.Long() {
		each, seed = 12, rand.Uint64()
	}
	scenarios := scenariotest.Load(t, scenarioDir, versions)
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	counts, created, hooks := map[string][2]int{}, map[string]int{}, shippedWebhooks(t)
	for _, s := range scenarios {
		existing := slices.Concat(s.Cluster, s.Policies)
		handlers := newGate(t, storeOf(t, existing...), overrideBy{}).Handlers()
		for _, old := range existing {
			old = marked(t, old)
			for range each {
				w := edited{user: pick(random, "tenant", "admin", olmUser),
					status: old.GetKind() == "InstallPlan" && random.IntN(2) == 0, old: old, object: old.DeepCopy()}
				for range 1 + random.IntN(3) {
					pick(random, edits...)(random, w.object)
				}
				if !w.status && random.IntN(3) == 0 {
					w.old = nil
				}
				if w.user == olmUser && w.old == nil && w.object.GetKind() == olm.KindClusterServiceVersion &&
					random.IntN(2) == 0 {
					put(w.object, "elsewhere", "metadata", "labels", metakey.CopiedFrom)
				}
				if w.user == olmUser && (virtual(old) || virtual(w.object)) {
					continue // OLM updates none, and what it creates is judged: the condition does without asking
				}
				called, skipped := w.asked(t, hooks)
				for _, path := range called {
					counts[path] = [2]int{counts[path][0] + 1, counts[path][1]}
				}
				for _, path := range skipped {
					counts[path] = [2]int{counts[path][0], counts[path][1] + 1}
					var changes []byte
					// objects of scenarios were stored without the mutating webhooks, which would have changed them
					if w.old != nil {
						changes = ask(t, handlers[path], edited{w.user, w.status, old, old}).Patch
					} else {
						created[path]++
					}
					if answer := ask(t, handlers[path], w); !answer.Allowed || len(answer.Patch) > 0 &&
						!bytes.Equal(answer.Patch, changes) || w.old == nil && len(answer.Warnings) > 0 {
						t.Errorf("%s: %s is not called for this write by %s, and would have answered %+v:\n%s\nis changed to\n%s",
							s.Name, path, w.user, answer.Result, raw(t, old), raw(t, w.object))
					}
				}
			}
		}
	}
	for path, n := range counts {
		t.Logf("%s: called for %d writes, not for %d, of which %d create", path, n[0], n[1], created[path])
		if n[1] == 0 {
			t.Errorf("%s: nothing was tested", path)
		}
	}
	// OLM's plans before they are approved, its copies of operators, and its CatalogSources.
	for _, path := range []string{PathValidateInstallPlans, PathValidateCSVs, PathValidateCatalogSources} {
		if created[path] == 0 {
			t.Errorf("%s: no skipped create was tested", path)
		}
	}
	if len(counts) < 10 {
		t.Errorf("only %d endpoints were tested", len(counts))
	}
}

// TestC1FieldsAreSent: the gate is asked about a change of each field of a ClusterServiceVersion that counts, and about
// none of those that do not (attacks-3, c1). Package gate of the end-to-end tests does it on a real API server.
func TestC1FieldsAreSent(t *testing.T) {
	old := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1",
		"kind": "ClusterServiceVersion", "metadata": map[string]any{"name": "etcdoperator.v0.9.4", "namespace": "shop",
			"annotations": map[string]any{"kept": "a", "olm.operatorGroup": "a"}},
		"spec": map[string]any{"displayName": "etcd"}}}
	for _, change := range fieldsOfCSVs() {
		object := old.DeepCopy()
		change.edit(object)
		for user, want := range map[string]bool{"tenant": change.counts, olmUser: false} {
			called, _ := edited{user: user, old: old, object: object}.asked(t, shippedWebhooks(t))
			if got := slices.Contains(called, PathValidateCSVs); got != want {
				t.Errorf("%s by %s: the gate is asked %t, want %t", change.name, user, got, want)
			}
		}
		was, is := csvOf(t, old), csvOf(t, object)
		if got := was.ChangedField(is) != "" || was.Metadata.Labels.CopiedFrom != is.Metadata.Labels.CopiedFrom; got != change.counts {
			t.Errorf("%s: rules read it %t, want %t", change.name, got, change.counts)
		}
	}
}

// TestC1DayOfOLM replays what OLM writes while nothing is installed: none of it is sent to the gate, whatever counts as a
// change of a ClusterServiceVersion.
func TestC1DayOfOLM(t *testing.T) {
	object := func(kind, labels string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":%q,"metadata":{"name":"a","namespace":"shop","labels":{%s}},
			"spec":{"approved":true,"image":"a","targetNamespaces":["shop"]}}`, kind, labels)
		if kind == olm.KindOperatorGroup {
			text = strings.Replace(text, "v1alpha1", "v1", 1)
		}
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return u
	}
	csv, copied := object(olm.KindClusterServiceVersion, ""), object(olm.KindClusterServiceVersion, `"olm.copiedFrom":"elsewhere"`)
	writes := map[*unstructured.Unstructured][]string{ // "status" is of its subresource
		csv: {"metadata annotations olm.operatorGroup", "metadata annotations olm.targetNamespaces", "metadata annotations note",
			"metadata labels operators.coreos.com/etcd.shop", "metadata labels olm.api.1234", "status phase"},
		copied:                            {"spec displayName", "metadata annotations note", "status phase"},
		object(olm.KindSubscription, ""):  {"metadata labels operators.coreos.com/etcd.shop", "status lastUpdated"},
		object(olm.KindInstallPlan, ""):   {"metadata labels operators.coreos.com/etcd.shop", "status phase"},
		object(olm.KindOperatorGroup, ""): {"metadata annotations olm.providedAPIs", "status lastUpdated"},
		object("CatalogSource", ""):       {"status latestImageRegistryPoll"},
	}
	for old, fields := range writes {
		for _, field := range fields {
			now := old.DeepCopy()
			put(now, "a", strings.Fields(field)...)
			w := edited{user: olmUser, status: strings.HasPrefix(field, "status"), old: old, object: now}
			if paths, _ := w.asked(t, shippedWebhooks(t)); len(paths) > 0 {
				t.Errorf("%s of %s: OLM's write is sent to %v", field, old.GetKind(), paths)
			}
		}
	}
}

type fieldChange struct {
	name   string
	counts bool
	edit   func(*unstructured.Unstructured)
}

// fieldsOfCSVs are changes of a ClusterServiceVersion: of each annotation that is harmless, of ones that are not, and of
// the rest of it.
func fieldsOfCSVs() []fieldChange {
	set := func(counts bool, value any, path ...string) fieldChange {
		return fieldChange{strings.Join(path, "."), counts, func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, value, path...)
		}}
	}
	drop := func(counts bool, key string) fieldChange {
		return fieldChange{"no " + key, counts, func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", key)
		}}
	}
	all := []fieldChange{set(true, "vault", "spec", "displayName"), set(true, "a", "spec", "replaces"),
		set(true, "{}", "metadata", "annotations", metakey.Properties),
		set(true, "elsewhere", "metadata", "labels", metakey.CopiedFrom),
		set(true, "b", "metadata", "annotations", "kept"), drop(true, "kept"), drop(false, "olm.operatorGroup"),
		set(true, "", "metadata", "annotations", "sidecar.istio.io/inject"),
		set(true, "a", "metadata", "annotations", "argocd.argoproj.io"),
		set(true, "a", "metadata", "annotations", "pre.hook.backup.velero.io/command"),
		set(true, "a", "metadata", "annotations", "container.apparmor.security.beta.kubernetes.io/c"),
		set(false, "a", "metadata", "labels", "team"), set(false, "Failed", "status", "phase")}
	for _, key := range olm.HarmlessAnnotations() {
		if strings.HasSuffix(key, "/") {
			key += "any"
		}
		all = append(all, set(false, "a", "metadata", "annotations", key))
	}
	return all
}

func csvOf(t *testing.T, u *unstructured.Unstructured) *olm.CSV {
	t.Helper()
	csv, err := olm.Decode[olm.CSV](raw(t, u))
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

// TestEmptyCopyLabel: a bundle whose ClusterServiceVersion has the label of copies with an empty value is not taken for
// a copy when OLM creates it: it is judged.
func TestEmptyCopyLabel(t *testing.T) {
	csv := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1",
		"kind":     "ClusterServiceVersion",
		"metadata": map[string]any{"name": "etcdoperator.v0.9.4", "namespace": "shop"}}}
	for from, want := range map[string]bool{"": true, "elsewhere": false} {
		csv.SetLabels(map[string]string{metakey.CopiedFrom: from})
		called, _ := edited{user: olmUser, object: csv}.asked(t, shippedWebhooks(t))
		if got := slices.Contains(called, PathValidateCSVs); got != want {
			t.Errorf("label %s=%q: the gate is asked %t, want %t", metakey.CopiedFrom, from, got, want)
		}
	}
}

func virtual(u *unstructured.Unstructured) bool {
	_, ok := u.GetLabels()[metakey.VirtualOperator]
	return ok
}

func ask(t *testing.T, handler http.Handler, w edited) *admissionv1.AdmissionResponse {
	t.Helper()
	if handler == nil {
		t.Fatal(fmt.Sprint("no endpoint for ", w.object.GetKind()))
	}
	return post(t, handler, reviewOf(t, w.user, w.status, w.old, raw(t, w.object)))
}
