package gate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// The images that a catalog's tag points to, one after the other.
const (
	reviewedDigest = "sha256:0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
	movedDigest    = "sha256:4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b"
)

// TestMovedTag moves the tag of a catalog: OLM replaces its pod, and the CatalogSource stays the same (threat O26). No
// plan from it is approved until the digest is accepted, and then it is.
func TestMovedTag(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: %s, namespace: olm}
spec: {sourceType: grpc, image: "registry.example/catalog:latest"}
`, harness.GoodCatalog))
	e.Put(t, harness.CatalogService("olm", harness.GoodCatalog))
	pod := e.Put(t, catalogPod("serving", reviewedDigest))
	accepted := func(digests string) *unstructured.Unstructured {
		u := harness.Object("{apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: %s}}", namespace)
		u.Object["spec"] = map[string]any{"constraints": `[{"type":"olm.constraint","value":{"rule":"namespaceObject.metadata.name != '` +
			namespace + `' || catalog.digest in [` + digests + `]"}}]`}
		return u
	}
	e.Put(t, accepted("'"+reviewedDigest+"'"))
	plan := func(name string) []string {
		e.Put(t, harness.InstallPlan(namespace, name, harness.AllowedVersion))
		e.Sync(t)
		return []string{"patch", "installplan", "-n", namespace, name, "--type=merge", "--patch",
			`{"spec":{"approved":true}}`}
	}
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", plan("install-reviewed")...)
	// The command in docs/sources.md prints the digest.
	printed := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "pods", "-n", "olm", "-l",
		"olm.catalogSource="+harness.GoodCatalog, "-o",
		`jsonpath={range .items[*]}{.status.initContainerStatuses[?(@.name=="extract-content")].imageID}{" "}{.status.containerStatuses[*].imageID}{"\n"}{end}`)
	harness.WantTexts(t, printed, "@"+reviewedDigest)

	moved := e.Put(t, catalogPod("moved", movedDigest))
	approve := plan("install-moved")
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", approve, "is held by Constraint "+namespace,
		"(bundle/constraint)", "pods with different images")
	e.Remove(t, pod)
	e.Sync(t)
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", approve, "is not allowed by Constraint "+namespace,
		"(bundle/constraint)", reviewedDigest)

	e.Apply(t, accepted("'"+reviewedDigest+"','"+movedDigest+"'"))
	e.Sync(t)
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", approve...)

	// A pod that has ended serves nothing.
	if err := unstructured.SetNestedField(moved.Object, "Failed", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Clients[cluster.OLM].Of(moved).UpdateStatus(t.Context(), moved, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", plan("install-ended"), "is held by Constraint "+namespace,
		"no pod that runs")
}

// TestH1CatalogService: the pods of a catalog run an image that is accepted, and OLM connects to others, by a second
// CatalogSource with the same Service or by another selector or port of the Service (attack h1).
func TestH1CatalogService(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	const source = "{apiVersion: operators.coreos.com/v1alpha1, kind: CatalogSource, metadata: {name: %s, namespace: olm}, " +
		`spec: {sourceType: grpc, image: "registry.example/catalog:latest"}}`
	e.Put(t, harness.Object(source, harness.GoodCatalog))
	e.Put(t, catalogPod("serving", reviewedDigest))
	constraint := harness.Object("{apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: %s}}", namespace)
	constraint.Object["spec"] = map[string]any{"constraints": `[{"type":"olm.constraint","value":{"rule":"namespaceObject.metadata.name != '` +
		namespace + `' || catalog.digest == '` + reviewedDigest + `'"}}]`}
	e.Put(t, constraint)
	e.Put(t, harness.InstallPlan(namespace, "install-1", harness.AllowedVersion))
	approve := []string{"patch", "installplan", "-n", namespace, "install-1", "--type=merge", "--dry-run=server", "--patch",
		`{"spec":{"approved":true}}`}
	wantHeld := func(t *testing.T) {
		t.Helper()
		e.Sync(t)
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", approve, "is held by Constraint "+namespace,
			"a Service that does not lead to them alone")
	}
	wantAllowed := func(t *testing.T) {
		t.Helper()
		e.Sync(t)
		harness.Kubectl(t, e.Cluster, cluster.Tenant, "", approve...)
	}
	wantHeld(t) // OLM has made no Service yet
	service := e.Put(t, harness.CatalogService("olm", harness.GoodCatalog))
	wantAllowed(t)

	t.Run("another catalog has the Service", func(t *testing.T) {
		other := e.Put(t, harness.Object(source, strings.ReplaceAll(harness.GoodCatalog, "-", ".")))
		wantHeld(t)
		e.Remove(t, other)
		wantAllowed(t)
	})
	for what, patch := range map[string][2]string{
		"it selects other pods": {`{"selector":{"olm.catalogSource":null,"olm.managed":null,"app":"evil"}}`,
			`{"selector":{"olm.catalogSource":"` + harness.GoodCatalog + `","olm.managed":"true","app":null}}`},
		"it selects none":            {`{"selector":null}`, `{"selector":{"olm.catalogSource":"` + harness.GoodCatalog + `","olm.managed":"true"}}`},
		"it leads to another port":   {`{"ports":[{"port":50051,"targetPort":50052}]}`, `{"ports":[{"port":50051,"targetPort":50051}]}`},
		"it is a name of DNS":        {`{"type":"ExternalName","externalName":"evil.example"}`, `{"type":"ClusterIP","externalName":null}`},
		"it has another port beside": {`{"ports":[{"name":"a","port":50051},{"name":"b","port":50052}]}`, `{"ports":[{"port":50051,"targetPort":50051}]}`},
	} {
		t.Run(what, func(t *testing.T) {
			e.Patch(t, cluster.Admin, service, `{"spec":`+patch[0]+`}`)
			wantHeld(t)
			e.Patch(t, cluster.Admin, service, `{"spec":`+patch[1]+`}`)
			wantAllowed(t)
		})
	}
	t.Run("it is not OLM's", func(t *testing.T) {
		e.Patch(t, cluster.Admin, service, `{"metadata":{"labels":{"olm.service-spec-hash":null}}}`)
		wantHeld(t)
	})
}

// catalogPod is a pod of the catalog, as a node reports it.
func catalogPod(name, digest string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: olm, labels: {olm.catalogSource: %[2]s}}
spec:
  containers: [{name: registry-server, image: "registry.example/catalog:latest"}]
status:
  phase: Running
  containerStatuses:
    - {name: registry-server, image: "registry.example/catalog:latest", imageID: "registry.example/catalog@%[3]s", ready: true, restartCount: 0}
`, name, harness.GoodCatalog, digest)
}
