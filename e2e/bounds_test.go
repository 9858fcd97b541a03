package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/opgate/opgate/e2e/cluster"
)

// TestA4 stores the largest objects that the API server takes. All are valid and none needs a right that tenants, or authors of bundles,
// do not have.
func TestA4(t *testing.T) {
	t.Parallel()
	e := startBare(t, cluster.Options{Audit: true, Log: os.Stderr})
	var err error
	if e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, MemoryLimit: containerMemory}); err != nil {
		t.Fatal(err)
	}
	t.Run("a ClusterServiceVersion that takes long to judge is not stored", func(t *testing.T) { hostileCSV(t, e) })
	t.Run("large Subscriptions and OperatorGroups take no memory", func(t *testing.T) { hostileSubscriptions(t, e) })
}

// hostileCSV writes, as OLM, what a bundle asks for. The webhook that sees it has failurePolicy Ignore: if judging took longer than its
// timeout, the object would be stored.
func hostileCSV(t *testing.T, e *env) {
	namespace := e.newNamespace(t)
	e.constrain(t, constraintOf(namespace, only(namespace, "!clusterPermissions.exists(r, '*' in r.apiGroups && '*' in r.resources && '*' in r.verbs)"), "no cluster admins"))
	e.constrain(t, constraintOf(namespace+"-hooks", only(namespace, "!webhooks.exists(w, '*' in w.apiGroups)"), "no webhooks on everything"))
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
		{"admin.v1", everything, 390_000, "(gate/unreadable)"}, // more than is decoded
		{"plain.v1", workloads, 390_000, "(gate/unreadable)"},
		{"admin.v2", everything, 60_000, "(csv/constraint)"}, // more than is judged
		{"plain.v2", workloads, 60_000, "(csv/constraint)"},
	} {
		a := e.clients[cluster.OLM].must(t, request{method: http.MethodPost, path: pathOf(csvs, namespace, "", ""), contentType: "application/json",
			body: object(attack.name, attack.rules, attack.hooks)})
		if a.ok() || !strings.Contains(a.refused, attack.refused) {
			t.Errorf("%s: %s", attack.name, a)
		}
	}
	if stored, err := e.clients[cluster.Admin].Resource(csvs).Namespace(namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(stored.Items) > 0 {
		t.Errorf("%d ClusterServiceVersions are stored (%v)", len(stored.Items), err)
	}
}

// hostileSubscriptions stores the five largest that reviews let pass, and groups that are not reviewed. A decoder makes 21 MiB of each.
func hostileSubscriptions(t *testing.T, e *env) {
	const most = 40 << 20
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.sync(t)
	subscription := func(i, tolerations int) string {
		return fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":"large-%d"},
			"spec":{"name":"large-%[1]d","channel":"stable","source":"c","sourceNamespace":"olm","config":{"tolerations":[%s]}}}`,
			i, strings.TrimSuffix(strings.Repeat(`{"key":""},`, tolerations), ","))
	}
	if a := e.clients[cluster.Admin].must(t, request{method: http.MethodPost, path: pathOf(subscriptions, namespace, "", ""), contentType: "application/json",
		body: []byte(subscription(0, 120_000))}); a.ok() || !strings.Contains(a.refused, "(gate/unreadable)") {
		t.Errorf("a Subscription of 1.3 MB: %s", a)
	}
	names := make([]string, 40_000) // the API server itself takes many seconds for more
	for i := range names {
		names[i] = fmt.Sprintf(`"n%d"`, i)
	}
	before := e.resident(t)
	peak, stop := e.watchResident(t)
	for i := range 5 {
		for _, o := range []struct {
			resource schema.GroupVersionResource
			text     string
		}{
			{subscriptions, subscription(i, 60_000)},
			{operatorGroups, fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1","kind":"OperatorGroup","metadata":{"name":"large-%d"},
				"spec":{"targetNamespaces":[%s]}}`, i, strings.Join(names, ","))},
		} {
			a := e.clients[cluster.Admin].must(t, request{method: http.MethodPost, path: pathOf(o.resource, namespace, "", ""), contentType: "application/json", body: []byte(o.text)})
			if !a.ok() {
				t.Fatalf("%s: %s", o.resource.Resource, a)
			}
		}
	}
	e.sync(t)
	// The policy is evaluated with them beside its own Subscription.
	eventually(t, "wait for the status of the policy", func(ctx context.Context) error {
		p, err := e.clients[cluster.Admin].of(policy(namespace)).Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status, _ := json.Marshal(p.Object["status"]); !strings.Contains(string(status), "large-") {
			return fmt.Errorf("it says nothing of the groups: %.300s", status)
		}
		return nil
	})
	stop()
	if grown := *peak - before; grown > most {
		t.Errorf("the process grew by %d MiB to %d, at most %d is right", grown>>20, *peak>>20, most>>20)
	}
	t.Logf("resident %d MiB before, at most %d", before>>20, *peak>>20)
	// Another leader reads them all at once.
	if _, err := e.gate.Stop(); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, MemoryLimit: containerMemory}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "wait for the loop to lead", func(ctx context.Context) error {
		_, body, err := get(ctx, e.gate.MetricsURL())
		if err == nil && !strings.Contains(body, "opgate_loop_leading 1") {
			err = fmt.Errorf("it does not lead yet")
		}
		return err
	})
	if again := e.resident(t); again > before+most {
		t.Errorf("the next leader takes %d MiB, the first took %d before", again>>20, before>>20)
	}
}

var residentMetric = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)

// resident is how much memory the process has now, in bytes.
func (e *env) resident(t *testing.T) int {
	t.Helper()
	n, err := e.residentNow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (e *env) residentNow(ctx context.Context) (int, error) {
	_, body, err := get(ctx, e.gate.MetricsURL())
	if err != nil {
		return 0, err
	}
	match := residentMetric.FindStringSubmatch(body)
	if match == nil {
		return 0, fmt.Errorf("no process_resident_memory_bytes in %.500s", body)
	}
	n, err := strconv.ParseFloat(match[1], 64)
	return int(n), err
}

// watchResident follows how much memory the process has at most, until it is stopped.
func (e *env) watchResident(t *testing.T) (peak *int, stop func()) {
	t.Helper()
	peak = new(int)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			if now, err := e.residentNow(ctx); err == nil {
				*peak = max(*peak, now)
			}
		}, pollInterval)
	})
	return peak, func() {
		cancel()
		running.Wait()
	}
}
