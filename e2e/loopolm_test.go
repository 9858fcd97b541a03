package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

var (
	operatorGroups = schema.GroupVersionResource{Group: "operators.coreos.com", Version: "v1", Resource: "operatorgroups"}
	csvs           = olmVersion.WithResource("clusterserviceversions")
)

// TestLoopOLM puts the background loop beside a real OLM: policies are all that anybody writes, and OLM does the rest. What OLM
// does when the loop is slow, away, or in its way, no stand-in can tell.
//
// OLM sends five requests a second, and no option makes it send more. So there are two of it, each on a cluster of its own.
func TestLoopOLM(t *testing.T) {
	t.Parallel()
	together(t, map[string]func(*testing.T){"operators": loopOperators, "trouble": loopTrouble})
}

// loopOperators is about operators that come, stay and go as policies say.
func loopOperators(t *testing.T) {
	e := startLoopOLM(t, cluster.GateOptions{Loop: true})
	e.together(t, map[string]func(*testing.T, *olmEnv){
		"stories 1 to 3, a pinned version and its upgrade": storiesPinned,
		"story 4, inform":                                          storyInform,
		"story 5, one namespace":                                   storyNamespace,
		"story 6, removal":                                         storyRemoval,
		"story 6, removal of definitions and plans":                storyRemovalOfAll,
		"story 7, removal of a version":                            storyRemovalOfVersion,
		"an operator that is installed for all namespaces already": existingInstallation,
		"A7 a stranger's operator for all namespaces":              strangersInstallation,
		"an operator that supports its own namespace only":         ownNamespaceOnly,
		"defaults from the catalog":                                defaultsFromCatalog,
		"deprecations and minor channels":                          deprecationsAndChannels,
		"an operator waits for another one":                        operatorWaits,
	})
	t.Run("without a package server", func(t *testing.T) { withoutPackageServer(t, e) })
	e.wantNoRefusalOfOLM(t)
}

// loopTrouble is about operators that are in each other's way, and about what goes wrong.
func loopTrouble(t *testing.T) {
	var slipped *unstructured.Unstructured
	e := startLoopOLM(t, cluster.GateOptions{}, func(e *env) { slipped = e.slip(t) })
	// The first, before the loop runs and heals it.
	if !t.Run("a Subscription that slipped past heals", func(t *testing.T) { slippedHeals(t, e, slipped) }) {
		return // the loop may not run
	}
	e.together(t, map[string]func(*testing.T, *olmEnv){
		"a pinned operator and free ones share a namespace":       pinnedAndFree,
		"free operators are held where the namespace says so":     freeAreHeld,
		"a dependency comes along":                                dependencyComesAlong,
		"a dependency that is an image is held by its own policy": dependencyIsHeld,
		"an operator that does not come up":                       notComingUp,
		"an unhealthy catalog":                                    unhealthyCatalog,
		"a policy is edited while a plan waits":                   editedWhilePending,
		"a tenant deletes the plan that waits":                    planDeleted,
		"a Subscription that lost its ClusterServiceVersion":      lostLink,
	})
	e.wantNoRefusalOfOLM(t)
	t.Run("Opgate is away while OLM works", func(t *testing.T) { opgateAway(t, e) })
}

// startLoopOLM starts a cluster with OLM for one test alone. What is to be there before Opgate goes before.
func startLoopOLM(t *testing.T, opts cluster.GateOptions, before ...func(*env)) *olmEnv {
	t.Helper()
	e := &olmEnv{env: startWithoutGate(t)}
	for _, prepare := range before {
		prepare(e.env)
	}
	var err error
	if e.gate, err = e.StartOpgate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if e.olm, err = olm.Start(t.Context(), e.Cluster, olm.Options{Packages: loopPackages(), Log: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.olm.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// together runs tests at the same time, since most of the time they wait for OLM: t.Parallel would let no more run than there are
// processors.
func together(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var all sync.WaitGroup
	for name, test := range tests {
		all.Go(func() { t.Run(name, test) })
	}
	all.Wait()
}

// together runs tests in namespaces of their own.
func (e *olmEnv) together(t *testing.T, tests map[string]func(*testing.T, *olmEnv)) {
	t.Helper()
	bound := map[string]func(*testing.T){}
	for name, test := range tests {
		bound[name] = func(t *testing.T) { test(t, e) }
	}
	together(t, bound)
}

// loopPackages are what the catalog offers here. An operator that is installed for all namespaces is visible in all of them, so
// each that is has a package that no other test uses.
func loopPackages() []olm.Package {
	return append(olm.Packages(),
		olm.Package{Name: "strimzi-kafka-operator", CSV: "strimzi-cluster-operator", Versions: []string{"0.35.0", "0.35.1"}},
		olm.Package{Name: "jaeger", CSV: "jaeger-operator", Versions: []string{"1.0.0", "1.1.0"}},
		olm.Package{Name: "consul", CSV: "consuloperator", Versions: []string{"1.0.0", "1.1.0"}},
		olm.Package{Name: "scylla", CSV: "scyllaoperator", Versions: []string{"1.0.0"}, Owns: "Scylla"},
		olm.Package{Name: "nats", CSV: "natsoperator", Versions: []string{"2.0.0"}},
		olm.Package{
			Name: "minio", CSV: "miniooperator", Versions: []string{"4.0.0"},
			InstallModes: []operatorsv1alpha1.InstallModeType{operatorsv1alpha1.InstallModeTypeOwnNamespace},
		},
	)
}

// loopPolicy is an enforced policy for a package in a namespace, with an OperatorGroup for that namespace alone. Without
// versions it allows all of them.
func loopPolicy(namespace, pkg string, versions ...string) *unstructured.Unstructured {
	return object(`
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

// with sets a field of an object.
func with(u *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
	return u
}

// apply applies objects with kubectl as an admin.
func (e *env) apply(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		kubectl(t, e.Cluster, cluster.Admin, asJSON(t, u), "apply", "-f", "-")
	}
}

// edit merges a patch into a policy as an admin.
func (e *env) edit(t *testing.T, p *unstructured.Unstructured, patch string) {
	t.Helper()
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "operatorpolicy", "-n", p.GetNamespace(), p.GetName(), "--type=merge", "--patch", patch)
}

// want is something that a policy's status should say.
type want func(op *policyv1beta2.OperatorPolicy) error

// is wants the policy to be Compliant or NonCompliant.
func is(state policyv1beta2.ComplianceState) want {
	return func(op *policyv1beta2.OperatorPolicy) error {
		if op.Status.Compliant != state {
			return fmt.Errorf("it is %q, want %s", op.Status.Compliant, state)
		}
		return nil
	}
}

// has wants a version to be installed.
func has(csv string) want {
	return func(op *policyv1beta2.OperatorPolicy) error {
		if op.Status.InstalledVersion != csv {
			return fmt.Errorf("status.installedVersion is %q, want %q", op.Status.InstalledVersion, csv)
		}
		return nil
	}
}

// says wants a condition, such as "InstallPlanCompliant=False InstallPlanRequiresApproval", with all of the texts in its message.
func says(condition string, texts ...string) want {
	return func(op *policyv1beta2.OperatorPolicy) error {
		for _, c := range op.Status.Conditions {
			if fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason) != condition {
				continue
			}
			for _, text := range texts {
				if !strings.Contains(c.Message, text) {
					return fmt.Errorf("condition %s has no %q in its message %q", condition, text, c.Message)
				}
			}
			return nil
		}
		return fmt.Errorf("there is no condition %s", condition)
	}
}

// relates wants a related object, such as "InstallPlan NonCompliant", of any name.
func relates(kind string, state policyv1beta2.ComplianceState, reason string) want {
	return func(op *policyv1beta2.OperatorPolicy) error {
		var seen []string
		for _, r := range op.Status.RelatedObjects {
			if r.Object.Kind == kind && r.Compliant == state && r.Reason == reason {
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s %s %q", r.Object.Kind, r.Compliant, r.Reason))
		}
		return fmt.Errorf("there is no related object %s %s %q, but %v", kind, state, reason, seen)
	}
}

// waitForPolicy waits until the status of a policy, in its newest generation, says all that is wanted at the same time.
func (e *olmEnv) waitForPolicy(t *testing.T, p *unstructured.Unstructured, wants ...want) *policyv1beta2.OperatorPolicy {
	t.Helper()
	op := &policyv1beta2.OperatorPolicy{}
	e.eventually(t, "wait for policy "+p.GetName(), func(ctx context.Context) error {
		got, err := e.clients[cluster.Admin].Resource(policies).Namespace(p.GetNamespace()).Get(ctx, p.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		*op = policyv1beta2.OperatorPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, op); err != nil {
			return err
		}
		if op.Status.ObservedGeneration != op.Generation {
			return fmt.Errorf("generation %d was not evaluated yet", op.Generation)
		}
		var errs []error
		for _, want := range wants {
			errs = append(errs, want(op))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("%w\nits conditions:\n%s", err, conditions(op))
		}
		return nil
	})
	return op
}

// names lists the objects of a kind in a namespace, without the copies that OLM makes of what is installed for all namespaces.
func (e *env) names(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]string, error) {
	list, err := e.clients[cluster.Admin].Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: "!olm.copiedFrom"})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, u := range list.Items {
		names = append(names, u.GetName())
	}
	slices.Sort(names)
	return names, nil
}

// wantNames wants the objects of a kind in a namespace to be these.
func (e *env) wantNames(t *testing.T, resource schema.GroupVersionResource, namespace string, want ...string) {
	t.Helper()
	got, err := e.names(t.Context(), resource, namespace)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s in %s are %v, want %v", resource.Resource, namespace, got, want)
	}
}

// get reads an object as an admin.
func (e *env) get(t *testing.T, resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := e.clients[cluster.Admin].Resource(resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// waitForGone waits until an object is not there any more.
func (e *olmEnv) waitForGone(t *testing.T, resource schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	e.eventually(t, "wait until "+resource.Resource+" "+name+" is gone", func(ctx context.Context) error {
		_, err := e.clients[cluster.Admin].Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is still there")
	})
}

// wantField wants a field of an object to have a value, written as JSON.
func wantField(t *testing.T, u *unstructured.Unstructured, want string, path ...string) {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s of %s %s is %s, want %s", strings.Join(path, "."), u.GetKind(), u.GetName(), got, want)
	}
}

// refusalsOfOLM are what the gate that answers at present has refused OLM.
func (e *env) refusalsOfOLM(t *testing.T) []refusal {
	t.Helper()
	file, err := os.Open(e.gate.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var refusals []refusal
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r refusal
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // the last line, which is being written
		}
		if r.Message == "review refused" && r.User == "system:serviceaccount:olm:olm-operator-serviceaccount" {
			refusals = append(refusals, r)
		}
	}
	return refusals
}

// wantNoRefusalOfOLM wants OLM to have been refused nothing: with the loop, Subscriptions are right before OLM plans anything.
// The exception is a plan that it made from a Subscription that was switched to Manual at the same moment.
func (e *env) wantNoRefusalOfOLM(t *testing.T) {
	t.Helper()
	for _, r := range e.refusalsOfOLM(t) {
		if r.Operation != "CREATE" || !slices.Equal(r.Rules, []string{"plan/born-approved"}) {
			t.Errorf("OLM was refused: %+v", r)
		}
	}
}
