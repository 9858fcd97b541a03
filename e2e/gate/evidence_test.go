package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/state"
)

// TestB4EvidenceIsKept: a user who may do anything with ConfigMaps and Leases makes a version older than it is in the
// record by which spec.minimumAge holds it, and a cluster admin tries the same (attack b4).
func TestB4EvidenceIsKept(t *testing.T) {
	e := harness.Shared(t)
	s := scenarioNamed(t, e, "bundle-minimum-age")
	setUp(t, e, []*scenario.Scenario{s})
	for name, kind := range map[string]string{ // this process writes those that it needs
		kept.CA: "v1, kind: ConfigMap", kept.Lease: "coordination.k8s.io/v1, kind: Lease",
	} {
		u := harness.Object("{apiVersion: %s, metadata: {name: %s, namespace: %s}}", kind, name, cluster.OpgateNamespace)
		if e.Stored(t, u) == nil {
			e.Put(t, u)
		}
	}
	e.Sync(t)
	i := slices.IndexFunc(s.Cluster, func(u *unstructured.Unstructured) bool { return u.GetName() == catalog.RecordsName })
	forged, err := json.Marshal(map[string]any{"data": s.Cluster[i].Object["data"]})
	if err != nil {
		t.Fatal(err)
	}
	forged = []byte(strings.Replace(string(forged), "4922000000", "1", 1))
	approve := []string{"patch", "installplan", "-n", "shop", "install-x7", "--type=merge", "--dry-run=server", "-p",
		`{"spec":{"approved":true}}`}
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", approve, "(bundle/minimum-age)")

	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrole", "b4", "--verb=*",
		"--resource=configmaps,leases.coordination.k8s.io")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrolebinding", "b4", "--clusterrole=b4", "--user=b4")
	t.Cleanup(func() {
		_, err := e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", "clusterrole,clusterrolebinding", "b4")
		if err != nil {
			t.Error(err)
		}
	})
	in := func(args ...string) []string { return append(args, "-n", cluster.OpgateNamespace) }
	as := func(args ...string) []string { return append(in(args...), "--as=b4") }
	patched := func(kind, name, patch string) []string {
		return []string{"patch", kind, name, "--type=merge", "-p", patch}
	}
	// The control: other ConfigMaps there are the user's to write.
	for _, args := range [][]string{{"create", "configmap", "kube-root-ca.crt"},
		patched("configmap", "kube-root-ca.crt", `{"data":{"a":"b"}}`), {"delete", "configmap", "kube-root-ca.crt"}} {
		harness.Eventually(t, "the right is granted", func(ctx context.Context) error {
			result, err := e.Kubectl(ctx, cluster.Admin, "", as(args...)...)
			if err == nil && result.ExitCode != 0 {
				err = errors.New(result.Stderr)
			}
			return err
		})
	}
	writes := map[string][]string{
		"the record of catalogs":     patched("configmap", kept.Catalogs, string(forged)),
		"an owner that is not there": patched("configmap", kept.Catalogs, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"1"}]}}`),
		"a label":                    {"label", "configmap", kept.Catalogs, metakey.Record + "=b"},
		"an annotation":              {"annotate", "lease", kept.Lease, metakey.UnreviewedInstalls + "=[]"},
		"a record that is planted":   {"create", "configmap", state.RecordName("b4")},
		"the Lease":                  patched("lease", kept.Lease, `{"spec":{"holderIdentity":"b4","leaseDurationSeconds":100000}}`),
		"the CA":                     patched("configmap", kept.CA, `{"data":{"ca.crt":"b4"}}`),
		"by server-side apply":       {"apply", "--server-side", "--force-conflicts", "-f", "-"},
		"a key that is taken away":   patched("configmap", kept.Catalogs, `{"data":null}`),
	}
	for what, args := range writes {
		t.Run(what, func(t *testing.T) {
			input := ""
			if args[0] == "apply" {
				input = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + kept.Catalogs + `"},` + string(forged[1:])
			}
			harness.WantRefused(t, e.Cluster, cluster.Admin, input, as(args...), harness.HeldEvidence)
			harness.WantRefused(t, e.Cluster, cluster.Admin, input, in(args...), harness.HeldEvidence)
		})
	}
	for _, args := range [][]string{{"delete", "configmap", kept.Catalogs}, {"delete", "lease", kept.Lease},
		{"delete", "--raw", "/api/v1/namespaces/" + cluster.OpgateNamespace +
			"/configmaps?fieldSelector=metadata.name%3D" + kept.Catalogs}} {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", as(args...), harness.HeldEvidence)
	}
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", approve, "(bundle/minimum-age)")

	e.WantRecordsKept(t, 1) // the Lease
	for _, user := range []string{"system:serviceaccount:kube-system:namespace-controller",
		"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager", ""} {
		args := in("delete", "configmap", kept.Catalogs, "--dry-run=server")
		if user != "" { // else a cluster admin, as docs/backup.md has it
			args = append(args, "--as="+user, "--as-group=system:masters")
		}
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", args...)
	}
	// Another release has another account; and what the record decides.
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", append(in(patched("configmap", kept.Catalogs, string(forged))...),
		"--as=system:serviceaccount:"+cluster.OpgateNamespace+":opgate-next", "--as-group=system:masters")...)
	e.SyncGate(t)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", approve...)
}

// scenarioNamed returns a scenario.
func scenarioNamed(t *testing.T, e *harness.Env, name string) *scenario.Scenario {
	t.Helper()
	scenarios := scenariotest.Load(t, "../scenarios", scenario.Versions{Kubernetes: kubernetesVersion(t, e),
		OpenShift: harness.OpenShiftVersion})
	for _, s := range scenarios {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scenario %s", name)
	return nil
}
