package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
)

// What the policy below allows, and what it does not.
const (
	allowedVersion   = "0.9.2"
	forbiddenVersion = "0.9.4"
	allowedCSV       = "etcdoperator.v" + allowedVersion
	forbiddenCSV     = "etcdoperator.v" + forbiddenVersion
	goodCatalog      = "operatorhubio-catalog"
	foreignCatalog   = "bargain-catalog"
)

// newNamespace creates a namespace of the tenant's. Nothing deletes namespaces here, so each has a name of its own.
func (e *env) newNamespace(t *testing.T) string {
	t.Helper()
	name := "shop-" + rand.String(8)
	e.needNamespace(t, name, true)
	return name
}

// object reads one from YAML.
func object(format string, args ...any) *unstructured.Unstructured {
	var u unstructured.Unstructured
	if err := yaml.UnmarshalStrict(fmt.Appendf(nil, format, args...), &u.Object); err != nil {
		panic(err)
	}
	return &u
}

// policy allows one version of etcd from one catalog in a namespace, and has its name.
func policy(namespace string) *unstructured.Unstructured {
	return object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: enforce
  complianceType: musthave
  subscription: {name: etcd, namespace: %[1]s, source: %[3]s, sourceNamespace: olm}
  versions: [%[4]s]
  upgradeApproval: Automatic
`, namespace, cluster.PolicyNamespace, goodCatalog, allowedCSV)
}

func subscription(namespace, name, catalog, approval string) *unstructured.Unstructured {
	return object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %s, namespace: %s}
spec: {name: etcd, channel: alpha, source: %s, sourceNamespace: olm, installPlanApproval: %q}
`, name, namespace, catalog, approval)
}

// plan waits for its approval, as OLM has written it.
func plan(namespace, name, version string) *unstructured.Unstructured {
	return object(`
apiVersion: operators.coreos.com/v1alpha1
kind: InstallPlan
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  approval: Manual
  approved: false
  generation: 1
  clusterServiceVersionNames: [etcdoperator.v%[3]s]
status:
  phase: RequiresApproval
  catalogSources: [%[4]s]
  bundleLookups:
    - identifier: etcdoperator.v%[3]s
      path: quay.io/example/etcdoperator:v%[3]s
      replaces: ""
      catalogSourceRef: {namespace: olm, name: %[4]s}
      properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"%[3]s"}}]}'
  plan:
    - resolving: etcdoperator.v%[3]s
      status: Unknown
      resource:
        group: operators.coreos.com
        version: v1alpha1
        kind: ClusterServiceVersion
        name: etcdoperator.v%[3]s
        sourceName: %[4]s
        sourceNamespace: olm
        manifest: '{"kind":"ClusterServiceVersion","metadata":{"name":"etcdoperator.v%[3]s"}}'
`, name, namespace, version, goodCatalog)
}

func asJSON(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	var b strings.Builder
	if err := json.NewEncoder(&b).Encode(u.Object); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
