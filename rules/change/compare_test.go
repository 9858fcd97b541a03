package change

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/olm"
)

// texts returns "class: text" of each difference, with "!" before risky ones.
func texts(s *Set) []string {
	var all []string
	for _, d := range s.Differences {
		all = append(all, strings.Repeat("!", int(d.Risk))+string(d.Class)+": "+d.Text)
	}
	return all
}

// compare compares and fails on a Fault.
func compare(t testing.TB, from, to *Contents) *Set {
	t.Helper()
	s := Compare(from, to)
	if s.Fault != "" {
		t.Fatal(s.Fault)
	}
	return s
}

// TestUpgrade is the upgrade of etcd that the requirement names: three differences, whether its bundle is in the plan
// or in a ConfigMap.
func TestUpgrade(t *testing.T) {
	from := read(t, "etcdoperator.v0.9.2", inline(t, "etcd-0.9.2", "shop", properties092, "etcdoperator.v0.9.0"))
	want := []string{
		"!permissions: cluster-wide: * on secrets",
		"!webhooks: adds mutating webhook mpods.etcd.database.coreos.com: CREATE of pods",
		"breakingCRDs: etcdclusters.etcd.database.coreos.com: version v1beta1 is removed",
	}
	set := compare(t, from, unpacked(t, "etcd-0.9.4", "etcdoperator.v0.9.4", properties094, "etcdoperator.v0.9.2"))
	if diff := cmp.Diff(want, texts(set)); diff != "" {
		t.Errorf("from a ConfigMap (-want +got):\n%s", diff)
	}
	inline := compare(t, from, read(t, "etcdoperator.v0.9.4",
		inline(t, "etcd-0.9.4", "shop", properties094, "etcdoperator.v0.9.2")))
	if diff := cmp.Diff(set, inline); diff != "" {
		t.Errorf("a plan with the manifests differs from one with the ConfigMap:\n%s", diff)
	}
	if set.Digest() == "" || set.Digest() != inline.Digest() {
		t.Errorf("digests %q and %q", set.Digest(), inline.Digest())
	}
	const summary = "permissions: cluster-wide: * on secrets; webhooks: adds mutating webhook mpods.etcd.database.coreos.com: CREATE of pods; " +
		"breakingCRDs: etcdclusters.etcd.database.coreos.com: version v1beta1 is removed"
	if got := set.Summary(Reviewable); got != summary {
		t.Errorf("summary %q, want %q", got, summary)
	}
	other := func(d Difference) bool { return d.Class != Webhooks }
	if got := slices.DeleteFunc(slices.Clone(set.Differences), other); len(got) != 1 || got[0].Risk != Risky {
		t.Errorf("webhooks %v", got)
	}
	if set.Package != "etcd" || set.Version != "0.9.4" || set.FromVersion != "0.9.2" {
		t.Errorf("package %q, version %q, from %q", set.Package, set.Version, set.FromVersion)
	}
}

// TestSameDigestEverywhere upgrades in two clusters: other namespaces, names of derived objects, and channels.
func TestSameDigestEverywhere(t *testing.T) {
	digest := func(namespace, replaces string) string {
		from := read(t, "etcdoperator.v0.9.2", inline(t, "etcd-0.9.2", namespace, properties092, ""))
		return compare(t, from, read(t, "etcdoperator.v0.9.4",
			inline(t, "etcd-0.9.4", namespace, properties094, replaces))).Digest()
	}
	if a, b := digest("shop", "etcdoperator.v0.9.2"), digest("other", "etcdoperator.v0.9.3"); a != b {
		t.Errorf("digests %s and %s", a, b)
	}
}

// TestOtherContents changes one verb under the same name: the digest must differ, or consent would hold for contents
// that were not shown.
func TestOtherContents(t *testing.T) {
	from := read(t, "etcdoperator.v0.9.2", inline(t, "etcd-0.9.2", "shop", properties092, ""))
	digests := map[string]string{}
	for _, change := range []struct{ name, old, changed string }{
		{"nothing", "", ""},
		{"a verb", `"resources":["configmaps"]`, `"resources":["configmaps","nodes"]`},
		{"a release", `\"version\":\"0.9.4\"`, `\"version\":\"0.9.4\",\"release\":\"2\"`},
		{"another release", `\"version\":\"0.9.4\"`, `\"version\":\"0.9.4\",\"release\":\"3\"`},
		{"an image", "etcd-operator:v0.9.4", "etcd-operator:v0.9.5"},
		{"a command", "--create-crd=false", "--create-crd=true"},
		{"a schema", `"maxLength":63`, `"maxLength":64`},
		{"a message of a rule", "no more quorum", "a quorum"},
	} {
		steps := inline(t, "etcd-0.9.4", "shop", properties094, "")
		for i, step := range steps {
			steps[i] = json.RawMessage(strings.ReplaceAll(string(step), change.old, change.changed))
		}
		digest := compare(t, from, read(t, "etcdoperator.v0.9.4", steps)).Digest()
		if other, known := digests[digest]; known {
			t.Errorf("changing %s has the digest of changing %s", change.name, other)
		}
		digests[digest] = change.name
	}
}

// TestStoredDefinition compares a CustomResourceDefinition with how kube-apiserver 1.36.3 stores it: with defaults, in
// its own order.
func TestStoredDefinition(t *testing.T) {
	stored, err := os.ReadFile("testdata/stored-etcd-0.9.2.json")
	if err != nil {
		t.Fatal(err)
	}
	from := inline(t, "etcd-0.9.2", "shop", properties092, "")
	for i, step := range from {
		if strings.Contains(string(step), `"kind":"CustomResourceDefinition"`) {
			from[i] = stored
		}
	}
	to := read(t, "etcdoperator.v0.9.2", inline(t, "etcd-0.9.2", "shop", properties092, ""))
	if set := compare(t, read(t, "etcdoperator.v0.9.2", from), to); len(set.Differences) != 0 {
		t.Errorf("differences to what is stored: %q", texts(set))
	}
}

// TestFirstInstallation shows everything.
func TestFirstInstallation(t *testing.T) {
	set := compare(t, ReadContents("", "", nil), read(t, "etcdoperator.v0.9.4",
		inline(t, "etcd-0.9.4", "shop", properties094, "")))
	want := []string{
		"!permissions: cluster-wide: * on secrets",
		"!permissions: in its namespaces: * on deployments (apps)",
		"!permissions: in its namespaces: * on endpoints, events, persistentvolumeclaims, pods, services",
		"!permissions: in its namespaces: * on etcdclusters (etcd.database.coreos.com)",
		"!webhooks: adds mutating webhook mpods.etcd.database.coreos.com: CREATE of pods",
		"permissions: cluster-wide: get, list, watch on configmaps",
		"permissions: runs as ServiceAccount etcd-operator",
		"podSecurity: allowPrivilegeEscalation is not false",
		"podSecurity: automountServiceAccountToken is not false",
		"podSecurity: capabilities ALL are not dropped",
		"podSecurity: hostUsers is not false",
		"podSecurity: metadata.labels.name etcd-operator-alm-owned",
		"podSecurity: readOnlyRootFilesystem is not true",
		"podSecurity: runAsNonRoot is not true",
		"podSecurity: seccompProfile is not set",
		"images: images from quay.io/coreos",
		"scope: adds Deployment etcd-operator",
		"scope: supports install mode AllNamespaces",
		"scope: supports install mode OwnNamespace",
		"scope: supports install mode SingleNamespace",
		"crds: adds etcdclusters.etcd.database.coreos.com (kind EtcdCluster, Namespaced, versions v1beta2)",
		"requirements: requires Kubernetes 1.20.0",
		"requirements: requires package vault",
	}
	if diff := cmp.Diff(want, texts(set)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if set.From != "" {
		t.Errorf("from %q", set.From)
	}
}

// TestSpec is the digest by which the ClusterServiceVersion that OLM creates is known.
func TestSpec(t *testing.T) {
	steps := inline(t, "etcd-0.9.4", "shop", properties094, "etcdoperator.v0.9.2")
	i := slices.IndexFunc(steps,
		func(s json.RawMessage) bool { return strings.Contains(string(s), `"kind":"ClusterServiceVersion"`) })
	csv, err := olm.Decode[olm.CSV](steps[i])
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]*Contents{
		"inline":    read(t, "etcdoperator.v0.9.4", steps),
		"ConfigMap": unpacked(t, "etcd-0.9.4", "etcdoperator.v0.9.4", properties094, "etcdoperator.v0.9.2"),
	} {
		if set := compare(t, ReadContents("", "", nil), to); set.Spec != csv.Spec.ContentsDigest() {
			t.Errorf("%s: another digest than that of the step", name)
		}
	}
}
