package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
	"github.com/opgate/opgate/internal/metakey"
)

const (
	certified1 = "consuloperator.v1.0.0"
	trainer1   = "traineroperator.v1.0.0"

	superuser1  = "superuseroperator.v1.0.0"
	superimage1 = "superimageoperator.v1.0.0"
	localuser1  = "localuseroperator.v1.0.0"
)

// TestConstraintsOLM has Constraints judge what a real OLM makes of Subscriptions, and shows its resolver what the
// cluster offers. All tests run at the same time on one cluster, so the rules of each are about a namespace of its own.
func TestConstraintsOLM(t *testing.T) {
	t.Parallel()
	e := harness.VacantOLM(t, constraintPackages())
	if err := e.TellOpenShift(t.Context(), harness.OpenShiftVersion); err != nil {
		t.Fatal(err)
	}
	e.StartGate(t, cluster.GateOptions{Loop: true})
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"a violating operator is never installed":             violatingWaits,
		"a satisfying operator is installed":                  satisfyingInstalls,
		"an operator that wants to be cluster-admin":          clusterAdmin,
		"permissions of a cluster admin in one namespace":     localAdmin,
		"tenants install from the curated catalog":            curatedForTenants,
		"a Subscription is warned of what its plan will hold": warnedSubscription,
		"operators for another cluster are held":              otherCluster,
		"a property of the cluster makes a bundle resolve":    virtualOperator,
	})
	for _, r := range e.RefusalsOfOLM(t) {
		// made from a Subscription that was switched at that moment
		born := slices.Equal(r.Rules, []string{"plan/born-approved"})
		if r.Operation != "CREATE" || !born {
			t.Errorf("OLM was refused: %+v", r)
		}
	}
}

// constraintPackages are what the catalog offers here.
func constraintPackages() []olm.Package {
	needsGPU := map[string]any{
		"failureMessage": "training needs a GPU with 40 GB",
		"cel":            map[string]any{"rule": `properties.exists(p, p.type == "acme.gpu" && p.value.memory >= 40)`},
	}
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	return append(olm.Packages(),
		olm.Package{
			Name:     "consul",
			CSV:      "consuloperator",
			Versions: []string{"1.0.0"},
			Properties: []olm.Property{{
				Type:  "certified",
				Value: true,
			}},
		},
		olm.Package{
			Name:     "trainer",
			CSV:      "traineroperator",
			Versions: []string{"1.0.0"},
			Properties: []olm.Property{{
				Type:  "olm.constraint",
				Value: needsGPU,
			}},
		},
		olm.Package{
			Name:               "superuser",
			CSV:                "superuseroperator",
			Versions:           []string{"1.0.0"},
			ClusterPermissions: everything,
		},
		olm.Package{
			Name:               "superimage",
			CSV:                "superimageoperator",
			Versions:           []string{"1.0.0"},
			ClusterPermissions: everything,
			Images:             true,
		},
		olm.Package{
			Name:        "localuser",
			CSV:         "localuseroperator",
			Versions:    []string{"1.0.0"},
			Permissions: everything,
		},
		olm.Package{Name: "future", CSV: "futureoperator", Versions: []string{"1.0.0"}, MinKubeVersion: "1.99.0"},
		olm.Package{
			Name:     "legacy",
			CSV:      "legacyoperator",
			Versions: []string{"1.0.0"},
			Properties: []olm.Property{{
				Type:  "olm.maxOpenShiftVersion",
				Value: "4.18",
			}},
		},
	)
}

// only is a rule that is about one namespace, and holds elsewhere whatever a bundle is.
func only(namespace, rule string) string {
	return "namespaceObject.metadata.name != '" + namespace + "' || (" + rule + ")"
}

// isCertified is a rule.
const isCertified = "properties.exists(p, p.type == 'certified')"

// constraintOf has one required rule, and the name of the namespace that it is about.
func constraintOf(name, rule, message string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: %s}
spec:
  constraints: |
    [{"type": "olm.constraint", "value": {"rule": %q, "message": %q}}]
`, name, rule, message)
}

// constrain creates a Constraint that goes with the test, and returns the warnings.
func constrain(t *testing.T, e *harness.Env, u *unstructured.Unstructured) string {
	t.Helper()
	t.Cleanup(func() { e.Remove(t, u) })
	warnings := warnings(t, e, cluster.Admin, harness.AsJSON(t, u), "create", "-f", "-")
	e.Sync(t)
	return warnings
}

// warnings runs kubectl as a user, wants it to succeed, and returns what it was warned of.
func warnings(t *testing.T, e *harness.Env, user cluster.User, stdin string, args ...string) string {
	t.Helper()
	result, err := e.Kubectl(t.Context(), user, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 0 {
		t.Fatalf("kubectl %s as %s: exit code %d\n%s", strings.Join(args, " "), user, result.ExitCode, result.Stderr)
	}
	return result.Stderr
}

// waitForApproval waits until a Subscription has this approval, and the annotation with which the loop approves for it
// or, if asked is "", none.
func waitForApproval(t *testing.T, e *harness.OLMEnv, namespace, name, approval, asked string) {
	t.Helper()
	e.Eventually(t, "wait until Subscription "+name+" is "+approval, func(ctx context.Context) error {
		s, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(namespace).Get(ctx, name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, _, _ := unstructured.NestedString(s.Object, "spec", "installPlanApproval")
		note, noted := s.GetAnnotations()[metakey.RequestedApproval]
		if have != approval || note != asked || noted != (asked != "") {
			return fmt.Errorf("it is %q with annotations %v", have, s.GetAnnotations())
		}
		return nil
	})
}

// waitForConstraint waits until the status of a Constraint reports of its newest generation what is wanted.
func waitForConstraint(
	t *testing.T, e *harness.OLMEnv, name string, wanted func(*constraintv1.Constraint) error,
) *constraintv1.Constraint {
	t.Helper()
	c := &constraintv1.Constraint{}
	e.Eventually(t, "wait for Constraint "+name, func(ctx context.Context) error {
		got, err := e.Clients[cluster.Admin].Resource(harness.Constraints).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		*c = constraintv1.Constraint{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, c); err != nil {
			return err
		}
		if c.Status.ObservedGeneration != c.Generation {
			return fmt.Errorf("generation %d was not observed yet", c.Generation)
		}
		if err := wanted(c); err != nil {
			return fmt.Errorf("%w: its status is %+v", err, c.Status)
		}
		return nil
	})
	return c
}

// csvsNamed lists the namespaces that have a ClusterServiceVersion of a name.
func csvsNamed(t *testing.T, e *harness.Env, name string) []string {
	t.Helper()
	list, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).List(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	in := []string{}
	for _, u := range list.Items {
		in = append(in, u.GetNamespace())
	}
	slices.Sort(in)
	return in
}

// find reads an object as an admin; nil where there is none.
func find(ctx context.Context, e *harness.Env, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	got, err := e.Clients[cluster.Admin].Of(u).Get(ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return got, err
}
