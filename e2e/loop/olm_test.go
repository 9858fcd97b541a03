package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// TestLoopOLM puts the background loop beside a real OLM: policies are all that anybody writes, and OLM does the rest.
// What OLM does when the loop is slow, away, or in its way, no stand-in can tell. It plays the seven stories as one
// walk, one story of consent and one of trouble, on one cluster; TestLoopOLMStories plays all others.
func TestLoopOLM(t *testing.T) {
	t.Parallel()
	e := startLoopOLM(t, cluster.GateOptions{Loop: true, Reports: true},
		append(loopPackages(), growing("vessel", "vesseloperator", false, "*")), withReports(t))
	addRebuilt(t, e, growing("vessel", "vesseloperator", false, "*", "impersonate"))
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"stories 1 to 7 as one walk": walk,
		"a lockfile":                 lockfile,
		"an upgrade is reviewed for what it changes": func(t *testing.T, e *harness.OLMEnv) {
			upgradeReviewed(t, e, "vessel", "vesseloperator")
		},
		"a Subscription that lost its ClusterServiceVersion":      lostLink, // scenarios 23.1, 23.2
		"a Subscription that is created again, with only mayhave": lostLinkAllowed,
	})
	// In the walk OLM may plan once more while the Subscription of an operator that is removed goes.
	wantNoRefusalOfOLM(t, e.Env, "monitoring")
}

// startLoopOLM starts a cluster with OLM for one test alone. What is to be there before Opgate goes before.
func startLoopOLM(
	t *testing.T, opts cluster.GateOptions, packages []olm.Package, before ...func(*harness.Env),
) *harness.OLMEnv {
	t.Helper()
	e := &harness.OLMEnv{Env: harness.StartWithoutGate(t)}
	for _, prepare := range before {
		prepare(e.Env)
	}
	var err error
	if e.Gate, err = e.StartOpgate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if e.OLM, err = olm.Start(t.Context(), e.Cluster, olm.Options{
		Packages: packages,
		Log:      os.Stderr,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.OLM.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// loopPackages are what the catalog offers here. An operator that is installed for all namespaces is visible in all of
// them, so each that is has a package that no other test uses.
func loopPackages() []olm.Package {
	return append(olm.Packages(),
		olm.Package{
			Name: "consul", CSV: "consuloperator", Versions: []string{"1.0.0", "1.1.0"},
			Channels: map[string][]string{olm.Channel: {"1.0.0", "1.1.0"}, "without-upgrade": {"1.0.0"}},
		},
	)
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

// wantCondition wants a condition, such as "InstallPlanCompliant=False InstallPlanRequiresApproval", with all of the
// texts in its message.
func wantCondition(condition string, texts ...string) want {
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

// waitForPolicy waits until the status of a policy, in its newest generation, states all that is wanted at the same
// time.
func waitForPolicy(
	t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured, wants ...want,
) *policyv1beta2.OperatorPolicy {
	t.Helper()
	op := &policyv1beta2.OperatorPolicy{}
	e.Eventually(t, "wait for policy "+p.GetName(), func(ctx context.Context) error {
		got, err := e.Clients[cluster.Admin].Resource(harness.OperatorPolicies).Namespace(p.GetNamespace()).Get(ctx,
			p.GetName(), metav1.GetOptions{})
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
			return fmt.Errorf("%w\nits conditions:\n%s", err, scripttest.Conditions(op))
		}
		return nil
	})
	return op
}

// wantNoRefusalOfOLM wants OLM to have been refused nothing, except in some namespaces: with the loop, Subscriptions
// are right before OLM plans anything. The exception is a plan that it made from a Subscription that was switched to
// Manual at the same moment.
func wantNoRefusalOfOLM(t *testing.T, e *harness.Env, except ...string) {
	t.Helper()
	for _, r := range e.RefusalsOfOLM(t) {
		if slices.Contains(except, r.Namespace) {
			continue
		}
		if r.Operation != "CREATE" || !slices.Equal(r.Rules, []string{"plan/born-approved"}) {
			t.Errorf("OLM was refused: %+v", r)
		}
	}
}
