package gate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// TestG6Killed kills Opgate in the middle of writes that it refuses. None of them gets through, at no moment; what the
// gate has no say in goes on; and a new process takes over with what it finds.
func TestG6Killed(t *testing.T) {
	e := harness.SharedWithoutBackstop(t) // TestBackstopKept has what it refuses meanwhile
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	stored := e.Put(t, harness.Subscription(namespace, "standing", harness.GoodCatalog, "Manual"))
	e.Sync(t)

	// A client keeps retrying, from before the end until after the restart.
	trying, stopTrying := context.WithCancel(t.Context())
	var tries sync.WaitGroup
	refusals := map[string]int{}
	through := 0
	tries.Go(func() {
		path := harness.PathOf(harness.Subscriptions, namespace, "", "")
		body := []byte(harness.AsJSON(t, harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual")))
		for trying.Err() == nil {
			got, err := e.Clients[cluster.Tenant].Send(trying, harness.Request{
				Method:      http.MethodPost,
				Path:        path,
				ContentType: "application/json",
				Body:        body,
			})
			switch {
			case err != nil: // the end of the test
			case got.OK():
				through++
			case got.Refused != "":
				refusals["the gate"]++
			case strings.Contains(got.Message, "failed calling webhook"):
				refusals["the API server"]++
			default:
				refusals[got.String()]++
			}
		}
	})
	defer func() {
		stopTrying()
		tries.Wait()
	}()

	if err := e.Gate.Kill(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "see the outage", func(context.Context) error {
		return wantOutage(t, e, cluster.Tenant, http.MethodPost,
			harness.PathOf(harness.Subscriptions, namespace, "", ""),
			harness.Subscription(namespace, "good", harness.GoodCatalog, "Manual"))
	})

	t.Run("what the gate judges is refused", func(t *testing.T) {
		fresh := harness.OperatorPolicy(namespace)
		fresh.SetName("another-" + namespace)
		for _, user := range []cluster.User{cluster.Tenant, cluster.Admin, cluster.OLM} {
			for _, u := range []*unstructured.Unstructured{harness.Subscription(namespace, "good", harness.GoodCatalog,
				"Manual"), harness.InstallPlan(namespace, "good", harness.AllowedVersion), fresh} {
				switch {
				case user == cluster.Tenant && u.GetKind() == "OperatorPolicy":
					continue // it has no right to, gate or no gate
				case user == cluster.OLM && u.GetKind() == "Subscription":
					continue // a step of a plan that began before: see wantWritable
				case user == cluster.OLM && u.GetKind() == "InstallPlan":
					u = harness.WithField(u, true, "spec", "approved") // others go on: see wantWritable
				}
				if err := wantOutage(t, e, user, http.MethodPost,
					harness.PathOf(harness.Resources[u.GetKind()], u.GetNamespace(), "", ""), u); err != nil {
					t.Error(err)
				}
			}
			harness.WantRefused(t, e.Cluster, user, "",
				[]string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--type=merge", "--patch",
					`{"spec":{"approved":true}}`},
				"failed calling webhook")
			harness.WantRefused(t, e.Cluster, user, "",
				[]string{"patch", "subscription", "-n", namespace, stored.GetName(), "--type=merge", "--patch",
					`{"spec":{"channel":"beta"}}`},
				"failed calling webhook")
		}
		for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
			harness.WantRefused(t, e.Cluster, user, "",
				[]string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--subresource=status",
					"--type=merge", "--patch", `{"status":{"phase":"Installing"}}`},
				"failed calling webhook")
		}
	})
	t.Run("G15 everything else is not", func(t *testing.T) { wantWritable(t, e, namespace, waiting, stored) })

	e.Restart(t, cluster.GateOptions{WithoutBackstop: true})
	harness.WantRefused(t, e.Cluster, cluster.Tenant,
		harness.AsJSON(t, harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual")),
		[]string{"create", "-f", "-"}, harness.DeniedBy, harness.ForeignCatalog)
	good := harness.Subscription(namespace, "good", harness.GoodCatalog, "Manual")
	t.Cleanup(func() { e.Remove(t, good) })
	e.CreateAs(t, cluster.Tenant, good)

	stopTrying()
	tries.Wait()
	t.Logf("while the attempts went on, refused by %v", refusals)
	if through > 0 {
		t.Errorf(harness.Final+"%d forbidden writes got through", through)
	}
	if len(refusals) != 2 {
		t.Errorf("refused by %v, want by the gate and by the API server, both", refusals)
	}
}

// wantOutage wants a write to be refused because the gate cannot be asked.
func wantOutage(
	t *testing.T, e *harness.Env, user cluster.User, method, path string, u *unstructured.Unstructured,
) error {
	t.Helper()
	got := e.Clients[user].Must(t, harness.Request{
		Method:      method,
		Path:        path,
		Query:       url.Values{"dryRun": {"All"}},
		ContentType: "application/json",
		Body:        []byte(harness.AsJSON(t, u)),
	})
	if got.OK() || !strings.Contains(got.Message, "failed calling webhook") {
		return fmt.Errorf("%s %s as %s: %s, want it refused because no webhook answers", method, path, user, got)
	}
	return nil
}

// wantWritable writes what must go on without the gate: all that a cluster, and Opgate itself, need to start (threat
// G15), and what cannot matter.
func wantWritable(t *testing.T, e *harness.Env, namespace string, waiting, stored *unstructured.Unstructured) {
	t.Helper()
	name := "e2e-" + rand.String(6)
	create := func(in string, manifests ...string) {
		t.Helper()
		text := strings.NewReplacer("NAMESPACE", in, "NAME", name).Replace(strings.Join(manifests, "\n---\n"))
		args := []string{"create", "--dry-run=server", "-f", "-"}
		if in != "" {
			args = append(args, "-n", in)
		}
		harness.Kubectl(t, e.Cluster, cluster.Admin, text, args...)
	}
	for _, in := range []string{namespace, cluster.OpgateNamespace, cluster.PolicyNamespace, "kube-system"} {
		create(in,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"NAME"},"spec":{"ports":[{"port":443}]}}`,
			`{"apiVersion":"v1","kind":"Event","metadata":{"name":"NAME"},"involvedObject":{"kind":"Pod","namespace":"NAMESPACE"}}`,
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"operators.coreos.com/v2","kind":"OperatorCondition","metadata":{"name":"NAME"}}`)
	}
	create("",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"NAME"}}`,
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"NAME"}}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"NAME"}}`,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"NAME"}}`)

	// Our own namespace is not gated, so that Opgate could be installed through OLM.
	create(cluster.OpgateNamespace,
		harness.AsJSON(t, harness.Subscription(cluster.OpgateNamespace, name, harness.ForeignCatalog, "Automatic")),
		harness.AsJSON(t, harness.InstallPlan(cluster.OpgateNamespace, name, harness.ForbiddenVersion)),
		`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"CatalogSource","metadata":{"name":"NAME"},"spec":{"sourceType":"grpc"}}`,
		`{"apiVersion":"operators.coreos.com/v1","kind":"OperatorGroup","metadata":{"name":"NAME"}}`)
	// OLM fails a plan permanently when it cannot write the Subscription to a dependency for a minute.
	harness.Kubectl(t, e.Cluster, cluster.OLM,
		harness.AsJSON(t, harness.Subscription(namespace, name, harness.GoodCatalog, "Automatic")), "create",
		"--dry-run=server", "-f", "-")
	// OLM stops creating a plan after a few failures, until its next resync (threat O4).
	harness.Kubectl(t, e.Cluster, cluster.OLM,
		harness.AsJSON(t, harness.InstallPlan(namespace, name, harness.ForbiddenVersion)), "create", "--dry-run=server",
		"-f", "-")
	// Metadata, OLM's own status, and the end of things.
	for _, args := range [][]string{
		{"label", "installplan", "-n", namespace, waiting.GetName(), "a=b"},
		{"annotate", "subscription", "-n", namespace, stored.GetName(), "a=b"},
		{"patch", "installplan", "-n", namespace, waiting.GetName(), "--subresource=status", "--type=merge", "--patch",
			`{"status":{"message":"by OLM"}}`},
		{"delete", "subscription", "-n", namespace, stored.GetName()},
		{"delete", "installplan", "-n", namespace, waiting.GetName(), "--dry-run=server"},
	} {
		harness.Kubectl(t, e.Cluster, cluster.OLM, "", args...)
	}
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "label", "operatorpolicy", "-n", cluster.PolicyNamespace,
		namespace, "a=b")
}

// TestG23Terminated asks Opgate to end. It states at once that it is no longer ready, answers all the same until the
// API server has had time to notice, ends what it has begun, and exits with code 0.
func TestG23Terminated(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Restart(t, cluster.GateOptions{Args: []string{"--drain-delay=" + speed.Scale(10*time.Second).String()}})
	e.Sync(t)

	ended := make(chan error, 1)
	go func() {
		code, err := e.Gate.Stop()
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		ended <- err
	}()
	harness.Eventually(t, "see that it is no longer ready", func(ctx context.Context) error {
		code, body, err := harness.GetURL(ctx, e.Gate.HealthURL()+"/readyz")
		if err != nil || code == http.StatusOK {
			return fmt.Errorf("%d %s %w", code, body, err)
		}
		return nil
	})
	// In the time that is left it judges as before.
	create := func(source string) error {
		u := harness.Subscription(namespace, "etcd", source, "Manual")
		_, err := e.Clients[cluster.Tenant].Of(u).Create(t.Context(), u,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := create(harness.ForeignCatalog); err == nil || !strings.Contains(err.Error(), harness.DeniedBy) {
		t.Errorf("a Subscription to %s: %v, want it denied", harness.ForeignCatalog, err)
	}
	if err := create(harness.GoodCatalog); err != nil {
		t.Error(err)
	}

	// The last review that it begins is still open when the listener is closed.
	last := begin(t, e)
	harness.Eventually(t, "see the listener closed", func(ctx context.Context) error {
		next, err := tryBegin(ctx, e)
		if err == nil {
			err, last = last.connection.Close(), next
			return errors.Join(errors.New("it still takes connections"), err)
		}
		return nil
	})
	last.wantAnswer(t)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-speed.After(harness.WaitTimeout):
		t.Error("opgate does not end")
	}
	harness.WantRefused(t, e.Cluster, cluster.Tenant,
		harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")),
		[]string{"create", "-f", "-"}, "failed calling webhook")
}

// TestG23StalledClient has a client that never finishes its review. It must not keep Opgate from ending in good order.
func TestG23StalledClient(t *testing.T) {
	e := harness.Shared(t)
	e.Restart(t, cluster.GateOptions{})
	stalled := begin(t, e)
	if code, err := e.Gate.Stop(); err != nil || code != 0 {
		t.Errorf("opgate ends with exit code %d: %v", code, err)
	}
	response, err := http.ReadResponse(stalled.answers, nil)
	if err != nil {
		t.Fatalf("the stalled client is not told: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || !bytes.Contains(body, []byte(`"allowed":false`)) {
		t.Errorf("the stalled client is answered with %d %s (%v)", response.StatusCode, body, err)
	}
}

// begun is a review of which the second half has not been sent, and which the gate waits for.
type begun struct {
	connection net.Conn
	answers    *bufio.Reader
	rest       []byte
}

// begin sends the first half of a review.
func begin(t *testing.T, e *harness.Env) *begun {
	t.Helper()
	b, err := tryBegin(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tryBegin is begin for a gate that may not answer. It must not outlive the test.
func tryBegin(ctx context.Context, e *harness.Env) (*begun, error) {
	connection, err := (&tls.Dialer{Config: e.Trust()}).DialContext(ctx, "tcp",
		strings.TrimPrefix(e.Gate.WebhookURL(), "https://"))
	if err != nil {
		return nil, err
	}
	body := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)
	b := &begun{connection: connection, answers: bufio.NewReader(connection), rest: body[10:]}
	fmt.Fprintf(connection, "POST /validate/subscriptions HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	// It comes when the gate reads the body: a request that it has not begun to read when it shuts down is not
	// answered.
	response, err := http.ReadResponse(b.answers, nil)
	if err == nil && response.StatusCode != http.StatusContinue {
		err = fmt.Errorf("the gate does not read a review but answers %s", response.Status)
	}
	if err == nil {
		_ = response.Body.Close()
		_, err = connection.Write(body[:10])
	}
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return b, nil
}

// wantAnswer sends the second half, and wants an answer.
func (b *begun) wantAnswer(t *testing.T) {
	t.Helper()
	if _, err := b.connection.Write(b.rest); err != nil {
		t.Errorf("a review that was begun before the end cannot be finished: %v", err)
		return
	}
	response, err := http.ReadResponse(b.answers, nil)
	if err != nil {
		t.Errorf("a review that was begun before the end is not answered: %v", err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || !bytes.Contains(body, []byte("AdmissionReview")) {
		t.Errorf("a review that was begun before the end is answered with %d %s (%v)", response.StatusCode, body, err)
	}
}

// TestG2NotReady starts Opgate while it may not read a resource that it judges by. An empty list of policies must never
// read as "no policies": until it has read all of them it refuses everything, and then it needs no restart.
func TestG2NotReady(t *testing.T) {
	e := harness.SharedWithoutBackstop(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	e.Sync(t)
	role := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "clusterrole", "opgate-admission", "-o", "json")
	t.Cleanup(func() {
		// From a test that failed half-way, too, the others must get a gate that works.
		ctx := context.WithoutCancel(t.Context())
		if _, err := e.Kubectl(ctx, cluster.Admin, role, "apply", "--server-side", "--force-conflicts", "-f",
			"-"); err != nil {
			t.Error(err)
		}
	})
	const resource = "operatorpolicies"
	setRole(t, e, without(t, role, resource), resource, "no")
	e.Restart(t, cluster.GateOptions{Unready: true, WithoutBackstop: true})
	harness.Eventually(t, "wait until it says that it is not ready", func(ctx context.Context) error {
		code, body, err := harness.GetURL(ctx, e.Gate.HealthURL()+"/readyz")
		if err != nil || code != http.StatusInternalServerError && code != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s %w", code, body, err)
		}
		return nil
	})
	// Whatever is written, by whomever.
	path := harness.PathOf(harness.Subscriptions, namespace, "", "")
	good := []byte(harness.AsJSON(t, harness.Subscription(namespace, "good", harness.GoodCatalog, "Manual")))
	harness.Eventually(t, "be told that it is not ready", func(ctx context.Context) error {
		got, err := e.Clients[cluster.Tenant].Send(ctx, harness.Request{
			Method:      http.MethodPost,
			Path:        path,
			ContentType: "application/json",
			Body:        good,
		})
		if err != nil || !strings.Contains(got.Refused, "not ready") {
			return fmt.Errorf("%s %w", got, err)
		}
		return nil
	})
	stranger := harness.OperatorPolicy(namespace)
	stranger.SetName("stranger")
	for _, user := range []cluster.User{cluster.Admin, cluster.OLM} {
		for _, u := range []*unstructured.Unstructured{harness.Subscription(namespace, "good",
			harness.GoodCatalog, "Manual"), stranger} {
			harness.WantRefused(t, e.Cluster, user, harness.AsJSON(t, u), []string{"create", "-f", "-"},
				harness.DeniedBy, "not ready")
		}
		harness.WantRefused(t, e.Cluster, user, "",
			[]string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--type=merge", "--patch",
				`{"spec":{"approved":true}}`}, harness.DeniedBy, "not ready")
	}
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "",
		[]string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--subresource=status",
			"--type=merge", "--patch", `{"status":{"phase":"Installing"}}`}, harness.DeniedBy, "not ready")
	// OLM still continues with harmless writes (threat O4).
	byOLM := harness.InstallPlan(namespace, "by-olm", harness.ForbiddenVersion)
	harness.Kubectl(t, e.Cluster, cluster.OLM, harness.AsJSON(t, byOLM), "create", "--dry-run=server", "-f",
		"-")
	if code, body, err := harness.GetURL(t.Context(), e.Gate.HealthURL()+"/readyz"); err != nil || code < 500 {
		t.Errorf("/readyz says %d %s (%v)", code, body, err)
	}

	setRole(t, e, role, resource, "yes")
	if err := e.Gate.WaitForReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	harness.WantRefused(t, e.Cluster, cluster.Tenant,
		harness.AsJSON(t, harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual")),
		[]string{"create", "-f", "-"}, harness.DeniedBy, harness.ForeignCatalog)
	harness.Kubectl(t, e.Cluster, cluster.Tenant,
		harness.AsJSON(t, harness.Subscription(namespace, "good", harness.GoodCatalog, "Manual")), "create",
		"--dry-run=server", "-f", "-")
}

// without is a role that lacks a resource.
func without(t *testing.T, role, resource string) string {
	t.Helper()
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(role), &u.Object); err != nil {
		t.Fatal(err)
	}
	rules, _, err := unstructured.NestedSlice(u.Object, "rules")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		rule := rule.(map[string]any)
		rule["resources"] = slices.DeleteFunc(rule["resources"].([]any), func(r any) bool { return r == resource })
	}
	u.Object["rules"] = slices.DeleteFunc(rules,
		func(rule any) bool { return len(rule.(map[string]any)["resources"].([]any)) == 0 })
	return harness.AsJSON(t, &u)
}

// setRole replaces Opgate's role, and waits until the API server goes by it.
func setRole(t *testing.T, e *harness.Env, role, resource, may string) {
	t.Helper()
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(role), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetResourceVersion("")
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.AsJSON(t, &u), "replace", "-f", "-")
	harness.Eventually(t, "wait for the role", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "auth", "can-i", "list", resource, "-A",
			"--as=system:serviceaccount:opgate-system:opgate")
		if err == nil && strings.TrimSpace(result.Stdout) != may {
			err = fmt.Errorf("may list %s: %s", resource, result.Stdout)
		}
		return err
	})
}
