package plugin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cluster"
)

const historyDocument = `
apiVersion: operators.coreos.com/v1alpha1
kind: InstallPlan
metadata:
  name: %[1]s
  namespace: shop
  creationTimestamp: "%[2]s"
  annotations: {%[5]s}
  managedFields:
  - {manager: catalog, fieldsV1: {"f:spec": {"f:approval": {}}}}
  - {manager: kubectl-patch, fieldsV1: {"f:spec": {"f:approved": {}}}}
spec: {approval: Manual, approved: %[4]t, clusterServiceVersionNames: [etcd.v%[3]s]}
status:
  phase: %[6]s
  conditions: [{type: Installed, status: "%[7]s", lastTransitionTime: "2026-01-02T03:05:00Z"}]
  bundleLookups:
  - identifier: etcd.v%[3]s
    path: example.com/etcd:v%[3]s
    properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"%[3]s"}}]}'
  plan:
  - resolving: etcd.v%[3]s
    resource: {group: operators.coreos.com, version: v1alpha1, kind: ClusterServiceVersion, name: etcd.v%[3]s, manifest: '{"kind":"ClusterServiceVersion","metadata":{"name":"etcd.v%[3]s"}}'}
`

// TestHistory shows plans in their order, with who approved and consented, and what is installed without a plan.
func TestHistory(t *testing.T) {
	documents := strings.Join([]string{
		fmt.Sprintf(historyDocument, "second", "2026-01-03T00:00:00Z", "2.0.0", false, "", "RequiresApproval", "False"),
		fmt.Sprintf(historyDocument, "first", "2026-01-02T03:04:05Z", "1.0.0", true,
			`opgate.io/consent: "sha256:aa, sha256:bb", opgate.io/consent-by: "alice\e[2J", opgate.io/override-reason: incident 7`, "Complete", "True"),
		`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: etcd.v0
  namespace: other
  creationTimestamp: "2025-12-01T00:00:00Z"
  annotations: {operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.0"}}]}'}
`}, "\n---\n")
	a := approvers{by: map[types.NamespacedName]string{}}
	state := &cluster.State{Snapshot: snapshotOf(t, documents, a.see)}
	var out, stderr bytes.Buffer
	if err := printHistory(&out, &stderr, "", historyOf(state, "etcd", a.by)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"CREATED NAMESPACE VERSION CSV PLAN PHASE INSTALLED APPROVED CHANGE",
		"2025-12-01T00:00:00Z other 0.9.0 etcd.v0 - installed - - -",
		`2026-01-02T03:04:05Z shop 1.0.0 etcd.v1.0.0 first Complete 2026-01-02T03:05:00Z through kubectl-patch, consent of alice [2J, override: incident 7 sha256:aa,sha256:bb`,
		"2026-01-03T00:00:00Z shop 2.0.0 etcd.v2.0.0 second RequiresApproval - no -",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	out.Reset()
	if err := printHistory(&out, &stderr, "", historyOf(state, "vault", a.by)); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 || stderr.String() != "the cluster has nothing of package vault\n" {
		t.Errorf("got %q, %q", out.String(), stderr.String())
	}
}
