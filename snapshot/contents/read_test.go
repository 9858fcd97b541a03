package contents

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
)

// objects are stored objects, by resource and key. It is a Source.
type objects struct {
	mu    sync.Mutex
	m     map[string]string
	err   error
	asked []string
}

func at(resource, key string) string { return resource + " " + key }

func (o *objects) Get(
	_ context.Context, resource schema.GroupVersionResource, key types.NamespacedName,
) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := at(resource.Resource, strings.TrimPrefix(key.String(), "/"))
	o.asked = append(o.asked, name)
	if o.err != nil {
		return nil, o.err
	}
	raw, ok := o.m[name]
	if !ok {
		return nil, apierrors.NewNotFound(resource.GroupResource(), key.Name)
	}
	return []byte(raw), nil
}

func (o *objects) set(name, raw string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.m[name] = raw
}

func (o *objects) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func encode(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// csvJSON is a ClusterServiceVersion, as OLM writes it, with rights to resources of the whole cluster.
func csvJSON(t testing.TB, name string, resources ...string) string {
	t.Helper()
	csv := &v1alpha1.ClusterServiceVersion{TypeMeta: metav1.TypeMeta{APIVersion: "operators.coreos.com/v1alpha1",
		Kind: "ClusterServiceVersion"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
	csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions = []v1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: "etcd",
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"get"}}}}}
	return encode(t, csv)
}

const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"etcds.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Etcd","plural":"etcds"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

// groups are the group and version of each kind of step.
var groups = map[string][2]string{"ClusterServiceVersion": {"operators.coreos.com", "v1alpha1"},
	"CustomResourceDefinition": {"apiextensions.k8s.io", "v1"},
	"ClusterRole":              {"rbac.authorization.k8s.io", "v1"}, "Role": {"rbac.authorization.k8s.io", "v1"},
	"RoleBinding": {"rbac.authorization.k8s.io", "v1"}, "ServiceAccount": {"", "v1"}}

type step struct{ kind, name, manifest string }

// planJSON is an InstallPlan shop/p with steps of etcdoperator.v2.
func planJSON(t testing.TB, steps ...step) string {
	t.Helper()
	var list []any
	for _, s := range steps {
		list = append(list, map[string]any{"resolving": "etcdoperator.v2", "status": "Unknown",
			"resource": map[string]any{
				"group": groups[s.kind][0], "version": groups[s.kind][1], "kind": s.kind, "name": s.name,
				"manifest": s.manifest, "sourceName": "community", "sourceNamespace": "olm"}})
	}
	return encode(t, map[string]any{
		"metadata": map[string]any{"namespace": "shop", "name": "p", "uid": "plan-uid"},
		"spec":     map[string]any{"clusterServiceVersionNames": []string{"etcdoperator.v2"}, "approval": "Manual"},
		"status":   map[string]any{"phase": "RequiresApproval", "plan": list},
	})
}

func refJSON(t testing.TB, change map[string]string) string {
	t.Helper()
	ref := map[string]string{"kind": "ConfigMap", "name": "bundle", "namespace": "olm",
		"catalogSourceName": "community", "catalogSourceNamespace": "olm",
		"properties": `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"2.0.0"}}]}`}
	maps.Copy(ref, change)
	return encode(t, ref)
}

// unpacked is the ConfigMap of a bundle as OLM's Job writes it.
func unpacked(t testing.TB, uid string, labels map[string]string, manifests ...string) string {
	t.Helper()
	data := map[string]any{}
	for i, m := range manifests {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		if _, err := w.Write([]byte(m)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		data["manifest-"+string(rune('a'+i))] = base64.StdEncoding.EncodeToString(
			[]byte(base64.StdEncoding.EncodeToString(zipped.Bytes())))
	}
	return encode(t, map[string]any{
		"metadata": map[string]any{"namespace": "olm", "name": "bundle", "uid": uid, "labels": labels,
			"annotations": map[string]string{"olm.contentEncoding": "gzip+base64"}},
		"binaryData": data,
	})
}

var managed = map[string]string{"olm.managed": "true"}

func digestOf(t testing.TB, csv string) [32]byte {
	t.Helper()
	c, err := olm.Decode[olm.CSV]([]byte(csv))
	if err != nil {
		t.Fatal(err)
	}
	return c.Spec.ContentsDigest()
}

// replacements are those of the plan: etcdoperator.v2 replaces etcdoperator.v1.
func replacements(t testing.TB, installed string) []state.Replacement {
	t.Helper()
	return []state.Replacement{{CSV: "etcdoperator.v2", Package: "etcd", Version: "2.0.0", Channel: "stable",
		Catalog: olm.Catalog{Namespace: "olm", Name: "community"}, From: "etcdoperator.v1", FromVersion: "1.0.0",
		FromDigest: digestOf(t, installed)}}
}

var planKey = types.NamespacedName{Namespace: "shop", Name: "p"}

// TestReadRelease: the release is that of the reference's properties, else the one in the ConfigMap, and two releases
// with the same contents are two changes.
func TestReadRelease(t *testing.T) {
	before := csvJSON(t, "etcdoperator.v1", "configmaps")
	changes := func(property, spec string) *change.Set {
		properties := map[string]string{"properties": `{"properties":[{"type":"olm.package","value":` +
			`{"packageName":"etcd","version":"2.0.0","release":"` + property + `"}}]}`}
		after := csvJSON(t, "etcdoperator.v2", "configmaps")
		if spec != "" {
			after = strings.Replace(after, `"spec":{`, `"spec":{"release":"`+spec+`",`, 1)
		}
		store := &objects{m: map[string]string{at("clusterserviceversions", "shop/etcdoperator.v1"): before,
			at("installplans", "shop/p"): planJSON(t,
				step{"ClusterServiceVersion", "etcdoperator.v2", refJSON(t, properties)}),
			"configmaps olm/bundle": unpacked(t, "1", managed, after)}}
		replaces := replacements(t, before)
		replaces[0].Release = property // as the plan has it
		r, err := Read(t.Context(), store, planKey, replaces)
		if err != nil {
			t.Fatal(err)
		}
		return r.ByCSV["etcdoperator.v2"]
	}
	digests := map[string]string{}
	for _, c := range []struct{ property, spec, want string }{{"", "", ""}, {"2", "", "2"}, {"3", "", "3"}, {"", "4", "4"}} {
		set := changes(c.property, c.spec)
		if set.Fault != "" || set.Release != c.want {
			t.Errorf("%+v: release %q, fault %q", c, set.Release, set.Fault)
		}
		if other, known := digests[set.Digest()]; known {
			t.Errorf("%+v has the digest of %s", c, other)
		}
		digests[set.Digest()] = c.property + " and " + c.spec
	}
	if stated, alone := changes("2", "2"), changes("", "2"); stated.Digest() != alone.Digest() {
		t.Error("where a release is stated makes another change")
	}
}

func TestRead(t *testing.T) {
	before, after := csvJSON(t, "etcdoperator.v1", "configmaps"), csvJSON(t, "etcdoperator.v2", "configmaps", "secrets")
	installed := at("clusterserviceversions", "shop/etcdoperator.v1")
	byImage := planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", refJSON(t, nil)},
		step{"CustomResourceDefinition", "etcds.example.com", refJSON(t, nil)})
	reference := func(change map[string]string) string {
		return planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", refJSON(t, change)})
	}
	const bundle = "configmaps olm/bundle"
	for _, c := range []struct {
		name  string
		store map[string]string
		// fault is part of that of the change set; "" for none.
		fault string
	}{
		{"the manifests are in the plan",
			map[string]string{"plan": planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", after},
				step{"CustomResourceDefinition", "etcds.example.com", definition})}, ""},
		{"OLM derived roles, without a kind",
			map[string]string{"plan": planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", after},
				step{"ServiceAccount", "etcd", `{"metadata":{"name":"etcd","namespace":"shop"}}`},
				step{"ClusterRole", "etcdoperator.v2-x7",
					`{"metadata":{"name":"etcdoperator.v2-x7","labels":{"olm.owner":"etcdoperator.v2"}},"rules":[]}`})},
			""},
		{"OLM unpacked the bundle", map[string]string{"plan": byImage,
			bundle: unpacked(t, "1", managed, after, definition)}, ""},
		{"the ConfigMap is gone", map[string]string{"plan": byImage},
			"ConfigMap olm/bundle, which its bundle is unpacked into, does not exist"},
		{"the ConfigMap lacks OLM's label", map[string]string{"plan": byImage, bundle: unpacked(t, "1", nil, after)},
			"lacks label olm.managed=true"},
		{"the ConfigMap is in another namespace than the catalog",
			map[string]string{"plan": reference(map[string]string{"namespace": "shop"}),
				"configmaps shop/bundle": unpacked(t, "1", managed, after)}, "is not in the namespace of its catalog"},
		{"the reference names another catalog",
			map[string]string{"plan": reference(map[string]string{"catalogSourceName": "other"}),
				bundle: unpacked(t, "1", managed, after)}, "is not in the namespace of its catalog"},
		{"the ConfigMap is empty", map[string]string{"plan": byImage, bundle: unpacked(t, "1", managed)},
			"etcdoperator.v2"},
		{"the ConfigMap is no gzip", map[string]string{"plan": byImage,
			bundle: strings.ReplaceAll(unpacked(t, "1", managed, after), "SDRz", "AAAA")}, "cannot be read"},
		{"the plan has no step of it", map[string]string{"plan": planJSON(t)}, "the plan has no step of it"},
		{"the manifest is no object",
			map[string]string{"plan": planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", `"text"`})},
			"cannot be read"},
		{"the manifest is cut off",
			map[string]string{"plan": planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", after[:100]})},
			"cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &objects{m: map[string]string{installed: before}}
			maps.Copy(store.m, c.store)
			store.m[at("installplans", "shop/p")] = c.store["plan"]
			r, err := Read(t.Context(), store, planKey, replacements(t, before))
			if err != nil {
				t.Fatal(err)
			}
			set := r.ByCSV["etcdoperator.v2"]
			if c.fault != "" {
				if !strings.Contains(set.Fault, c.fault) {
					t.Fatalf("fault %q, want %q", set.Fault, c.fault)
				}
				return
			}
			if set.Fault != "" {
				t.Fatal(set.Fault)
			}
			if got := of(set, change.Permissions); len(got) != 1 || !strings.Contains(got[0].Text, "secrets") {
				t.Errorf("permissions that were not there before: %v, want one on secrets", got)
			}
			if set.Spec != digestOf(t, after) {
				t.Error("the digest of the spec is not that of the ClusterServiceVersion")
			}
			if set.From != "etcdoperator.v1" || set.Catalog != "olm/community" || set.Channel != "stable" ||
				set.Version != "2.0.0" || set.Package != "etcd" {
				t.Errorf("set %+v", set)
			}
		})
	}
}

// TestReadSameDigest reads one bundle from a plan and from a ConfigMap: a catalog may have it in either form.
func TestReadSameDigest(t *testing.T) {
	before, after := csvJSON(t, "etcdoperator.v1", "configmaps"), csvJSON(t, "etcdoperator.v2", "configmaps", "secrets")
	digest := func(plan, configMap string) string {
		r, err := Read(t.Context(),
			&objects{m: map[string]string{at("clusterserviceversions", "shop/etcdoperator.v1"): before,
				at("installplans", "shop/p"): plan, "configmaps olm/bundle": configMap}}, planKey, replacements(t, before))
		if err != nil {
			t.Fatal(err)
		}
		return r.ByCSV["etcdoperator.v2"].Digest()
	}
	inline := digest(planJSON(t, step{"CustomResourceDefinition", "etcds.example.com", definition},
		step{"ClusterServiceVersion", "etcdoperator.v2", after}), "")
	byImage := digest(planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", refJSON(t, nil)}),
		unpacked(t, "1", managed, after, definition))
	if inline != byImage || !strings.HasPrefix(inline, "sha256:") {
		t.Errorf("digests %s and %s", inline, byImage)
	}
}

// TestReadAgain returns errors for what may be different when it is read again.
func TestReadAgain(t *testing.T) {
	before, after := csvJSON(t, "etcdoperator.v1", "configmaps"), csvJSON(t, "etcdoperator.v2", "configmaps")
	plan := planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", after})
	for name, store := range map[string]*objects{
		"the plan is gone": {m: map[string]string{}},
		"the installed version is another one": {m: map[string]string{at("installplans", "shop/p"): plan,
			at("clusterserviceversions", "shop/etcdoperator.v1"): csvJSON(t, "etcdoperator.v1", "pods")}},
		"forbidden": {m: map[string]string{}, err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"},
			"bundle", errors.New("no right"))},
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := Read(t.Context(), store, planKey, replacements(t, before)); err == nil {
				t.Errorf("it was read: %+v", r)
			}
		})
	}
}

// TestP4BundleAsOLMWrites: what Constraints read of an unpacked bundle is what OLM will write. OLM decodes manifests
// without regard to the case of keys, and takes the properties from the catalog.
func TestP4BundleAsOLMWrites(t *testing.T) {
	before, after := csvJSON(t, "etcdoperator.v1", "configmaps"), csvJSON(t, "etcdoperator.v2", "secrets")
	const role = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"more"},"Rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`
	byImage := planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", refJSON(t, nil)},
		step{"ClusterRole", "more", refJSON(t, nil)})
	annotated := func(annotations string) string {
		return strings.Replace(after, `"metadata":{`, `"metadata":{"annotations":`+annotations+`,`, 1)
	}
	for _, c := range []struct {
		name      string
		manifests []string
		uninstall bool
		fault     string
		// rights are the resources of its cluster-wide rights, and note is its annotation.
		rights, note string
	}{
		{name: "plain", manifests: []string{after}, rights: "secrets"},
		{name: "another case", manifests: []string{strings.Replace(after, "clusterPermissions", "CLUSTERPermissions",
			1)}, rights: "secrets"},
		{name: "the spec in another case", manifests: []string{strings.Replace(after, `"spec":`, `"Spec":`, 1)},
			rights: "secrets"},
		{name: "a role comes along", manifests: []string{after, role}, rights: "secrets *"},
		{name: "an annotation", manifests: []string{annotated(`{"note":"a"}`)}, rights: "secrets", note: "a"},
		{name: "the last metadata counts",
			manifests: []string{strings.Replace(annotated(`{"note":"a"}`), `"spec":`,
				`"Metadata":{"annotations":{"note":"b"}},"spec":`, 1)},
			rights: "secrets", note: "b"},
		{name: "the last name counts",
			manifests: []string{strings.Replace(after, `"spec":`, `"Metadata":{"name":"other"},"spec":`, 1)},
			fault:     "is other, want"},
		{name: "another ClusterServiceVersion", manifests: []string{csvJSON(t, "other", "secrets")},
			fault: "is other, want"},
		{name: "what is installed is gone", manifests: []string{after}, uninstall: true, rights: "secrets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &objects{m: map[string]string{at("clusterserviceversions", "shop/etcdoperator.v1"): before,
				at("installplans", "shop/p"): byImage,
				"configmaps olm/bundle":      unpacked(t, "1", managed, c.manifests...)}}
			if c.uninstall {
				delete(store.m, at("clusterserviceversions", "shop/etcdoperator.v1"))
			}
			r, err := Read(t.Context(), store, planKey, replacements(t, before))
			if err != nil {
				t.Fatal(err)
			}
			bundle := r.Bundles["etcdoperator.v2"]
			if c.fault != "" || bundle.Fault != "" {
				if c.fault == "" || !strings.Contains(bundle.Fault, c.fault) {
					t.Fatalf("fault %q, want %q", bundle.Fault, c.fault)
				}
				return
			}
			demands := &olm.Demands{Spec: bundle.Spec, Grants: bundle.Grants}
			rights, err := demands.ClusterPermissions()
			if err != nil {
				t.Fatal(err)
			}
			var resources []string
			for _, r := range rights {
				resources = append(resources, r["resources"]...)
			}
			if got := strings.Join(resources, " "); got != c.rights {
				t.Errorf("rights to %q, want %q", got, c.rights)
			}
			annotations, err := demands.Annotations()
			if note := annotations["note"]; err != nil || (note == nil) != (c.note == "") || note != nil &&
				*note != c.note {
				t.Errorf("annotations %v, want note %q, error %v", annotations, c.note, err)
			}
			if got := annotations[metakey.Properties]; got == nil || !strings.Contains(*got, "2.0.0") {
				t.Errorf("the properties are not those of the catalog: %v", got)
			}
			if set := r.ByCSV["etcdoperator.v2"]; !c.uninstall &&
				(set.Fault != "" || set.Spec != bundle.Spec.ContentsDigest()) {
				t.Errorf("the digest is not that of the change (%s)", set.Fault)
			}
			if fault := r.ByCSV["etcdoperator.v2"].Fault; c.uninstall != strings.Contains(fault,
				"names it as installed") {
				t.Errorf("the fault of the change is %q", fault)
			}
		})
	}
}

// TestP4MissingRight: the reason names the values of the chart.
func TestP4MissingRight(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.store.fail(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "bundle",
			errors.New("no right")))
		f.Get(f.plan, f.csvs)
		f.seen()
		bundle := f.Get(f.plan, f.csvs).Bundles["etcdoperator.v2"]
		for _, value := range []string{grant.Contents.Value(), grant.CatalogNamespacesValue,
			`configmaps "bundle" is forbidden`} {
			if !strings.Contains(bundle.Fault, value) {
				t.Errorf("fault %q, want %q in it", bundle.Fault, value)
			}
		}
	})
}

// TestReadHostileNames reads no other object than a definition, whatever its name is.
func TestReadHostileNames(t *testing.T) {
	before := csvJSON(t, "etcdoperator.v1", "configmaps")
	store := &objects{m: map[string]string{at("clusterserviceversions", "shop/etcdoperator.v1"): before,
		at("installplans", "shop/p"): planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2",
			csvJSON(t, "etcdoperator.v2", "configmaps")},
			step{"CustomResourceDefinition", "x", strings.ReplaceAll(definition, "etcds.example.com",
				"../../../../api/v1/namespaces/kube-system/secrets/token")})}}
	if _, err := Read(t.Context(), store, planKey, replacements(t, before)); err != nil {
		t.Fatal(err)
	}
	for _, asked := range store.asked {
		if strings.Contains(asked, "..") {
			t.Errorf("asked for %s", asked)
		}
	}
}

// TestC2PreparedBaseline: only what the plan of the installed version brought is a baseline, and nothing that a user
// may have stored under the same name (threat O49).
func TestC2PreparedBaseline(t *testing.T) {
	const created = `"creationTimestamp":"2026-11-20T10:00:00Z",`
	before := strings.Replace(csvJSON(t, "etcdoperator.v1", "configmaps"), `"creationTimestamp":null,`, created, 1)
	if !strings.Contains(before, created) {
		before = strings.Replace(before, `"metadata":{`, `"metadata":{`+created, 1)
	}
	after := csvJSON(t, "etcdoperator.v2", "configmaps")
	rbac := func(kind, fields string) string {
		return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"` + kind +
			`","metadata":{"name":"etcd-extra","namespace":"shop","labels":{"olm.managed":"true",` +
			`"olm.owner":"etcdoperator.v1","olm.owner.kind":"ClusterServiceVersion","olm.owner.namespace":"shop"}},` +
			fields + `}`
	}
	role := rbac("Role", `"rules":[{"apiGroups":[""],"resources":["secrets","pods/exec"],"verbs":["get","create"]}]`)
	binding := rbac("RoleBinding",
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"etcd-extra"},`+
			`"subjects":[{"kind":"ServiceAccount","name":"etcd","namespace":"shop"}]`)
	narrow := strings.Replace(role, `"secrets",`, "", 1)
	// planOf is the plan that installed etcdoperator.v1.
	planOf := func(complete string, steps ...step) string {
		plan := planJSON(t, append([]step{{"ClusterServiceVersion", "etcdoperator.v1",
			csvJSON(t, "etcdoperator.v1", "configmaps")}}, steps...)...)
		return strings.NewReplacer("etcdoperator.v2", "etcdoperator.v1", `"status":"Unknown"`, `"status":"Created"`,
			`"phase":"RequiresApproval"`,
			`"phase":"Complete","conditions":[{"type":"Installed","status":"True","lastTransitionTime":"`+
				complete+`"}]`, `"approval":"Manual"`,
			`"approval":"Manual","approved":true`, `"uid":"plan-uid"`,
			`"uid":"before","creationTimestamp":"2026-11-20T09:59:00Z"`).Replace(plan)
	}
	extra := func(role string) []step {
		return []step{{"Role", "etcd-extra", role}, {"RoleBinding", "etcd-extra", binding}}
	}
	const installedAt = "2026-11-20T10:01:00Z"
	both := map[string]string{"roles shop/etcd-extra": role, "rolebindings shop/etcd-extra": binding}
	for _, c := range []struct {
		name, plan string
		store      map[string]string
		// held are the new permissions, and note is part of a note.
		held []string
		note string
	}{
		{name: "control: nothing is prepared", plan: planOf(installedAt),
			held: []string{"in its namespaces: create, get on pods/exec, secrets"}},
		{name: "prepared under the same names", plan: planOf(installedAt), store: both,
			held: []string{"in its namespaces: create, get on pods/exec, secrets"}},
		{name: "prepared, and no plan is left", store: both,
			held: []string{"in its namespaces: create, get on pods/exec, secrets"},
			note: "what etcdoperator.v1 installed besides its ClusterServiceVersion is not known"},
		{name: "an installed role that was widened", plan: planOf(installedAt, extra(narrow)...), store: both,
			held: []string{"in its namespaces: create, get on secrets"}},
		{name: "a plan that was made later", plan: planOf("2026-11-20T09:59:30Z", extra(role)...),
			held: []string{"in its namespaces: create, get on pods/exec, secrets"},
			note: "did not run when it was installed"},
		{name: "control: the installed version brought it", plan: planOf(installedAt, extra(role)...)},
		{name: "control: OLM noted the time before", plan: planOf("2026-11-20T09:59:58Z", extra(role)...)},
		{name: "control: it brought it in an image",
			plan: planOf(installedAt, step{"Role", "etcd-extra", refJSON(t, map[string]string{"name": "old"})}),
			store: map[string]string{"configmaps olm/old": unpacked(t, "0", managed,
				csvJSON(t, "etcdoperator.v1", "configmaps"), role, binding)}},
		{name: "the image of the installed version is gone",
			plan: planOf(installedAt, step{"Role", "etcd-extra", refJSON(t, map[string]string{"name": "old"})}),
			held: []string{"in its namespaces: create, get on pods/exec, secrets"}, note: "ConfigMap olm/old"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &objects{m: map[string]string{at("clusterserviceversions", "shop/etcdoperator.v1"): before,
				at("installplans", "shop/p"): planJSON(t,
					append([]step{{"ClusterServiceVersion", "etcdoperator.v2", after}}, extra(role)...)...)}}
			maps.Copy(store.m, c.store)
			replaces := replacements(t, before)
			if c.plan != "" {
				store.m[at("installplans", "shop/before")], replaces[0].FromPlan = c.plan, "before"
			}
			r, err := Read(t.Context(), store, planKey, replaces)
			if err != nil {
				t.Fatal(err)
			}
			set := r.ByCSV["etcdoperator.v2"]
			var held []string
			for _, d := range of(set, change.Permissions) {
				if !strings.Contains(d.Text, "holders of") {
					held = append(held, d.Text)
				}
			}
			if set.Fault != "" || !slices.Equal(held, c.held) {
				t.Errorf("fault %q, permissions %q, want %q", set.Fault, held, c.held)
			}
			if notes := strings.Join(set.Notes, "; "); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// of returns the differences of a class.
func of(set *change.Set, class change.Class) []change.Difference {
	return slices.DeleteFunc(slices.Clone(set.Differences),
		func(d change.Difference) bool { return d.Class != class })
}
