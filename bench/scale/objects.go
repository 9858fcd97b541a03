package scale

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const (
	// allowed is the version that policies allow, refused is that of the plan which each namespace has from the start.
	allowed, refused = "0.9.2", "0.9.4"
	// firstPlan has the refused version, secondPlan the allowed one.
	firstPlan, secondPlan = "install-first", "install-second"
	subscription          = "etcd"
	policyNamespace       = "policies"
)

var (
	olmV1alpha1    = schema.GroupVersion{Group: "operators.coreos.com", Version: "v1alpha1"}
	namespaces     = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	operatorGroups = schema.GroupVersionResource{Group: "operators.coreos.com", Version: "v1",
		Resource: "operatorgroups"}
	subscriptions  = olmV1alpha1.WithResource("subscriptions")
	installPlans   = olmV1alpha1.WithResource("installplans")
	catalogSources = olmV1alpha1.WithResource("catalogsources")
	policies       = schema.GroupVersionResource{Group: "policy.open-cluster-management.io", Version: "v1beta2",
		Resource: "operatorpolicies"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	packageManifests = schema.GroupVersionResource{Group: "packages.operators.coreos.com", Version: "v1",
		Resource: "packagemanifests"}
	validating = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingwebhookconfigurations"}
)

//go:embed testdata/objects.yaml
var templates []byte

// objectOf returns the object of a kind in testdata, for a namespace.
func objectOf(kind, namespace, version, plan string) (*unstructured.Unstructured, error) {
	for _, document := range bytes.Split(templates, []byte("\n---\n")) {
		text := strings.NewReplacer("NAMESPACE", namespace, "VERSION", version, "PLAN", plan).Replace(string(document))
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			return nil, err
		}
		if u.GetKind() == kind {
			return u, nil
		}
	}
	return nil, fmt.Errorf("there is no %s in testdata/objects.yaml", kind)
}

// planOf returns a plan with steps as OLM writes them for a bundle that it has unpacked: each manifest is a reference
// to a ConfigMap.
func planOf(namespace, name, version string, owner *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	plan, err := objectOf("InstallPlan", namespace, version, name)
	if err != nil {
		return nil, err
	}
	no := false
	plan.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(),
		Name: owner.GetName(), UID: owner.GetUID(),
		Controller: &no, BlockOwnerDeletion: &no}})
	status := plan.Object["status"].(map[string]any)
	properties := status["bundleLookups"].([]any)[0].(map[string]any)["properties"]
	manifest, err := json.Marshal(map[string]any{"kind": "ConfigMap",
		"name": "2d8bb4a0a2ac2b6b3d2d8fdd0bd8bd2c6f7b8d6ab5c9cf4d3d2f87e5fe3f1b0", "namespace": "olm",
		"catalogSourceName": "operatorhubio-catalog", "catalogSourceNamespace": "olm", "replaces": "",
		"properties": properties})
	if err != nil {
		return nil, err
	}
	csv := "etcdoperator.v" + version
	var steps []any
	for _, r := range [][4]string{
		{"operators.coreos.com", "v1alpha1", "ClusterServiceVersion", csv},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "etcdclusters.etcd.database.coreos.com"},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "etcdbackups.etcd.database.coreos.com"},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "etcdrestores.etcd.database.coreos.com"},
		{"", "v1", "ServiceAccount", "etcd-operator"},
		{"rbac.authorization.k8s.io", "v1", "Role", csv},
		{"rbac.authorization.k8s.io", "v1", "RoleBinding", csv},
		{"rbac.authorization.k8s.io", "v1", "ClusterRole", csv},
		{"rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", csv},
		{"", "v1", "Service", "etcd-restore-operator"},
	} {
		steps = append(steps, map[string]any{"resolving": csv, "status": "Unknown",
			"resource": map[string]any{"group": r[0], "version": r[1], "kind": r[2],
				"name": r[3], "sourceName": "operatorhubio-catalog", "sourceNamespace": "olm",
				"manifest": string(manifest)}})
	}
	status["plan"] = steps
	return plan, nil
}
