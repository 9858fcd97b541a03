package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/e2e/olm"
)

// Together runs tests at the same time, since most of the time they wait for OLM: t.Parallel would run no more than
// there are processors.
func Together(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var all sync.WaitGroup
	for name, test := range tests {
		all.Go(func() { t.Run(name, test) })
	}
	all.Wait()
}

// Together runs tests in namespaces of their own.
func (e *OLMEnv) Together(t *testing.T, tests map[string]func(*testing.T, *OLMEnv)) {
	t.Helper()
	bound := map[string]func(*testing.T){}
	for name, test := range tests {
		bound[name] = func(t *testing.T) { test(t, e) }
	}
	Together(t, bound)
}

// WaitForGone waits until an object does not exist any more.
func (e *OLMEnv) WaitForGone(t testing.TB, resource schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	e.Eventually(t, "wait until "+resource.Resource+" "+name+" is gone", func(ctx context.Context) error {
		_, err := e.Clients[cluster.Admin].Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is still there")
	})
}

// olmTimeout bounds one step of OLM, such as an installation. OLM waits for seconds between some of its attempts.
const olmTimeout = speed.LongWait

// OLMEnv is an environment in which OLM runs.
type OLMEnv struct {
	*Env
	OLM *olm.OLM
	// Born is a namespace with an Automatic Subscription to a package that must not be.
	Born string
}

// OperatorGroup lets OLM install in a namespace.
func (e *Env) OperatorGroup(t testing.TB, namespace string) {
	t.Helper()
	e.CreateAs(t, cluster.Admin, Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %[1]s, namespace: %[1]s}
spec: {targetNamespaces: [%[1]s]}
`, namespace))
}

// Subscribe subscribes to a package as the tenant and returns the approval that is stored.
func (e *Env) Subscribe(t testing.TB, namespace, name, startingCSV, approval string) string {
	t.Helper()
	s := Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %[1]s, namespace: %[2]s}
spec: {name: %[1]s, channel: %[3]s, source: %[4]s, sourceNamespace: %[5]s, startingCSV: %[6]q, installPlanApproval: %[7]s}
`, name, namespace, olm.Channel, olm.Catalog, cluster.OLMNamespace, startingCSV, approval)
	stored := e.CreateAs(t, cluster.Tenant, s)
	written, _, _ := unstructured.NestedString(stored.Object, "spec", "installPlanApproval")
	return written
}

// Eventually waits until check returns nil, up to the timeout for OLM.
func (e *OLMEnv) Eventually(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("not looked yet")
	err := Poll(t.Context(), olmTimeout, func(ctx context.Context) (bool, error) {
		if err := e.OLM.Err(); err != nil {
			return false, err
		}
		if err := check(ctx); err == nil || ctx.Err() == nil { // else only the time is up
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		for _, log := range e.OLM.Logs() {
			// few, since the error comes after the logs of all components
			t.Logf("%s ends with\n%s", log, tail.File(log, 10))
		}
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// WaitForPlan waits until OLM has written a plan for these versions, and no others, and waits for its approval.
func (e *OLMEnv) WaitForPlan(t testing.TB, namespace string, csvs ...string) *unstructured.Unstructured {
	t.Helper()
	slices.Sort(csvs)
	var found *unstructured.Unstructured
	e.Eventually(t, "wait for the plan for "+strings.Join(csvs, " and "), func(ctx context.Context) error {
		list, err := e.Clients[cluster.Admin].Resource(InstallPlans).Namespace(namespace).List(ctx,
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, p := range list.Items {
			names, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "clusterServiceVersionNames")
			phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
			approved, _, _ := unstructured.NestedBool(p.Object, "spec", "approved")
			slices.Sort(names)
			if slices.Equal(names, csvs) && phase == "RequiresApproval" && !approved {
				found = &p
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s for %v, phase %q, approved %t", p.GetName(), names, phase, approved))
		}
		return fmt.Errorf("plans are %v", seen)
	})
	e.Sync(t)
	return found
}

// WaitForCSV waits until OLM has installed a version, and no longer has the one that it replaces.
func (e *OLMEnv) WaitForCSV(t testing.TB, namespace, name string) {
	t.Helper()
	e.Eventually(t, "wait until "+name+" is installed", func(ctx context.Context) error {
		list, err := e.Clients[cluster.Admin].Resource(Resources["ClusterServiceVersion"]).Namespace(namespace).List(
			ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		operator, _, _ := strings.Cut(name, ".")
		var seen []string
		for _, csv := range list.Items {
			if !strings.HasPrefix(csv.GetName(), operator+".") {
				continue
			}
			phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
			message, _, _ := unstructured.NestedString(csv.Object, "status", "message")
			seen = append(seen, csv.GetName()+" "+phase)
			if phase != "Succeeded" {
				seen = append(seen, message)
			}
		}
		if !slices.Equal(seen, []string{name + " Succeeded"}) {
			return fmt.Errorf("there are %v", seen)
		}
		return nil
	})
}

// Approval is the merge patch that approves a plan.
const Approval = `{"spec":{"approved":true}}`

// Approve approves a plan as a user.
func (e *OLMEnv) Approve(t testing.TB, user cluster.User, plan *unstructured.Unstructured) {
	t.Helper()
	e.Patch(t, user, plan, Approval)
}

// WantApprovalRefused returns the gate's refusal.
func (e *OLMEnv) WantApprovalRefused(
	t testing.TB, user cluster.User, plan *unstructured.Unstructured, says ...string,
) string {
	t.Helper()
	got := e.Clients[user].Must(t, Request{
		Method: "PATCH", Path: PathOf(InstallPlans, plan.GetNamespace(), plan.GetName(), ""),
		ContentType: "application/merge-patch+json", Body: []byte(Approval),
	})
	if got.OK() {
		t.Errorf(Final+"%s approves %v: it was not refused", user, plan.GetName())
	}
	for _, text := range says {
		if !strings.Contains(got.Refused, text) {
			t.Errorf("%s approves %v: got %s\nwant %q in it", user, plan.GetName(), got, text)
		}
	}
	return got.Refused
}
