package harness

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

// Versions of etcd in the catalog of OLM.
const (
	Etcd0 = "etcdoperator.v0.9.0"
	Etcd2 = "etcdoperator.v0.9.2"
	Etcd4 = "etcdoperator.v0.9.4"
)

// The versions that OperatorPolicy below allows, and does not.
const (
	AllowedVersion   = "0.9.2"
	ForbiddenVersion = "0.9.4"
	AllowedCSV       = "etcdoperator.v" + AllowedVersion
	ForbiddenCSV     = "etcdoperator.v" + ForbiddenVersion
	GoodCatalog      = "operatorhubio-catalog"
	ForeignCatalog   = "bargain-catalog"
)

const (
	// OpenShiftNamespace is where OpenShift runs OLM. It is empty on the clusters of these tests.
	OpenShiftNamespace = "openshift-operator-lifecycle-manager"
	// OLMAccount is the name of OLM's ServiceAccount.
	OLMAccount = "olm-operator-serviceaccount"
)

// Spec returns an object with one field in its spec.
func Spec(key string, value any) map[string]any {
	return map[string]any{"spec": map[string]any{key: value}}
}

// Normal returns a value as JSON decodes it, so that numbers of different types compare.
func Normal(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// GroupedPolicy is an enforced policy for a package in a namespace, with an OperatorGroup for that namespace alone.
// Without versions it allows all of them.
func GroupedPolicy(namespace, pkg string, versions ...string) *unstructured.Unstructured {
	return Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s-%[2]s, namespace: %[3]s}
spec:
  remediationAction: enforce
  complianceType: musthave
  operatorGroup: {name: %[1]s, targetNamespaces: [%[1]s]}
  subscription: {name: %[2]s, namespace: %[1]s, channel: %[6]s, source: %[4]s, sourceNamespace: %[5]s}
  versions: [%[7]s]
  upgradeApproval: Automatic
`, namespace, pkg, cluster.PolicyNamespace, olm.Catalog, cluster.OLMNamespace, olm.Channel, strings.Join(versions, ", "))
}

// WithField sets a field of an object.
func WithField(u *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
	return u
}

// Object reads one from YAML.
func Object(format string, args ...any) *unstructured.Unstructured {
	var u unstructured.Unstructured
	if err := yaml.UnmarshalStrict(fmt.Appendf(nil, format, args...), &u.Object); err != nil {
		panic(err)
	}
	return &u
}

// Named has the kind and the name of an object, and nothing else.
func Named(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// CatalogService is the Service that OLM makes for a CatalogSource.
func CatalogService(namespace, name string) *unstructured.Unstructured {
	return Object(`
apiVersion: v1
kind: Service
metadata: {name: %[3]s, namespace: %[1]s, labels: {olm.managed: "true", olm.service-spec-hash: "1"}}
spec: {selector: {olm.catalogSource: %[2]s, olm.managed: "true"}, ports: [{name: grpc, port: 50051, targetPort: 50051}]}
`, namespace, name, strings.ReplaceAll(name, ".", "-"))
}

// OperatorPolicy allows one version of etcd from one catalog in a namespace, and has the namespace's name.
func OperatorPolicy(namespace string) *unstructured.Unstructured {
	return Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: enforce
  complianceType: musthave
  subscription: {name: etcd, namespace: %[1]s, source: %[3]s, sourceNamespace: olm}
  versions: [%[4]s]
  upgradeApproval: Automatic
`, namespace, cluster.PolicyNamespace, GoodCatalog, AllowedCSV)
}

// Subscription subscribes to etcd.
func Subscription(namespace, name, catalog, approval string) *unstructured.Unstructured {
	return Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %s, namespace: %s}
spec: {name: etcd, channel: alpha, source: %s, sourceNamespace: olm, installPlanApproval: %q}
`, name, namespace, catalog, approval)
}

// InstallPlan waits for its approval, as OLM has written it.
func InstallPlan(namespace, name, version string) *unstructured.Unstructured {
	return Object(`
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
`, name, namespace, version, GoodCatalog)
}

// AsJSON returns an object as JSON, for kubectl.
func AsJSON(t testing.TB, u *unstructured.Unstructured) string {
	t.Helper()
	var b strings.Builder
	if err := json.NewEncoder(&b).Encode(u.Object); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// OLMPolicy is OperatorPolicy for the catalog of the OLM in these tests.
func OLMPolicy(namespace, upgradeApproval string, versions ...string) *unstructured.Unstructured {
	return Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: enforce
  complianceType: musthave
  subscription: {name: etcd, namespace: %[1]s, source: %[3]s, sourceNamespace: %[4]s, channel: %[5]s}
  versions: [%[6]s]
  upgradeApproval: %[7]s
`, namespace, cluster.PolicyNamespace, olm.Catalog, cluster.OLMNamespace, olm.Channel, strings.Join(versions, ", "), upgradeApproval)
}

// MergePatch returns a value with a merge patch (RFC 7386) applied. Neither is changed.
func MergePatch(value, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result := map[string]any{}
	if old, ok := value.(map[string]any); ok {
		for key, v := range old {
			result[key] = v
		}
	}
	for key, change := range changes {
		if change == nil {
			delete(result, key)
			continue
		}
		result[key] = MergePatch(result[key], change)
	}
	return result
}
