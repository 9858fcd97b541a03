package check

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opgate/opgate/internal/cputime"
)

// benchmarkDocuments is the number of documents that the benchmark judges.
const benchmarkDocuments = 5000

// BenchmarkFormats judges 5,000 documents in each format: a policy, a Subscription, a plan that is refused, an
// installed operator and the Namespace, in 1,000 namespaces. The result is CPU time, which another process on the
// machine does not change.
func BenchmarkFormats(b *testing.B) {
	var text bytes.Buffer
	for i := range benchmarkDocuments / 5 {
		fmt.Fprintf(&text, `
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: etcd, namespace: ns%04[1]d}
spec:
  remediationAction: enforce
  complianceType: musthave
  upgradeApproval: Automatic
  subscription: {name: etcd, namespace: ns%04[1]d, source: community, sourceNamespace: olm}
  versions: [etcd.v0.9.2]
---
apiVersion: v1
kind: Namespace
metadata: {name: ns%04[1]d}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: etcd, namespace: ns%04[1]d}
spec: {name: etcd, channel: alpha, source: other, sourceNamespace: olm, installPlanApproval: Manual}
---
apiVersion: operators.coreos.com/v1alpha1
kind: InstallPlan
metadata: {name: install, namespace: ns%04[1]d}
spec: {approval: Manual, approved: false, clusterServiceVersionNames: [etcd.v0.9.4]}
status:
  phase: RequiresApproval
  catalogSources: [community]
  bundleLookups:
  - identifier: etcd.v0.9.4
    path: quay.io/x/etcd
    replaces: etcd.v0.9.2
    catalogSourceRef: {name: community, namespace: olm}
    properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4"}}]}'
---
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: etcd.v0.9.2
  namespace: ns%04[1]d
  annotations:
    operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}}]}'
spec: {displayName: etcd}
---`, i)
	}
	file := filepath.Join(b.TempDir(), "many.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	runs := map[string][]string{}
	for format := range formats {
		runs[format] = []string{file, "-o", format}
	}
	for name, args := range runs {
		b.Run(name, func(b *testing.B) {
			before := cputime.Used()
			for b.Loop() {
				cmd := Command(time.Now)
				cmd.SetArgs(args)
				cmd.SetOut(&bytes.Buffer{})
				cmd.SetErr(&bytes.Buffer{})
				_ = cmd.Execute() // it refuses
			}
			b.ReportMetric((cputime.Used()-before).Seconds()/float64(b.N), "cpu-s/op")
			b.ReportMetric(0, "ns/op") // it depends on what else runs
		})
	}
}
