package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// TestCatalogs makes sure that OLM is to Opgate what it is on a real cluster, without Opgate: what its catalogs offer,
// what becomes of it, and how it looks when a part of OLM does not run. Other tests build on that.
func TestCatalogs(t *testing.T) {
	t.Parallel()
	e := harness.VacantOLM(t, constraintPackages())
	server := e.OLM.PackageServer()
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.OLM.UnregisterPackageServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "see no package server", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, "", "get", "packagemanifests", "--cache-dir="+t.TempDir())
		if err == nil && !strings.Contains(result.Stderr,
			`the server doesn't have a resource type "packagemanifests"`) {
			err = fmt.Errorf("got %+v", result)
		}
		return err
	})
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Run("outcome", func(t *testing.T) {
		for _, test := range []struct {
			pkg, want string
			all       bool // whether it has to watch all namespaces
		}{
			{pkg: "cassandra", want: "Succeeded"},
			{pkg: "rabbitmq", want: "Installing: installing: waiting for deployment rabbitmq-operator to become ready"},
			{pkg: "mongodb", want: "Failed: install failed: deployment mongodb-operator not ready before timeout"},
			{pkg: "postgres", all: true, want: "Failed: AllNamespaces InstallModeType not supported"},
		} {
			t.Run(test.pkg, func(t *testing.T) {
				t.Parallel()
				wantOutcome(t, e, test.pkg, test.all, test.want)
			})
		}
	})
	// OLM labels what an operator owns when it meets its ClusterServiceVersion, and forgets the definition if its own
	// cache does not have it at that moment: until something touches the ClusterServiceVersion.
	e.Eventually(t, "see the label of the operator on the definition that it owns", func(context.Context) error {
		labels := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "crd", "cassandras.cassandra.example.com",
			"-o", "jsonpath={.metadata.labels}")
		if strings.Contains(labels, `"operators.coreos.com/cassandra.`) {
			return nil
		}
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "csv", "--all", "--all-namespaces", "--overwrite",
			"touched="+time.Now().Format(time.RFC3339Nano))
		return fmt.Errorf("its labels are %s", labels)
	})

	var all []string
	for _, p := range constraintPackages() {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	wantPackages(t, e, olm.Catalog, all...)
	kafka := harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "get", "packagemanifest", "kafka", "-o",
		`jsonpath={.status.defaultChannel}{range .status.channels[*]} {.name}={.entries[*].version} {.deprecation.message}{end}`)
	if want := "stable-1.1 candidate=1.1.1 1.1.0  stable-1.0=1.0.1 1.0.0 channel stable-1.0 gets no more fixes, use stable-1.1 stable-1.1=1.1.1 1.1.0 1.0.1 "; kafka != want {
		t.Errorf("the channels of kafka are %q, want %q", kafka, want)
	}

	other, err := e.OLM.AddCatalog(t.Context(), "other-catalog", olm.Package{
		Name:     "etcd",
		CSV:      "etcdoperator",
		Versions: []string{"0.9.4", "0.9.5"},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantPackages(t, e, "other-catalog", "etcd")
	if err := other.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPackages(t, e, "other-catalog")
	wantPackages(t, e, olm.Catalog, all...)
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPackages(t, e, "other-catalog", "etcd")

	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "", []string{"get", "packagemanifests"},
		"the server is currently unable to handle the request")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPackages(t, e, olm.Catalog, all...)
}

// wantOutcome subscribes to a package in a namespace of its own and wants its ClusterServiceVersion to come to a phase,
// with a message that begins like this. It removes one that is not installed.
func wantOutcome(t *testing.T, e *harness.OLMEnv, pkg string, all bool, want string) {
	t.Helper()
	namespace := e.NewNamespace(t)
	if all {
		e.CreateAs(t, cluster.Admin, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %[1]s, namespace: %[1]s}
`, namespace))
	} else {
		e.OperatorGroup(t, namespace)
	}
	e.Subscribe(t, namespace, pkg, "", "Automatic")
	csvs := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(namespace)
	e.Eventually(t, "see what becomes of "+pkg, func(ctx context.Context) error {
		list, err := csvs.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("there are %d ClusterServiceVersions", len(list.Items))
		}
		csv := list.Items[0]
		phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
		message, _, _ := unstructured.NestedString(csv.Object, "status", "message")
		if got := phase + ": " + message; !strings.HasPrefix(got, want) {
			return fmt.Errorf("%s is %s", csv.GetName(), got)
		}
		return nil
	})
	if want == "Succeeded" {
		return
	}
	// For as long as it waits for a Deployment, OLM sends a hundred requests a second.
	if err := csvs.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// wantPackages wants the package server to offer these packages from a catalog, and no others.
func wantPackages(t *testing.T, e *harness.OLMEnv, catalog string, want ...string) {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	out := harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "get", "packagemanifests", "-l", "catalog="+catalog, "-o",
		"json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list.Items {
		got = append(got, p.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("catalog %s offers %v, want %v", catalog, got, want)
	}
}
