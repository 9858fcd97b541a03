package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
	"github.com/opgate/opgate/rules"
)

const (
	certified1 = "consuloperator.v1.0.0"
	prometheus = "prometheusoperator.v0.47.0"
	vault1     = "vaultoperator.v1.0.0"
	trainer1   = "traineroperator.v1.0.0"

	// leftOut is a namespace that a flag of Opgate names as left out by the webhook configurations.
	leftOut = "sandbox"

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
	e.StartGate(t, cluster.GateOptions{Loop: true, Args: []string{"--excluded-namespace=" + leftOut}})
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"a violating operator is never installed":             violatingWaits,
		"a Constraint that goes lets pass what waits":         deletedLetsPass,
		"a satisfying operator is installed":                  satisfyingInstalls,
		"a violating dependency holds the plan":               violatingDependency,
		"an operator that wants to be cluster-admin":          clusterAdmin,
		"permissions of a cluster admin in one namespace":     localAdmin,
		"Subscriptions that were there before":                subscribedBefore,
		"a namespace that is left out":                        namespaceLeftOut,
		"tenants install from the curated catalog":            curatedForTenants,
		"a Subscription is warned of what its plan will hold": warnedSubscription,
		"operators for another cluster are held":              otherCluster,
		"a property of the cluster makes a bundle resolve":    virtualOperator,
		"a virtual operator among operators for all":          virtualOperatorGlobal,
		"ClusterServiceVersions past OLM":                     bypassesOLM,
		"hostile Constraints":                                 hostileConstraints,
		"everybody reads and admins write":                    constraintRoles,
		"the examples of the document":                        constraintExamples,
	})
	t.Run("a status is written when it changes", func(t *testing.T) { statusRests(t, e) })
	// Afterwards, since OLM copies what is installed for all namespaces into those of the other tests.
	t.Run("permissions under an OperatorGroup for all namespaces", func(t *testing.T) { permissionsForAll(t, e) })
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
		note, noted := s.GetAnnotations()[rules.RequestedApprovalAnnotation]
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

// counts wants these numbers of installed operators, for a Constraint with one rule.
func counts(violating int) func(*constraintv1.Constraint) error {
	return func(c *constraintv1.Constraint) error {
		switch ready := readyOf(c); {
		case c.Status.EvaluatedGeneration != c.Generation || ready.Status != metav1.ConditionTrue ||
			len(c.Status.Constraints) != 1:
			return errors.New("it is not evaluated")
		case c.Status.Violating != violating || c.Status.Constraints[0].Violating != violating:
			return fmt.Errorf("want %d violating", violating)
		}
		return nil
	}
}

func readyOf(c *constraintv1.Constraint) metav1.Condition {
	for _, condition := range c.Status.Conditions {
		if condition.Type == constraintv1.ConditionReady {
			return condition
		}
	}
	return metav1.Condition{}
}

// constraintExamples has the API server take every example of docs/constraints.md, in a dry run: some of them are about
// all namespaces.
func constraintExamples(t *testing.T, e *harness.OLMEnv) {
	text, err := os.ReadFile("../../docs/constraints.md")
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, document := range strings.Split(block[1], "\n---\n") {
			if !strings.Contains(document, "apiVersion: ") {
				continue // a part of an object
			}
			var u unstructured.Unstructured
			if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
				t.Fatal(err)
			}
			warned := warnings(t, e.Env, cluster.Admin, document, "create", "--dry-run=server", "-f", "-")
			// What other tests have installed may be previewed.
			// What is offered may have its reader in the Constraint before, which a dry run does not store.
			for line := range strings.Lines(warned) {
				if !strings.Contains(line, "("+string(rules.RuleConstraintViolated)+")") &&
					!strings.Contains(line, " is read by no rule") {
					t.Errorf("%s %s: %s", u.GetKind(), u.GetName(), line)
				}
			}
			applied++
		}
	}
	if applied < 12 {
		t.Errorf("%d examples, want at least 12", applied)
	}
}

// constraintRoles sends requests as a user without roles.
func constraintRoles(t *testing.T, e *harness.OLMEnv) {
	for verb, want := range map[string]string{
		"get": "yes", "list": "yes", "watch": "yes", "create": "no", "update": "no", "patch": "no", "delete": "no",
		"deletecollection": "no", "override": "no",
	} {
		result, err := e.Kubectl(t.Context(), cluster.Admin, "", "auth", "can-i", verb,
			"constraints.operators.coreos.com",
			"--as=somebody", "--as-group=system:authenticated")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(result.Stdout); got != want {
			t.Errorf("may a user %s Constraints: %s, want %s\n%s", verb, got, want, result.Stderr)
		}
	}
	u := constraintOf("of-a-tenant", "true", "")
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, u), []string{"create", "-f", "-"},
		`cannot create resource "constraints"`)
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "get", "constraints.operators.coreos.com")
}

// hostileConstraints are what only a hostile or a careless admin writes.
func hostileConstraints(t *testing.T, e *harness.OLMEnv) {
	nested := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		constraints, properties string
		says                    []string
	}{
		"three-loops": {
			constraints: `[{"type":"olm.constraint","value":{"rule":"properties.all(a, properties.all(b, properties.all(c, a.type + b.type + c.type != 'x')))"}}]`,
			says:        []string{"spec.constraints[0].value.rule", "(constraint/rule)", "limit"},
		},
		"no-bool": {
			constraints: `[{"type":"olm.constraint","value":{"rule":"1 + 1"}}]`,
			says:        []string{"(constraint/rule)", "bool"},
		},
		"undeclared": {
			constraints: `[{"type":"olm.constraint","value":{"rule":"package == 'etcd'"}}]`,
			says:        []string{"(constraint/rule)", "packageName"},
		},
		"misspelt": {
			constraints: `[{"type":"olm.constraint","value":{"rule":"true","mesage":"typo"}}]`,
			says:        []string{"(constraint/syntax)", "mesage"},
		},
		"twice": {
			constraints: `[{"type":"olm.constraint","value":{"rule":"false","rule":"true"}}]`,
			says:        []string{"(constraint/syntax)", "rule"},
		},
		"cut-off": {constraints: `[{"type":"olm.constraint",`, says: []string{"(constraint/syntax)", "line 1"}},
		"no-list": {constraints: `{"type":"olm.constraint"}`, says: []string{"(constraint/syntax)"}},
		"null":    {constraints: `[null]`, says: []string{"(constraint/syntax)"}},
		"a-range": {
			constraints: `[{"type":"olm.constraint","value":{"package":{"packageName":"etcd","versionRange":"soon"}}}]`,
			says:        []string{"(constraint/rule)", "soon"},
		},
		"nothing": {constraints: `[{"type":"olm.constraint","value":{}}]`, says: []string{"(constraint/rule)"}},
		"number": {
			properties: `[{"type":"olm.package","value":{"packageName":"etcd","version":1}}]`,
			says:       []string{"(constraint/property)", "version"},
		},
		"no-semver": {
			properties: `[{"type":"olm.package","value":{"packageName":"etcd","version":"one"}}]`,
			says:       []string{"(constraint/property)", `one`},
		},
		"quoted":  {properties: `"[]"`, says: []string{"(constraint/syntax)"}},
		"no-type": {properties: `[{"type":"","value":1}]`, says: []string{"spec.properties[0]"}},
		"deep":    {properties: `[{"type":"a","value":` + nested + `}]`, says: []string{"(constraint/size)", "100"}},
		"large": {
			properties:  `[{"type":"a","value":"` + long[:1<<20-100] + `"}]`,
			constraints: strings.Repeat(" ", 200),
			says:        []string{"(constraint/size)", "1048576"},
		},
		"larger": {properties: `[{"type":"a","value":"` + long + `"}]`, says: []string{"spec.properties"}},
	} {
		u := constraintOf("hostile-"+name, "true", "")
		u.Object["spec"] = map[string]any{"constraints": c.constraints, "properties": c.properties}
		result, err := e.Kubectl(t.Context(), cluster.Admin, harness.AsJSON(t, u), "create", "-f", "-")
		if err != nil {
			t.Fatal(err)
		}
		if result.ExitCode == 0 {
			t.Errorf("%s was not refused", name)
			e.Remove(t, u)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(result.Stderr, text) {
				t.Errorf("%s: got %.600s\nwant %q in it", name, result.Stderr, text)
			}
		}
	}
	// Its size is no fault as long as it stays below the limit.
	u := constraintOf("hostile-but-allowed", "true", "")
	u.Object["spec"] = map[string]any{"properties": `[{"type":"` + strings.Repeat("ü", 10) + `","value":"` +
		long[:1<<20-200] + `"}]`}
	constrain(t, e.Env, u)
	waitForConstraint(t, e, u.GetName(), func(c *constraintv1.Constraint) error {
		if readyOf(c).Status != metav1.ConditionTrue {
			return errors.New("it is not ready")
		}
		return nil
	})
	misspelt := harness.WithField(constraintOf("hostile-field", "true", ""), "x", "spec", "constraint")
	harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, misspelt),
		[]string{"create", "--validate=false", "-f", "-"}, "(constraint/field)", "spec.constraint")
}

// bypassesOLM writes ClusterServiceVersions by hand, as a user who bypasses OLM.
func bypassesOLM(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	constrain(t, e.Env, constraintOf(namespace, only(namespace, isCertified), "only certified operators"))
	csv := func(properties string) string {
		return harness.AsJSON(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %s
  namespace: %s
  annotations: {operatorframework.io/properties: '{"properties":[%s]}'}
spec:
  displayName: Etcd
  version: 0.9.4
  installModes: [{type: OwnNamespace, supported: true}]
  install: {strategy: deployment, spec: {deployments: []}}
`, harness.Etcd4, namespace, properties))
	}
	const etcd = `{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4"}}`
	harness.WantRefused(t, e.Cluster, cluster.Admin, csv(etcd), []string{"create", "-f", "-"},
		"clusterserviceversion "+namespace+"/"+harness.Etcd4+
			": this ClusterServiceVersion is not allowed by Constraint "+
			namespace+" (bundle/constraint): only certified operators")
	harness.WantRefused(t, e.Cluster, cluster.Admin, csv(""), []string{"create", "-f", "-"}, "(bundle/constraint)")
	harness.WantRefused(t, e.Cluster, cluster.Admin, csv(etcd+`,{"type":"certified","value":true}`),
		[]string{"create", "-f", "-"}, "states of itself")
	harness.Kubectl(t, e.Cluster, cluster.OLM, csv(etcd+`,{"type":"certified","value":true}`), "create", "-f", "-")
	harness.WantRefused(t, e.Cluster, cluster.Admin, csv(etcd),
		[]string{"apply", "--force-conflicts", "--server-side", "-f", "-"}, "(bundle/constraint)")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "csv", "-n", namespace, harness.Etcd4)
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
