package install_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/install"
	"github.com/opgate/opgate/e2e/olm"
	"github.com/opgate/opgate/tools/bundle"
)

const (
	opgateFirst  = "opgate.v0.1.0"
	opgateSecond = "opgate.v0.2.0"
	opgateBroken = "opgate.v0.3.0"
	// missingImage is no image that a node could pull.
	missingImage = "registry.invalid/opgate"
)

// bundled is a site on which OLM installs Opgate.
type bundled struct {
	*install.Site
	olm *harness.OLMEnv
}

// TestBundle has a real OLM install Opgate from a bundle, upgrade it while a Constraint is in force that would forbid
// it, and remove it. Its cluster is its own, since OLM installs Opgate there.
func TestBundle(t *testing.T) {
	t.Parallel()
	s := bundled{Site: install.Start(t)}
	s.olm = &harness.OLMEnv{Env: s.Env}
	var err error
	if s.olm.OLM, err = olm.Start(t.Context(), s.Cluster, olm.Options{
		Packages: []olm.Package{opgatePackage(t)}, Node: true, WithoutPackageServer: true, Log: os.Stderr,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.olm.OLM.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("OLM installs it", s.subscribe)
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	s.wantOwner(t)
	t.Run("OLM lets no one write policies", func(t *testing.T) {
		if roles := s.Admin(t, "get", "clusterroles", "-o", "name"); strings.Contains(roles,
			"operatorpolicies.policy.open-cluster-management.io-") {
			t.Errorf("OLM has made roles for OperatorPolicies: %s", roles)
		}
	})
	t.Run("OLM upgrades it under a Constraint that forbids it",
		func(t *testing.T) { s.upgradeConstrained(t, namespace) })
	if *harness.Long {
		t.Run("a version that does not start changes nothing", func(t *testing.T) { s.upgradeBroken(t, namespace) })
	}
	s.WantNothingForbidden(t)
	t.Run("removed, it leaves OLM writable", func(t *testing.T) { s.remove(t, namespace) })
	if *harness.Long {
		t.Run("it can be installed again", func(t *testing.T) {
			s.subscribe(t)
			s.WantGate(t, namespace)
		})
	}
}

// subscribe applies what the manual states, for the first version, and approves the plan that OLM makes.
func (s bundled) subscribe(t *testing.T) {
	manifests := strings.NewReplacer("source: opgate\n", "source: "+olm.Catalog+"\n", "channel: candidate\n",
		"channel: candidate\n  startingCSV: "+opgateFirst+"\n").
		Replace(install.DocumentedBlock(t, "kind: OperatorGroup"))
	harness.Kubectl(t, s.Cluster, cluster.Admin, manifests, "apply", "-f", "-")
	s.approve(t, opgateFirst)
	s.olm.WaitForCSV(t, cluster.OpgateNamespace, opgateFirst)
}

// approve approves the plan for a version of Opgate, as the admin.
func (s bundled) approve(t *testing.T, csv string) {
	t.Helper()
	s.olm.Approve(t, cluster.Admin, s.olm.WaitForPlan(t, cluster.OpgateNamespace, csv))
}

// resolveAgain makes OLM resolve the Subscription once more, where it did while the version before was being deleted,
// and failed.
func (s bundled) resolveAgain(t *testing.T) {
	t.Helper()
	tries := 0
	s.olm.Eventually(t, "OLM resolves the Subscription", func(context.Context) error {
		const failed = `jsonpath={.status.conditions[?(@.type=="ResolutionFailed")].message}`
		message := s.Admin(t, "get", "subscriptions.operators.coreos.com", "opgate", "-n", cluster.OpgateNamespace,
			"-o", failed)
		if message == "" {
			return nil
		}
		tries++
		s.Admin(t, "annotate", "subscriptions.operators.coreos.com", "opgate", "-n", cluster.OpgateNamespace,
			"--overwrite", fmt.Sprintf("test/resolve=%d", tries))
		return fmt.Errorf("resolution fails: %s", message)
	})
}

// upgradeConstrained upgrades Opgate while a Constraint forbids, on the whole cluster, all that it does not list.
func (s bundled) upgradeConstrained(t *testing.T, namespace string) {
	harness.Kubectl(t, s.Cluster, cluster.Admin, `
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: listed}
spec:
  constraints: '[{"type": "olm.constraint", "value": {"message": "only what is listed", "rule": "packageName in [\"etcd\"]"}}]'
`, "apply", "-f", "-")
	other := harness.Subscription(s.NewNamespace(t), "opgate", harness.GoodCatalog, "Manual")
	if err := unstructured.SetNestedField(other.Object, bundle.Package, "spec", "name"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the Constraint is in force, for Opgate elsewhere as well", func(ctx context.Context) error {
		return s.Attempt(ctx, install.Try{User: cluster.Tenant, Object: other, Refused: "only what is listed"})
	})
	before := s.webhookUIDs(t)
	s.awaitPlans(t)
	s.approve(t, opgateSecond)
	s.olm.WaitForCSV(t, cluster.OpgateNamespace, opgateSecond)
	if after := s.webhookUIDs(t); after != before {
		t.Errorf("the webhook configurations were %s and are %s: in between nothing was judged", before, after)
	}
	if got := s.Admin(t, "get", "validatingwebhookconfiguration", "opgate", "-o",
		`jsonpath={.metadata.labels.app\.kubernetes\.io/version}`); got != "v0.2.0" {
		t.Errorf("the webhook configuration is of %s after the upgrade", got)
	}
	s.wantOwner(t)
	s.WantGate(t, namespace)
}

// upgradeBroken upgrades to a version that does not start.
func (s bundled) upgradeBroken(t *testing.T, namespace string) {
	s.resolveAgain(t)
	s.awaitPlans(t)
	s.approve(t, opgateBroken)
	s.olm.Eventually(t, "OLM has updated the Deployment", func(context.Context) error {
		if got := s.Admin(t, "get", "deployment", "-n", cluster.OpgateNamespace, "opgate", "-o",
			"jsonpath={.spec.template.spec.containers[0].image}"); got != missingImage {
			return fmt.Errorf("its image is %s", got)
		}
		return nil
	})
	s.WantGate(t, namespace)
	s.wantOwner(t)
}

// awaitPlans waits until OLM has not written for some seconds what Opgate's plans consist of. Where it needs more than
// five seconds for a plan it carries it out once more, since it reads late that it is complete. Meanwhile what another
// plan replaces has its former owner again, with which it is deleted, and what is deleted is created again.
func (s bundled) awaitPlans(t *testing.T) {
	t.Helper()
	harness.Unchanged(t, "what OLM's plans consist of", 5*time.Second, func() string {
		return s.Admin(t, "get", "clusterroles,clusterrolebindings,roles,rolebindings,services", "--all-namespaces",
			"--selector", "app.kubernetes.io/name=opgate", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
	})
}

// remove removes Opgate as the manual states.
func (s bundled) remove(t *testing.T, namespace string) {
	s.awaitPlans(t)
	for _, step := range install.ShellSteps(t, "../../docs/install.md",
		"delete subscriptions.operators.coreos.com opgate") {
		s.Shell(t, step)
	}
	s.WantUngated(t, namespace)
	s.Admin(t, "get", "customresourcedefinition", "constraints.operators.coreos.com",
		"operatorpolicies.policy.open-cluster-management.io")
	s.olm.Eventually(t, "nothing of it is left that is permitted anything", func(context.Context) error {
		left := s.Admin(t, "get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/name=opgate",
			"-o", "name") +
			s.Admin(t, "get", "clusterroles,clusterrolebindings", "-l",
				"olm.owner.kind=ClusterServiceVersion,olm.owner.namespace="+cluster.OpgateNamespace, "-o",
				"name") +
			s.Admin(t, "get", "roles,rolebindings,deployments,services", "-n", cluster.OpgateNamespace, "-l",
				"app.kubernetes.io/name=opgate", "-o", "name")
		if left != "" {
			return fmt.Errorf("there are %s", left)
		}
		return nil
	})
}

// webhookUIDs identifies both webhook configurations.
func (s bundled) webhookUIDs(t *testing.T) string {
	t.Helper()
	return s.Admin(t, "get", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "opgate", "-o",
		"jsonpath={.items[*].metadata.uid}")
}

// wantOwner wants a ClusterRole to own both webhook configurations, and nothing else to.
func (s bundled) wantOwner(t *testing.T) {
	t.Helper()
	const want = "ClusterRole/opgate-backstop ClusterRole/opgate-backstop"
	harness.Eventually(t, "the ClusterRole owns the webhook configurations", func(context.Context) error {
		got := s.Admin(t, "get", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "opgate", "-o",
			`jsonpath={range .items[*].metadata.ownerReferences[*]}{.kind}/{.name} {end}`)
		if strings.TrimSpace(got) != want {
			return fmt.Errorf("owners are %s, want %s", got, want)
		}
		return nil
	})
}

// opgatePackage is Opgate in two versions, as a catalog offers it, and with -long in a third, which does not start.
func opgatePackage(t *testing.T) olm.Package {
	t.Helper()
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	helm, err := assets.FindHelm(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{"0.1.0", "0.2.0"}
	if *harness.Long {
		versions = append(versions, "0.3.0")
	}
	p := olm.Package{Name: bundle.Package, CSV: bundle.Package, Versions: versions,
		Images: true, Channels: map[string][]string{bundle.Channel: versions},
		DefaultChannel: bundle.Channel, Bundles: map[string]map[string][]byte{}}
	previous := ""
	for _, version := range p.Versions {
		options := bundle.Options{Version: version, Replaces: previous}
		if version == "0.3.0" {
			options.Image = missingImage
		}
		made, err := bundle.Generate(t.Context(), helm, checkout, options)
		if err != nil {
			t.Fatal(err)
		}
		csv := bundle.Package + ".clusterserviceversion.yaml"
		made.Manifests[csv] = []byte(install.Hasten(t, string(made.Manifests[csv])))
		p.Bundles[version], previous = made.Manifests, version
	}
	return p
}
