package dependency

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/rights"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// orderingRest is how long nothing must happen where nothing has to, and orderingSettled how long Opgate has asked
	// for nothing when it has done what there was to do, on a machine of usual speed: longer than it waits from one change
	// of the backstop to the next, which is a second.
	orderingRest, orderingSettled = 2 * time.Second, 1500 * time.Millisecond
	// chainLength is that of the chain that cannot get on, longChainLength that of the long form, and chainTimeout
	// bounds the time until all of it is known to wait.
	chainLength, longChainLength, chainTimeout = 50, 1_000, speed.LongWait
	// settlingLength is that of the chain whose requests are counted.
	settlingLength = 30
)

// did is what Opgate asked for since an instant: "verb resource name", without the names of events. Its lease does not
// count, nor its periodic requests: to catalogs, about packages that OperatorPolicies of scripts were about, for
// versions of the cluster, and for the kind that it may not read, whether it may by now.
func (e *env) did(t testing.TB, since time.Time) []string {
	t.Helper()
	all, err := e.OpgateRequests(since, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var requests []string
	for _, r := range all {
		if r.Reopened() {
			continue
		}
		what := r.Verb + " " + rights.For(r).Resource
		switch r.Object.Resource {
		case "leases", "packagemanifests", "secretpolicies", "clusterversions", "":
		case "events":
			requests = append(requests, what)
		default:
			requests = append(requests, what+" "+r.Object.Name)
		}
	}
	return requests
}

// waitQuiet waits until Opgate has nothing to do.
func (e *env) waitQuiet(t testing.TB) {
	t.Helper()
	var last []string
	quiet := speed.Scale(orderingSettled)
	err := speed.Poll(t.Context(), quiet/5, harness.WaitTimeout,
		func(context.Context) (bool, error) {
			last = e.did(t, time.Now().Add(-quiet))
			return len(last) == 0, nil
		})
	if err != nil {
		t.Fatalf("opgate does not come to rest: %v\n%s", err, strings.Join(last, "\n"))
	}
}

// requests counts what Opgate asks the API server for, by the API server's own log, when a dependency changes.
func requests(t *testing.T, e *env) {
	namespace := e.place(t)
	e.mustCreate(t, configuration(namespace, "base"))
	var direct []string
	for i := range 3 {
		name := fmt.Sprintf("direct-%d", i)
		direct = append(direct, name)
		e.mustCreate(t, policyOf(namespace, name, "ConfigurationPolicy/base"),
			policyOf(namespace, fmt.Sprintf("indirect-%d", i), "Policy/"+name))
	}
	e.mustCreate(t, policyOf(namespace, "far", "Policy/indirect-0", "Policy/indirect-1"))
	e.turns(t, namespace, "base", "NonCompliant")
	e.waitIs(t, namespace, "far", policyv1.Pending)
	e.waitQuiet(t)

	t.Run("rest", func(t *testing.T) {
		since := time.Now()
		timer := time.NewTimer(orderingRest)
		defer timer.Stop()
		<-timer.C
		if requests := e.did(t, since); len(requests) > 0 {
			t.Errorf("in %s of rest opgate asked for\n  %s", orderingRest, strings.Join(requests, "\n  "))
		}
	})
	t.Run("what changes nothing", func(t *testing.T) {
		since := time.Now()
		u := configuration(namespace, "base")
		for i := range 5 {
			for _, patch := range []string{
				fmt.Sprintf(`{"metadata":{"annotations":{"note":"%d"}}}`, i),
				fmt.Sprintf(`{"status":{"lastEvaluated":"%d"}}`, i),
			} {
				write := e.Admin.Patch
				if strings.Contains(patch, "status") {
					write = func(ctx context.Context, u crclient.Object, p crclient.Patch,
						_ ...crclient.PatchOption) error {
						return e.Admin.Status().Patch(ctx, u, p)
					}
				}
				if err := write(t.Context(), u, crclient.RawPatch("application/merge-patch+json",
					[]byte(patch))); err != nil {
					t.Fatal(err)
				}
			}
		}
		e.waitQuiet(t)
		if requests := e.did(t, since); len(requests) > 0 {
			t.Errorf("opgate asked for\n  %s", strings.Join(requests, "\n  "))
		}
	})
	t.Run("a dependency is met", func(t *testing.T) {
		since := time.Now()
		e.turns(t, namespace, "base", "Compliant")
		for _, name := range direct {
			harness.Eventually(t, "the object of "+name, func(ctx context.Context) error {
				return e.Admin.Get(ctx, crclient.ObjectKey{Namespace: namespace, Name: name}, configuration("", ""))
			})
		}
		e.waitQuiet(t)
		// Each direct dependent makes its object and reports it, and those behind it learn that it is not Pending any
		// more.
		e.wantOnly(t, since, map[string]int{
			"create configurationpolicies direct-": 3, "patch policies/status direct-": 6, "create events": 12,
			"patch policies/status indirect-": 6,
		})
	})
	t.Run("a dependency is lost", func(t *testing.T) {
		for _, name := range direct {
			e.turns(t, namespace, name, "NonCompliant")
			e.waitIs(t, namespace, name, policyv1.NonCompliant)
		}
		e.waitQuiet(t)
		since := time.Now()
		e.turns(t, namespace, "base", "NonCompliant")
		for _, name := range direct {
			e.waitIs(t, namespace, name, policyv1.Pending)
		}
		e.waitQuiet(t)
		e.wantOnly(t, since, map[string]int{
			"delete configurationpolicies direct-": 3, "patch policies/status direct-": 6, "create events": 12,
			"patch policies/status indirect-": 6,
		})
	})
	t.Run("a chain settles", func(t *testing.T) { chainRequests(t, e) })
}

// wantOnly wants Opgate to have asked since an instant for nothing but these, by how they begin, and for each no more
// often.
func (e *env) wantOnly(t *testing.T, since time.Time, most map[string]int) {
	t.Helper()
	requests := e.did(t, since)
	left := map[string]int{}
	for _, request := range requests {
		found := false
		for prefix := range most {
			if strings.HasPrefix(request, prefix) {
				left[prefix]++
				found = true
			}
		}
		if !found {
			t.Errorf("opgate asked for %s", request)
		}
	}
	for prefix, n := range left {
		if n > most[prefix] {
			t.Errorf("opgate asked %d times for %s..., want at most %d", n, prefix, most[prefix])
		}
	}
	if t.Failed() {
		t.Logf("all its requests:\n  %s", strings.Join(requests, "\n  "))
	}
}

// chain creates Policies of which each depends on the one before, and the first on a ConfigurationPolicy that is
// NonCompliant.
func (e *env) chain(t testing.TB, namespace string, n int) {
	t.Helper()
	e.mustCreate(t, configuration(namespace, "base"))
	e.turns(t, namespace, "base", "NonCompliant")
	var all []*policyv1.Policy
	for i := range n {
		before := fmt.Sprintf("Policy/p-%04d", i-1)
		if i == 0 {
			before = "ConfigurationPolicy/base"
		}
		all = append(all, policyOf(namespace, fmt.Sprintf("p-%04d", i), before))
	}
	harness.AtOnce(t, harness.Writers, all,
		func(ctx context.Context, p *policyv1.Policy) error { return e.Admin.Create(ctx, p) })
}

// states counts the Policies of a namespace by their state.
func (e *env) states(ctx context.Context, namespace string) (map[policyv1.ComplianceState]int, error) {
	list := &policyv1.PolicyList{}
	if err := e.Admin.List(ctx, list, crclient.InNamespace(namespace)); err != nil {
		return nil, err
	}
	states := map[policyv1.ComplianceState]int{}
	for i := range list.Items {
		states[list.Items[i].Status.ComplianceState]++
	}
	return states, nil
}

// waitAll waits until all Policies of a namespace are in a state. It looks seldom, so that it does not slow down what
// it waits for.
func (e *env) waitAll(t testing.TB, namespace string, state policyv1.ComplianceState, n int, timeout time.Duration) {
	t.Helper()
	var last map[policyv1.ComplianceState]int
	err := speed.Poll(t.Context(), harness.PolicyPollInterval, timeout,
		func(ctx context.Context) (_ bool, err error) {
			last, err = e.states(ctx, namespace)
			return last[state] == n && len(last) == 1, err
		})
	if err != nil {
		t.Fatalf("wait until %d policies are %s: %v; they are %v", n, state, err, last)
	}
}

// evaluate has a policy controller find every ConfigurationPolicy of a namespace Compliant as soon as it exists, until
// the test ends.
func (e *env) evaluate(t testing.TB, namespace string) {
	t.Helper()
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects := client.Resource(policyv1.GroupVersion.WithResource("configurationpolicies")).Namespace(namespace)
	events, err := objects.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	go func() {
		for event := range events.ResultChan() {
			u, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type != watch.Added || u.GetName() == "base" {
				continue
			}
			status := fmt.Appendf(nil, `{"status":{"compliant":"Compliant","observedGeneration":%d}}`,
				u.GetGeneration())
			if _, err := objects.Patch(ctx, u.GetName(), "application/merge-patch+json", status, metav1.PatchOptions{},
				"status"); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(events.Stop)
}

// chainRequests counts the requests for a chain that gets on: as many for each Policy, however long the chain is.
func chainRequests(t *testing.T, e *env) {
	namespace := e.place(t)
	e.chain(t, namespace, settlingLength)
	e.waitAll(t, namespace, policyv1.Pending, settlingLength, chainTimeout)
	e.waitQuiet(t)
	e.evaluate(t, namespace)
	since := time.Now()
	e.turns(t, namespace, "base", "Compliant")
	e.waitAll(t, namespace, policyv1.Compliant, settlingLength, chainTimeout)
	e.waitQuiet(t)
	requests := e.did(t, since)
	// Its object, its status when that exists and when that is Compliant, what the one before states meanwhile, and
	// events.
	if most := settlingLength * 8; len(requests) > most {
		t.Errorf("opgate made %d requests for a chain of %d, want at most %d:\n  %s", len(requests), settlingLength,
			most, strings.Join(requests, "\n  "))
	}
	for _, name := range []string{"p-0000", "p-0015", fmt.Sprintf("p-%04d", settlingLength-1)} {
		if n := count(requests, "patch policies/status "+name); n > 3 {
			t.Errorf("opgate wrote the status of %s %d times, want at most 3", name, n)
		}
	}
}

func count(requests []string, what string) int {
	n := 0
	for _, request := range requests {
		if request == what {
			n++
		}
	}
	return n
}

// longChain is about many that depend on one: all of it is Pending, and no write can close it to a cycle.
func longChain(t *testing.T, e *env) {
	length := chainLength
	if *harness.Long {
		length = longChainLength
	}
	namespace, before, last := e.place(t), fmt.Sprintf("p-%04d", length-2), fmt.Sprintf("p-%04d", length-1)
	began := time.Now()
	e.chain(t, namespace, length)
	e.waitAll(t, namespace, policyv1.Pending, length, chainTimeout)
	t.Logf("%d policies in a chain were stored and Pending after %s", length, time.Since(began).Round(time.Millisecond))
	harness.Eventually(t, "all of it is known to admission", func(ctx context.Context) error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(policyKind)
		if err := e.Admin.Get(ctx, crclient.ObjectKey{Namespace: namespace, Name: last}, u); err != nil {
			return err
		}
		return e.judgedBy(ctx, u)
	})
	first := policyOf(namespace, "p-0000", "Policy/"+last)
	raw, err := crclient.MergeFrom(policyOf(namespace, "p-0000", "ConfigurationPolicy/base")).Data(first)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Admin.Patch(t.Context(), first, crclient.RawPatch("application/merge-patch+json", raw))
	if err == nil {
		t.Fatal("a cycle was not refused")
	}
	message := err.Error()
	harness.WantTexts(t, message, "(policy/dependency-cycle)",
		fmt.Sprintf("Policy %s/p-0000 -> Policy %s/%s", namespace, namespace, last), "... (", " more) ...")
	if len(message) > 2_000 || strings.Count(message, " -> ") > 15 {
		t.Errorf("the message has %d bytes: %s", len(message), message)
	}
	// The last one still knows why it waits, and refusals name the whole way in short.
	harness.Eventually(t, "the last one says what it waits for", func(ctx context.Context) error {
		p, err := e.policy(ctx, namespace, last)
		if err != nil {
			return err
		}
		if d := p.Status.Dependencies; len(d) != 1 || d[0].Name != before || d[0].Reason != "WrongState" ||
			d[0].State != policyv1.Pending {
			return fmt.Errorf("it waits for %+v", d)
		}
		return nil
	})
	written := 0
	for _, request := range e.did(t, began) {
		if strings.HasPrefix(request, "patch policies/status p-") {
			written++
		}
	}
	// The one before may not have been there, or have had no state, when each was looked at first.
	if most := 3 * length; written > most {
		t.Errorf("opgate wrote %d statuses, want at most %d", written, most)
	}
}
