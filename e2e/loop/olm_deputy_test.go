package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
	"github.com/opgate/opgate/internal/metakey"
	opgateolm "github.com/opgate/opgate/olm"
)

// The subtests of this file make OLM do for a tenant what the tenant may not, by a field that the tenant writes
// (docs/threats.md, what others do for a tenant). Each shows first that OLM does it where nothing is governed.

// The operator that is governed, and its Subscription, as policies name it.
const (
	ledger  = "ledger"
	ledger2 = "ledgeroperator.v0.9.2"
)

func ledgerPackage() olm.Package {
	return olm.Package{Name: ledger, CSV: "ledgeroperator", Versions: []string{"0.9.2", "0.9.4"}, Owns: "Ledger"}
}

// letTenantManage grants the tenant all rights to what OLM reads in a namespace.
func letTenantManage(t *testing.T, e *harness.OLMEnv, namespace string) {
	t.Helper()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, "operators", "--verb=*",
		"--resource=subscriptions.operators.coreos.com,clusterserviceversions.operators.coreos.com,"+
			"operatorgroups.operators.coreos.com,configmaps")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "operators",
		"--role=operators", "--user="+string(cluster.Tenant))
	e.Eventually(t, "create a ConfigMap", func(ctx context.Context) error {
		got, err := e.Kubectl(ctx, cluster.Tenant, "", "create", "configmap", "owner", "-n", namespace)
		if err == nil && got.ExitCode != 0 {
			err = fmt.Errorf("%s", got.Stderr)
		}
		return err
	})
}

const proxyImage = "sidecar.istio.io/proxyImage"

// deputies plays the attacks V2 and V3 on one OLM.
func deputies(t *testing.T, e *harness.OLMEnv) {
	governed, free := e.NewNamespace(t), e.NewNamespace(t)
	for _, namespace := range []string{governed, free} {
		letTenantManage(t, e, namespace)
	}
	e.OperatorGroup(t, free)
	e.Subscribe(t, free, ledger, ledger2, opgateolm.ApprovalManual) // else OLM upgrades it
	e.Approve(t, cluster.Admin, e.WaitForPlan(t, free, ledger2))
	p := harness.WithField(harness.GroupedPolicy(governed, ledger, ledger2), "Deny", "spec", "deletion")
	e.Apply(t, p)
	for _, namespace := range []string{governed, free} {
		e.WaitForCSV(t, namespace, ledger2)
	}
	waitForPolicy(t, e, p, is(compliant), has(ledger2))
	e.Sync(t)
	t.Run("V2 annotations reach pods", func(t *testing.T) { attackV2(t, e, governed, free) })
	t.Run("V3 another package replaces it", func(t *testing.T) { attackV3(t, e, governed, free) })
	t.Run("O82 the image of a catalog", func(t *testing.T) { attackO82(t, e) })
}

// attackV2 annotates an installed ClusterServiceVersion: OLM copies that into the pods (attacks-3, v2).
func attackV2(t *testing.T, e *harness.OLMEnv, governed, free string) {
	annotate := func(namespace, annotation string) []string {
		return []string{"annotate", "clusterserviceversion", ledger2, "-n", namespace, "--overwrite", annotation}
	}
	pods := func(ctx context.Context, namespace string) (map[string]string, error) {
		list, err := e.Clients[cluster.Admin].Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).
			Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return nil, errors.Join(err, errors.New("there is no Deployment"))
		}
		annotations, _, err := unstructured.NestedStringMap(list.Items[0].Object, "spec", "template", "metadata", "annotations")
		return annotations, err
	}
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", annotate(free, proxyImage+"=evil.example/x:1")...)
	e.Eventually(t, "OLM copies an annotation into pods", func(ctx context.Context) error {
		annotations, err := pods(ctx, free)
		if err == nil && annotations[proxyImage] == "" {
			err = fmt.Errorf("the pods have %v", annotations)
		}
		return err
	})
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		harness.WantRefused(t, e.Cluster, user, "", annotate(governed, proxyImage+"=evil.example/x:1"),
			"changing metadata.annotations["+proxyImage+"]", "(csv/frozen)")
	}
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", annotate(governed, "argocd.argoproj.io/tracking-id=a")...)
	if annotations, err := pods(t.Context(), governed); err != nil || annotations[proxyImage] != "" {
		t.Errorf("the governed pods have %v (%v)", annotations, err)
	}
}

// attackV3 writes a ClusterServiceVersion of another package that replaces an installed one: OLM deletes that (attacks-3,
// v3).
func attackV3(t *testing.T, e *harness.OLMEnv, governed, free string) {
	foo := func(namespace string) *unstructured.Unstructured {
		u := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: foo.v1.0.0, namespace: %s}
spec:
  displayName: foo
  version: 1.0.0
  replaces: %s
  installModes: [{type: OwnNamespace, supported: true}, {type: SingleNamespace, supported: true}]
  install: {strategy: deployment, spec: {deployments: []}}
`, namespace, ledger2)
		u.SetAnnotations(map[string]string{metakey.Properties: `{"properties":[{"type":"olm.package","value":{"packageName":"foo","version":"1.0.0"}}]}`})
		return u
	}
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		harness.WantRefused(t, e.Cluster, user, harness.AsJSON(t, foo(governed)), []string{"create", "-f", "-"},
			"with spec.replaces "+ledger2+" of package "+ledger, "(bundle/replaces)")
	}
	e.CreateAs(t, cluster.Tenant, foo(free))
	e.WaitForGone(t, opgateolm.V1alpha1.WithResource("clusterserviceversions"), free, ledger2)
	e.WaitForCSV(t, governed, ledger2)
}

// attackO82 annotates a CatalogSource whose image a Constraint allows: OLM replaces the image (threat O82).
func attackO82(t *testing.T, e *harness.OLMEnv) {
	governed, free := e.NewNamespace(t), e.NewNamespace(t)
	e.Put(t, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: %[1]s}
spec:
  rules:
  - target: catalogSource
    expression: "namespaceObject.metadata.name != '%[1]s' || source.registry == 'registry.example'"
    message: images of registry.example
`, governed))
	e.Sync(t)
	const template = "/x:v{kube_major_version}.{kube_minor_version}"
	catalog := func(namespace, registry string) *unstructured.Unstructured {
		u := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: o82, namespace: %s}
spec: {sourceType: grpc, image: registry.example/x:v1}
`, namespace)
		u.SetAnnotations(map[string]string{metakey.ImageTemplate: registry + template})
		return u
	}
	e.Put(t, catalog(free, "evil.example"))
	e.Eventually(t, "OLM replaces the image of a catalog", func(context.Context) error {
		image, _, err := unstructured.NestedString(e.Stored(t, catalog(free, "")).Object, "spec", "image")
		if err == nil && !strings.HasPrefix(image, "evil.example/x:v1.") {
			err = fmt.Errorf("it is %s", image)
		}
		return err
	})
	harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, catalog(governed, "evil.example")), []string{"create", "-f", "-"},
		"with the image of annotation "+metakey.ImageTemplate, "(catalogsource/constraint)")
	e.Put(t, catalog(governed, "registry.example"))
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", []string{"annotate", "catalogsource", "o82", "-n", governed, "--overwrite",
		metakey.ImageTemplate + "=evil.example" + template}, "(catalogsource/constraint)")
}
