package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	opgateolm "github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// TestB1B2B3B5SharedTables fills the tables that policies and tenants fill, from one namespace and before anyone else: 20
// catalogs, 100 packages of a catalog, of which two have versions that need more than its record has room for, and 200
// operators of another namespace. What an administrator asks for afterwards is recorded all the same (threat O77). The
// control is that what the tenant asks for beyond that falls out, which events and a metric state.
func TestB1B2B3B5SharedTables(t *testing.T) {
	t.Parallel()
	e := startLoop(t, harness.Vacant(t))
	attacker, victim := e.NewNamespace(t), e.NewNamespace(t)
	hub := opgateolm.Catalog{Namespace: cluster.OLMNamespace, Name: "zhub"}
	e.Put(t, installedEtcd(victim, harness.AllowedVersion))
	var flood []*unstructured.Unstructured
	for i := range 20 {
		of := opgateolm.Catalog{Namespace: attacker, Name: fmt.Sprintf("c%02d", i)}
		e.Put(t, catalogSource(of))
		flood = append(flood, holding(attacker, "catalog-"+of.Name, attacker, "etcd", of))
	}
	for i := range 100 {
		name := fmt.Sprintf("p%03d", i)
		flood = append(flood, holding(attacker, name, attacker, name, hub))
	}
	for i := range 200 {
		name := fmt.Sprintf("a%03d", i)
		governing := holding(attacker, name, victim, name, hub)
		unstructured.RemoveNestedField(governing.Object, "spec", "minimumAge")
		unstructured.RemoveNestedField(governing.Object, "spec", "catalog")
		flood = append(flood, governing)
	}
	harness.AtOnce(t, harness.Writers, flood, func(ctx context.Context, u *unstructured.Unstructured) error {
		_, err := e.Clients[cluster.Admin].Of(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
	e.Put(t, catalogSource(hub))
	e.Put(t, harness.CatalogService(hub.Namespace, hub.Name))
	e.Write(t, packageManifest(hub, "etcd", "0.9.2", "0.9.4"))
	for _, name := range []string{"p000", "p001"} {
		var versions []string
		for i := range 1000 {
			versions = append(versions, fmt.Sprintf("%d.0.0-%s", i, strings.Repeat("x", 180)))
		}
		e.Write(t, packageManifest(hub, name, versions...))
	}
	admin := holding(cluster.PolicyNamespace, "etcd", victim, "etcd", hub)
	harness.WithField(admin, "None", "spec", "upgradeApproval")
	harness.WithField(admin, "enforce", "spec", "remediationAction")
	e.Put(t, admin)
	e.Put(t, harness.Object(`
apiVersion: v1
kind: Pod
metadata: {name: zhub, namespace: %s, labels: {olm.catalogSource: zhub}}
spec: {containers: [{name: registry-server, image: "registry.example/catalog:latest"}]}
status:
  phase: Running
  containerStatuses:
    - {name: registry-server, image: "registry.example/catalog:latest", imageID: "registry.example/catalog@sha256:%s",
       ready: true, restartCount: 0}
`, hub.Namespace, strings.Repeat("0a", 32)))

	t.Run("B1, B2, B3", func(t *testing.T) {
		harness.Eventually(t, "record the catalog and the versions of etcd", func(context.Context) error {
			record, err := catalog.DecodeRecord(data(e, catalog.RecordsName, catalog.RecordKey(hub)))
			switch {
			case err != nil:
				return err
			case len(record.Seen["etcd"]) != 2 || record.Newest() == "":
				return fmt.Errorf("recorded are %d versions of etcd in image %q", len(record.Seen["etcd"]), record.Newest())
			}
			return nil
		})
	})
	t.Run("B5", func(t *testing.T) {
		harness.Eventually(t, "record etcd", func(context.Context) error {
			if record := data(e, state.RecordName(victim), state.RecordKey); !strings.Contains(record, harness.AllowedCSV) {
				return errors.New("etcd is not in the record")
			}
			return nil
		})
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "csv", "-n", victim, harness.AllowedCSV)
		e.Put(t, harness.InstallPlan(victim, "held", harness.ForbiddenVersion))
		e.Sync(t)
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", []string{"patch", "installplan", "-n", victim, "held", "--type=merge",
			"--patch", harness.Approval}, "(bundle/upgrade)", harness.AllowedCSV)
	})
	t.Run("what falls out is known", func(t *testing.T) {
		harness.Eventually(t, "see what falls out", func(ctx context.Context) error {
			_, page, err := e.Scrape(ctx, e.Scraper)
			for _, table := range []string{"catalogs", "packages", "versions", "operators"} {
				if line := fmt.Sprintf("opgate_table_left{table=%q} 1\n", table); err == nil && !strings.Contains(page, line) {
					err = fmt.Errorf("the metrics have no %s", line)
				}
			}
			return err
		})
		for _, name := range []string{"catalog-c", "p", "a"} {
			harness.Eventually(t, "see the event on a policy "+name, func(context.Context) error {
				events := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "events.events.k8s.io", "-n", attacker, "-o",
					`jsonpath={range .items[?(@.reason=="TableFull")]}{.regarding.name}{"\n"}{end}`)
				if !strings.Contains("\n"+events, "\n"+name) {
					return fmt.Errorf("there are those on %q", events)
				}
				return nil
			})
		}
	})
}

// data returns a value of a ConfigMap of Opgate, "" if there is none.
func data(e *harness.LoopEnv, name, key string) string {
	stored, err := e.Clients[cluster.Admin].Resource(harness.Resources["ConfigMap"]).Namespace(cluster.OpgateNamespace).Get(
		context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(stored.Object, "data", key)
	return text
}

// holding is a policy that holds jumps and young versions of a catalog.
func holding(namespace, name, target, pkg string, of opgateolm.Catalog) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %s, namespace: %s}
spec:
  remediationAction: inform
  complianceType: musthave
  subscription: {name: %s, namespace: %s, source: %s, sourceNamespace: %s}
  upgradeApproval: Automatic
  minimumAge: 1h
  catalog: {jump: Hold}
`, name, namespace, pkg, target, of.Name, of.Namespace)
}

func catalogSource(of opgateolm.Catalog) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: %s, namespace: %s}
spec: {sourceType: grpc, image: "registry.example/catalog:latest"}
`, of.Name, of.Namespace)
}

// packageManifest is a package as the package server would state it, in tests without one.
func packageManifest(of opgateolm.Catalog, pkg string, versions ...string) *unstructured.Unstructured {
	u := harness.Object(`
apiVersion: packages.operators.coreos.com/v1
kind: PackageManifest
metadata: {name: %[1]s, namespace: %[2]s, labels: {catalog: %[3]s, catalog-namespace: %[2]s}}
`, pkg, of.Namespace, of.Name)
	var entries []any
	for _, version := range versions {
		entries = append(entries, map[string]any{"name": pkg + ".v" + version, "version": version})
	}
	last := versions[len(versions)-1]
	u.Object["status"] = map[string]any{"packageName": pkg, "catalogSource": of.Name, "catalogSourceNamespace": of.Namespace,
		"channels": []any{map[string]any{"name": "stable", "currentCSV": pkg + ".v" + last, "entries": entries,
			"currentCSVDesc": map[string]any{"version": last}}}}
	return u
}
