package dependency

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// scriptsAtOnce is how many scripts run at a time. Most of the time they wait.
const scriptsAtOnce = 8

// TestDependency runs the scripts of testdata against an API server with Opgate, which applies the templates of
// Policies in the order of their dependencies. ConfigurationPolicy and CertificatePolicy are plain kinds here, and
// nothing acts on them: a script writes the states that their controllers would. OLM does not run either; see TestLoop
// in e2e/loop.
//
// Each script has a namespace for Policies and operators, $NS, which is also $POLICIES, and another one, $OTHER. Opgate
// has been given the kinds of group ordering.example.com, and none of forbidden.example.com. Where not said otherwise,
// a command waits until what it states is so. Commands besides those of scripttest:
//
//	fill FILE...                   fill $NS, $POLICIES, $OTHER and $ID in, for kubectl
//	becomes KIND NAME STATE        a policy controller has evaluated the newest generation of an object
//	writes KIND NAME JSON          a controller merges this into the status of an object
//	merge KIND NAME JSON           an admin merges this into an object; it does not wait
//	delete KIND NAME               an admin deletes an object; it does not wait
//	is POLICY STATE                status.compliant of a Policy in its newest generation; - as STATE is none
//	template POLICY NAME STATE [REGEXP]
//	                               the state of a template, and its newest message
//	once POLICY NAME REGEXP        exactly one message of the template's history matches
//	waits POLICY N [DEPENDENCY REASON [REGEXP]]
//	                               a Policy waits for N objects, and for "Kind namespace/name" for that reason and with that message
//	set NAME STATE MESSAGE         status.compliant and the whole status.statusMessage of a PolicySet
//	says KIND NAME TYPE STATUS REASON [REGEXP]
//	                               a condition of an object
//	tells POLICY TYPE REGEXP       an event on a Policy, Normal or Warning
//	remember KIND NAME             keep in mind which object it is, and how it is stored
//	same KIND NAME                 it is the very object that was there; it does not wait
//	untouched KIND NAME            it was not written since; it does not wait
//	known KIND NAME                admission judges by this object, and by what of its kind was written before
func TestDependency(t *testing.T) {
	t.Parallel()
	e := start(t)
	t.Run("script", func(t *testing.T) {
		crowd := &crowd{Terse: harness.Terse{T: t}, turns: make(chan struct{}, scriptsAtOnce)}
		testscript.RunT(crowd, testscript.Params{
			Dir:             "testdata",
			ContinueOnError: true,
			Setup:           e.setup,
			Cmds:            e.commands(),
		})
		document := []string{documentScript(t)}
		testscript.RunT(crowd, testscript.Params{
			Files:           document,
			ContinueOnError: true,
			Setup:           e.setupDocument,
			Cmds:            e.commands(),
		})
		for name, test := range map[string]func(*testing.T, *env){
			"namespaces of dependencies": namespaces, // scenario P15.1 of script
			"a template of 1 MiB":        largeTemplate,
		} {
			crowd.all.Go(func() { t.Run(name, func(t *testing.T) { test(t, e) }) })
		}
		crowd.all.Wait()
	})
	t.Run("requests", func(t *testing.T) { requests(t, e) }) // scenario S1
	t.Run("another process", func(t *testing.T) { restart(t, e) })
	t.Run("a long chain", func(t *testing.T) { longChain(t, e) })
}

// crowd runs scripts at the same time, however many tests may be parallel.
type crowd struct {
	harness.Terse
	turns chan struct{}
	all   sync.WaitGroup
}

func (c *crowd) Run(name string, f func(testscript.T)) {
	c.all.Go(func() {
		c.turns <- struct{}{}
		defer func() { <-c.turns }()
		c.Terse.Run(name, func(t testscript.T) { f(alone{t}) })
	})
}

// alone is a script that has its turn.
type alone struct{ testscript.T }

func (alone) Parallel() {}

// env is a control plane with the loop and the kinds that templates and dependencies are of.
type env struct {
	*harness.LoopEnv
	// mind is what scripts have recorded with a command.
	mind sync.Map
}

// start starts Opgate on the control plane of this package, which the test has to itself until it ends.
func start(t testing.TB) *env {
	t.Helper()
	e := &env{LoopEnv: &harness.LoopEnv{Env: harness.Vacant(t)}}
	harness.Kubectl(t, e.Cluster, cluster.Admin,
		strings.Join([]string{harness.PackageManifests, foreignKinds, foreignRights, storedCycles}, "---\n"),
		"apply", "-f", "-")
	e.Connect(t)
	e.Kinds = kinds
	for _, add := range []func(*runtime.Scheme) error{policyv1.AddToScheme, policyv1beta1.AddToScheme} {
		if err := add(e.Admin.Scheme()); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true,
		MemoryLimit: harness.ContainerMemory}); err != nil {
		t.Fatal(err)
	}
	// An admin answers for what was stored before there was a gate.
	for _, namespace := range []string{"ring", "farm"} {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "policies.policy.open-cluster-management.io",
			"--all", "-n", namespace, "opgate.io/verified=again")
	}
	return e
}

// foreignKinds are the kinds of the other policy controllers, those of Gatekeeper, and two that only these tests have.
var foreignKinds = func() string {
	var all []string
	for _, k := range []struct {
		group, plural, kind, scope string
		template                   bool
		versions                   []string
	}{
		{
			group:    "policy.open-cluster-management.io",
			plural:   "configurationpolicies",
			kind:     "ConfigurationPolicy",
			scope:    "Namespaced",
			template: true,
			versions: []string{"v1"},
		},
		{
			group:    "policy.open-cluster-management.io",
			plural:   "certificatepolicies",
			kind:     "CertificatePolicy",
			scope:    "Namespaced",
			template: true,
			versions: []string{"v1"},
		},
		{
			group:    "ordering.example.com",
			plural:   "widgets",
			kind:     "Widget",
			scope:    "Namespaced",
			versions: []string{"v1", "v2"},
		},
		{
			group:    "ordering.example.com",
			plural:   "zones",
			kind:     "Zone",
			scope:    "Cluster",
			template: true,
			versions: []string{"v1"},
		},
		{
			group:    "forbidden.example.com",
			plural:   "secretpolicies",
			kind:     "SecretPolicy",
			scope:    "Namespaced",
			template: true,
			versions: []string{"v1"},
		},
		{
			group:    "backup.example.com",
			plural:   "backuppolicies",
			kind:     "BackupPolicy",
			scope:    "Namespaced",
			template: true,
			versions: []string{"v1"},
		},
		{
			group:    "templates.gatekeeper.sh",
			plural:   "constrainttemplates",
			kind:     "ConstraintTemplate",
			scope:    "Cluster",
			versions: []string{"v1"},
		},
		{
			group:    "constraints.gatekeeper.sh",
			plural:   "k8srequiredlabels",
			kind:     "K8sRequiredLabels",
			scope:    "Cluster",
			versions: []string{"v1beta1"},
		},
	} {
		all = append(all, plainKind(k.group, k.plural, k.kind, k.scope, k.template, k.versions...))
	}
	return strings.Join(all, "---\n")
}()

// plainKind is the definition of a kind in which anything may be written, but for spec.replicas, which is a number, and
// spec.colour, which has few values.
func plainKind(group, plural, kind, scope string, template bool, versions ...string) string {
	labels := ""
	if template {
		labels = "policy.open-cluster-management.io/policy-type: template"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]s.%[1]s
  labels: {%[5]s}
  annotations: {api-approved.kubernetes.io: "unapproved, for tests"}
spec:
  group: %[1]s
  scope: %[4]s
  names: {plural: %[2]s, singular: %[6]s, kind: %[3]s, listKind: %[3]sList}
  versions:
`, group, plural, kind, scope, labels, strings.ToLower(kind))
	for i, version := range versions {
		fmt.Fprintf(&b, `    - name: %s
      served: true
      storage: %t
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              x-kubernetes-preserve-unknown-fields: true
              properties:
                replicas: {type: integer}
                colour: {type: string, enum: [red, green]}
                strict: {type: object, properties: {known: {type: string}}}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`, version, i == len(versions)-1)
	}
	return b.String()
}

// foreignRights are what an administrator grants Opgate for templates and dependencies of these kinds.
const foreignRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: opgate-e2e-scripts}
rules:
  - {apiGroups: [ordering.example.com], resources: ["*"], verbs: [list, watch, create, update, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: opgate-e2e-scripts}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: opgate-e2e-scripts}
subjects: [{kind: ServiceAccount, namespace: opgate-system, name: opgate}]
`

// storedCycles are Policies of which two and two wait for one another. They are stored before there is anybody to
// refuse them.
var storedCycles = func() string {
	var all strings.Builder
	for _, ring := range [][3]string{{"ring", "a", "b"}, {"ring", "b", "a"}, {"farm", "egg", "hen"},
		{"farm", "hen", "egg"}} {
		if ring[1] < ring[2] {
			fmt.Fprintf(&all, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", ring[0])
		}
		fmt.Fprintf(&all, `apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  dependencies: [{kind: Policy, name: %[3]s, compliance: Compliant}]
  policy-templates: [{objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: %[2]s}}}]
---
`, ring[0], ring[1], ring[2])
	}
	return all.String()
}()

var (
	policyKind          = policyv1.GroupVersion.WithKind("Policy")
	configurationPolicy = policyv1.GroupVersion.WithKind("ConfigurationPolicy")
)

// kinds are those that these scripts name besides the ones of the loop.
var kinds = map[string]schema.GroupVersionKind{
	"policy":              policyKind,
	"policyset":           policyv1beta1.GroupVersion.WithKind("PolicySet"),
	"configurationpolicy": configurationPolicy,
	"certificatepolicy":   policyv1.GroupVersion.WithKind("CertificatePolicy"),
	"constraint":          {Group: "operators.coreos.com", Version: "v1", Kind: "Constraint"},
	"widget":              {Group: "ordering.example.com", Version: "v2", Kind: "Widget"},
	"zone":                {Group: "ordering.example.com", Version: "v1", Kind: "Zone"},
	"secretpolicy":        {Group: "forbidden.example.com", Version: "v1", Kind: "SecretPolicy"},
	"constrainttemplate":  {Group: "templates.gatekeeper.sh", Version: "v1", Kind: "ConstraintTemplate"},
	"k8srequiredlabels":   {Group: "constraints.gatekeeper.sh", Version: "v1beta1", Kind: "K8sRequiredLabels"},
}

// newNamespace creates a namespace, which is to be emptied when it is not needed any more.
func (e *env) newNamespace(ctx context.Context, name string) (empty func(), err error) {
	if err := e.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return nil, err
	}
	return e.emptied(ctx, name), nil
}

// emptied deletes the Policies in a namespace, so that Opgate has nothing to do for a script that has ended.
func (e *env) emptied(ctx context.Context, name string) func() {
	return func() {
		for _, kind := range []schema.GroupVersionKind{policyKind, kinds["policyset"],
			policyv1beta2.GroupVersion.WithKind("OperatorPolicy")} {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(kind)
			if err := e.Admin.DeleteAllOf(context.WithoutCancel(ctx), u, crclient.InNamespace(name)); err != nil {
				fmt.Fprintf(os.Stderr, "delete the policies of %s: %v\n", name, err)
			}
		}
	}
}

func (e *env) setup(script *testscript.Env) error {
	id := rand.String(8)
	script.Setenv("ID", id)
	for variable, name := range map[string]string{"NS": "shop-" + id, "OTHER": "other-" + id} {
		script.Setenv(variable, name)
		cleanup, err := e.newNamespace(context.Background(), name)
		if err != nil {
			return err
		}
		script.Defer(cleanup)
	}
	script.Setenv("POLICIES", script.Getenv("NS"))
	return nil
}
