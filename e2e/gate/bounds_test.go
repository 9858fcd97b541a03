package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestA4 stores the largest objects that the API server takes. All are valid and none needs a right that tenants, or
// authors of bundles, do not have.
func TestA4(t *testing.T) {
	t.Parallel()
	e := harness.Vacant(t)
	e.StartGate(t, cluster.GateOptions{Loop: true, MemoryLimit: harness.ContainerMemory})
	t.Run("a ClusterServiceVersion that takes long to judge is not stored", func(t *testing.T) { hostileCSV(t, e) })
	t.Run("large Subscriptions and OperatorGroups take no memory", func(t *testing.T) { hostileSubscriptions(t, e) })
}

// hostileCSV writes, as OLM, what a bundle asks for. The webhook that sees it has failurePolicy Ignore: if judging took
// longer than its timeout, the object would be stored.
func hostileCSV(t *testing.T, e *harness.Env) {
	namespace := e.NewNamespace(t)
	constrain(t, e, constraintOf(namespace,
		only(namespace, "!clusterPermissions.exists(r, '*' in r.apiGroups && '*' in r.resources && '*' in r.verbs)"),
		"no cluster admins"))
	constrain(t, e, constraintOf(namespace+"-hooks", only(namespace, "!webhooks.exists(w, '*' in w.apiGroups)"),
		"no webhooks on everything"))
	object := func(name, rules string, hooks int) []byte {
		return []byte(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"` + name + `","namespace":"` + namespace + `"},
			"spec":{"displayName":"evil","version":"1.0.0","install":{"strategy":"deployment","spec":{"deployments":[],"clusterPermissions":[{"serviceAccountName":"evil","rules":` + rules + `}]}},
			"webhookdefinitions":[{"type":"ValidatingAdmissionWebhook","generateName":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],
			"rules":[` + strings.TrimSuffix(strings.Repeat("{},", hooks), ",") + `]}]}}`)
	}
	const (
		everything = `[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`
		workloads  = `[{"apiGroups":["apps"],"resources":["*"],"verbs":["*"]}]`
	)
	for _, attack := range []struct {
		name, rules string
		hooks       int
		refused     string
	}{
		{name: "plain.v1", rules: workloads, hooks: 390_000, refused: "(gate/unreadable)"},   // more than is decoded
		{name: "admin.v2", rules: everything, hooks: 60_000, refused: "(bundle/constraint)"}, // more than is judged
		{name: "plain.v2", rules: workloads, hooks: 60_000, refused: "(bundle/constraint)"},
	} {
		a := e.Clients[cluster.OLM].Must(t, harness.Request{
			Method:      http.MethodPost,
			Path:        harness.PathOf(harness.ClusterServiceVersions, namespace, "", ""),
			ContentType: "application/json",
			Body:        object(attack.name, attack.rules, attack.hooks),
		})
		if a.OK() || !strings.Contains(a.Refused, attack.refused) {
			t.Errorf("%s: %s", attack.name, a)
		}
	}
	if stored, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(namespace).List(
		t.Context(), metav1.ListOptions{}); err != nil || len(stored.Items) > 0 {
		t.Errorf("%d ClusterServiceVersions are stored (%v)", len(stored.Items), err)
	}
}

// hostileSubscriptions stores some of the largest that reviews let pass, and groups that were there before the policy. A
// decoder makes 21 MiB of each.
func hostileSubscriptions(t *testing.T, e *harness.Env) {
	const most = 40 << 20
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	subscription := func(i, tolerations int) string {
		return fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":"large-%d"},
			"spec":{"name":"large-%[1]d","channel":"stable","source":"c","sourceNamespace":"olm","config":{"tolerations":[%s]}}}`,
			i, strings.TrimSuffix(strings.Repeat(`{"key":""},`, tolerations), ","))
	}
	if a := e.Clients[cluster.Admin].Must(t, harness.Request{
		Method:      http.MethodPost,
		Path:        harness.PathOf(harness.Subscriptions, namespace, "", ""),
		ContentType: "application/json",
		Body:        []byte(subscription(0, 120_000)),
	}); a.OK() || !strings.Contains(a.Refused, "(gate/unreadable)") {
		t.Errorf("a Subscription of 1.3 MB: %s", a)
	}
	names := make([]string, 40_000) // the API server itself takes many seconds for more
	for i := range names {
		names[i] = fmt.Sprintf(`"n%d"`, i)
	}
	before, err := retained(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		for _, o := range []struct {
			resource schema.GroupVersionResource
			author   cluster.User
			text     string
		}{
			{resource: harness.Subscriptions, author: cluster.Admin, text: subscription(i, 60_000)},
			{
				resource: harness.OperatorGroups,
				author:   cluster.OLM, // of others they are refused here, but may be older than the policy
				text: fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1","kind":"OperatorGroup","metadata":{"name":"large-%d"},
				"spec":{"targetNamespaces":[%s]}}`, i, strings.Join(names, ",")),
			},
		} {
			a := e.Clients[o.author].Must(t, harness.Request{
				Method:      http.MethodPost,
				Path:        harness.PathOf(o.resource, namespace, "", ""),
				ContentType: "application/json",
				Body:        []byte(o.text),
			})
			if !a.OK() {
				t.Fatalf("%s: %s", o.resource.Resource, a)
			}
		}
	}
	e.Sync(t)
	// The policy is evaluated with them beside its own Subscription.
	harness.Eventually(t, "wait for the status of the policy", func(ctx context.Context) error {
		p, err := e.Clients[cluster.Admin].Of(harness.OperatorPolicy(namespace)).Get(ctx, namespace,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status, _ := json.Marshal(p.Object["status"]); !strings.Contains(string(status), "large-") {
			return fmt.Errorf("it says nothing of the groups: %.300s", status)
		}
		return nil
	})
	wantRetained(t, e, before+most)
	// Another leader reads them all at once.
	e.Restart(t, cluster.GateOptions{Loop: true, MemoryLimit: harness.ContainerMemory})
	harness.Eventually(t, "wait for the loop to lead", func(ctx context.Context) error {
		_, body, err := harness.GetURL(ctx, e.Gate.MetricsURL())
		if err == nil && !strings.Contains(body, "opgate_loop_leading 1") {
			err = fmt.Errorf("it does not lead yet")
		}
		return err
	})
	wantRetained(t, e, before+most)
}

// wantRetained wants that the process retains so many bytes at most, and that what it took meanwhile fits its
// container.
func wantRetained(t *testing.T, e *harness.Env, most int) {
	t.Helper()
	harness.Eventually(t, "wait for a collection that leaves little", func(ctx context.Context) error {
		now, err := retained(ctx, e)
		if err == nil && now > most {
			err = fmt.Errorf("the process retains %d MiB, want at most %d", now>>20, most>>20)
		}
		return err
	})
	peak, err := e.Gate.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	if peak > maxResident {
		t.Errorf("the process took %d MiB, want at most %d", peak>>20, maxResident>>20)
	}
	t.Logf("the process took %d MiB at most", peak>>20)
}

var heapGoal = regexp.MustCompile(`(?m)^go_memstats_next_gc_bytes (\S+)$`)

// retained is what the last collection left, in bytes: the heap may grow by half until the next one. How much memory
// the process takes depends on when the machine lets it collect.
func retained(ctx context.Context, e *harness.Env) (int, error) {
	_, body, err := harness.GetURL(ctx, e.Gate.MetricsURL())
	if err != nil {
		return 0, err
	}
	match := heapGoal.FindStringSubmatch(body)
	if match == nil {
		return 0, fmt.Errorf("no go_memstats_next_gc_bytes in %.500s", body)
	}
	n, err := strconv.ParseFloat(match[1], 64)
	return int(n / 1.5), err
}
