package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// impactDefinition is the definition of what the operator of TestPluginImpact manages; %[1]s is its group.
const impactDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: "ledgers.%[1]s"}
spec:
  group: "%[1]s"
  scope: Namespaced
  names: {plural: ledgers, singular: ledger, kind: Ledger}
  versions:
  - {name: v1alpha1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// impactOperator is a ClusterServiceVersion; the arguments are its namespace, name, definitions and properties.
const impactOperator = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  namespace: %s
  name: %s
  annotations: {operatorframework.io/properties: '{"properties":[%[4]s]}'}
spec:
  displayName: it
  customresourcedefinitions: %[3]s
  install: {strategy: deployment}
`

func parsed(t *testing.T, format string, args ...any) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf(format, args...)), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestPluginImpact counts the objects of an operator and names who needs it, with all rights, then with fewer.
func TestPluginImpact(t *testing.T) {
	e := harness.Shared(t)
	namespace, other := e.NewNamespace(t), e.NewNamespace(t)
	group := namespace + ".example.com"
	name := "ledgers." + group
	definition := e.Put(t, parsed(t, impactDefinition, group))
	const pkg = "ledger"
	e.Put(t, parsed(t, impactOperator, namespace, "ledger.v1", `{owned: [{name: `+
		name+`, version: v1alpha1, kind: Ledger}]}`,
		`{"type":"olm.package","value":{"packageName":"`+pkg+`","version":"1.0.0"}}`))
	e.Put(t, parsed(t, impactOperator, other, "reports.v1", `{required: [{name: `+name+`, version: v1, kind: Ledger}]}`,
		`{"type":"olm.package","value":{"packageName":"reports","version":"1.0.0"}},`+
			`{"type":"olm.gvk.required","value":{"group":"`+group+`","version":"v1","kind":"Ledger"}},`+
			`{"type":"olm.package.required","value":{"packageName":"`+pkg+`","versionRange":">=1.0.0"}}`))
	e.Put(t, parsed(t, impactOperator, other, "unrelated.v1",
		`{owned: [{name: "ledgers.elsewhere.example.com", version: v1, kind: Ledger}]}`,
		`{"type":"olm.package","value":{"packageName":"unrelated","version":"1.0.0"}}`))

	got := opgate(t, e, "", 0, "impact", pkg, "-n", namespace).Stdout
	harness.WantTexts(t, got, "clusterserviceversion "+namespace+"/ledger.v1, package "+pkg,
		"definition "+name+": 0 objects\n")
	const many = 7
	harness.Eventually(t, "create objects of the definition", func(ctx context.Context) error {
		for i := range many {
			in := []string{namespace, other}[i%2]
			manifest := fmt.Sprintf("{apiVersion: %s/v1, kind: Ledger, metadata: {name: l%d, namespace: %s}}", group, i,
				in)
			got, err := e.Kubectl(ctx, cluster.Admin, manifest, "apply", "-f", "-")
			if err != nil {
				return err
			}
			if got.ExitCode != 0 {
				return errors.New(got.Stderr)
			}
		}
		return nil
	})
	for _, args := range [][]string{{"ledger.v1", "-A"}, {name, "-n", namespace}, {"-n", namespace}} {
		got = opgate(t, e, "", 0, append([]string{"impact"}, args...)...).Stdout
		harness.WantTexts(t, got, "definition "+name+": 7 objects: ", namespace+"/l", ", ...\n",
			"needed by clusterserviceversion "+other+"/reports.v1: definition "+name+", kind Ledger of "+group+
				"/v1, package "+pkg+"\n")
		if strings.Contains(got, "unrelated") {
			t.Errorf("%v names an operator that does not need it:\n%s", args, got)
		}
	}
	var list struct {
		Items []struct {
			Namespace   string
			Definitions []struct {
				Name    string
				Objects int
				First   []string
			}
			NeededBy []struct{ ClusterServiceVersion string }
		}
	}
	if err := json.Unmarshal([]byte(opgate(t, e, "", 0, "impact", pkg, "-n", namespace, "-o", "json").Stdout),
		&list); err != nil {
		t.Fatal(err)
	}
	if all := list.Items; len(all) != 1 || len(all[0].Definitions) != 1 || all[0].Definitions[0].Objects != many ||
		len(all[0].Definitions[0].First) != 5 ||
		len(all[0].NeededBy) != 1 || all[0].NeededBy[0].ClusterServiceVersion != "reports.v1" {
		t.Errorf("got %+v", all)
	}
	harness.WantTexts(t, opgate(t, e, "", 2, "impact", "missing", "-n", namespace).Stderr,
		`no operator "missing" is installed`)
	wantImpactByRights(t, e, namespace, name, pkg)
	e.Remove(t, definition)
	harness.Eventually(t, "see that the definition is gone", func(context.Context) error {
		if got := opgate(t, e, "", 0, "impact", pkg, "-n", namespace).Stdout; !strings.Contains(got,
			"the definition does not exist") {
			return errors.New(got)
		}
		return nil
	})
}

// wantImpactByRights asks as a user who may read OLM's objects, then also the objects of the definition in one
// namespace.
func wantImpactByRights(t *testing.T, e *harness.Env, namespace, name, pkg string) {
	t.Helper()
	user := namespace + "-reader"
	config, err := e.Credentials(user)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	harness.WantTexts(t, opgate(t, e, kubeconfig, 2, "impact", pkg).Stderr,
		"may not list clusterserviceversions.operators.coreos.com")
	grant := func(role string, resources ...string) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", role, "-n", namespace, "--verb=list",
			"--resource="+strings.Join(resources, ","))
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", role, "-n", namespace, "--role="+role,
			"--user="+user)
	}
	see := func(what string, texts ...string) {
		harness.Eventually(t, what, func(ctx context.Context) error { // the authorizer follows bindings by a watch
			got, err := e.RunPlugin(ctx, kubeconfig,
				cluster.Command{Args: []string{"opgate", "impact", pkg, "-n", namespace}})
			if err != nil {
				return err
			}
			if slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(got.Stdout+got.Stderr, s) }) {
				return errors.New(got.Stdout + got.Stderr)
			}
			return nil
		})
	}
	grant("olm", "clusterserviceversions.operators.coreos.com", "subscriptions.operators.coreos.com")
	see("see the operator alone", "warning: operators of other namespaces that need it are not known",
		"warning: definitions with OLM's label of the operator are not known: this user may not list customresourcedefinitions",
		"definition "+name+": objects are not counted: this user may not list "+name)
	grant("ledgers", name)
	see("see that the version is not served", "definition "+
		name+": objects are not counted: the API server does not serve "+name)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "clusterserviceversion", "ledger.v1", "-n", namespace,
		"--type=json",
		"--patch", `[{"op":"replace","path":"/spec/customresourcedefinitions/owned/0/version","value":"v1"}]`)
	see("see the objects of the namespace", "definition "+name+": 4 objects in namespace "+
		namespace+", which alone this user may list: "+namespace+"/l0")
}
