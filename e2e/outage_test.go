package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// TestG6Killed kills Opgate in the middle of writes that it refuses. None of them gets through, at no moment; what the gate
// has no say in goes on; and a new process takes over with what it finds.
func TestG6Killed(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	waiting := e.put(t, plan(namespace, "waiting", forbiddenVersion))
	standing := e.put(t, subscription(namespace, "standing", goodCatalog, "Manual"))
	e.sync(t)

	// Somebody keeps trying, from before the end until after the new beginning.
	trying, stopTrying := context.WithCancel(t.Context())
	var tries sync.WaitGroup
	refusals := map[string]int{}
	through := 0
	tries.Go(func() {
		path := pathOf(subscriptions, namespace, "", "")
		body := []byte(asJSON(t, subscription(namespace, "foreign", foreignCatalog, "Manual")))
		for trying.Err() == nil {
			got, err := e.clients[cluster.Tenant].send(trying, request{method: http.MethodPost, path: path, contentType: "application/json", body: body})
			switch {
			case err != nil: // the end of the test
			case got.ok():
				through++
			case got.refused != "":
				refusals["the gate"]++
			case strings.Contains(got.message, "failed calling webhook"):
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

	if err := e.gate.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "see the outage", func(context.Context) error {
		return e.wantOutage(t, cluster.Tenant, http.MethodPost, pathOf(subscriptions, namespace, "", ""), subscription(namespace, "good", goodCatalog, "Manual"))
	})

	t.Run("what the gate judges is refused", func(t *testing.T) {
		fresh := policy(namespace)
		fresh.SetName("another-" + namespace)
		for _, user := range []cluster.User{cluster.Tenant, cluster.Admin, cluster.OLM} {
			for _, u := range []*unstructured.Unstructured{subscription(namespace, "good", goodCatalog, "Manual"), plan(namespace, "good", allowedVersion), fresh} {
				switch {
				case user == cluster.Tenant && u.GetKind() == "OperatorPolicy":
					continue // it has no right to, gate or no gate
				case user == cluster.OLM && u.GetKind() == "Subscription":
					continue // a step of a plan that began before: see wantWritable
				}
				if err := e.wantOutage(t, user, http.MethodPost, pathOf(resources[u.GetKind()], u.GetNamespace(), "", ""), u); err != nil {
					t.Error(err)
				}
			}
			refused(t, e.Cluster, user, "", []string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--type=merge", "--patch", `{"spec":{"approved":true}}`},
				"failed calling webhook")
			refused(t, e.Cluster, user, "", []string{"patch", "subscription", "-n", namespace, standing.GetName(), "--type=merge", "--patch", `{"spec":{"channel":"beta"}}`},
				"failed calling webhook")
		}
		for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
			refused(t, e.Cluster, user, "", []string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--subresource=status", "--type=merge", "--patch", `{"status":{"phase":"Installing"}}`},
				"failed calling webhook")
		}
	})
	t.Run("G15 everything else is not", func(t *testing.T) { e.wantWritable(t, namespace, waiting, standing) })

	e.restart(t, cluster.GateOptions{})
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "foreign", foreignCatalog, "Manual")), []string{"create", "-f", "-"}, deniedBy, foreignCatalog)
	good := subscription(namespace, "good", goodCatalog, "Manual")
	t.Cleanup(func() { e.remove(t, good) })
	kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, good), "create", "-f", "-")

	stopTrying()
	tries.Wait()
	t.Logf("while somebody kept trying, refused by %v", refusals)
	if through > 0 {
		t.Errorf("%d forbidden writes got through", through)
	}
	if len(refusals) != 2 {
		t.Errorf("refused by %v, want by the gate and by the API server, both", refusals)
	}
}

// wantOutage wants a write to be refused because the gate cannot be asked.
func (e *env) wantOutage(t *testing.T, user cluster.User, method, path string, u *unstructured.Unstructured) error {
	t.Helper()
	got := e.clients[user].must(t, request{method: method, path: path, query: url.Values{"dryRun": {"All"}}, contentType: "application/json", body: []byte(asJSON(t, u))})
	if got.ok() || !strings.Contains(got.message, "failed calling webhook") {
		return fmt.Errorf("%s %s as %s: %s, want it refused because no webhook answers", method, path, user, got)
	}
	return nil
}

// wantWritable writes what must go on without the gate: all that a cluster, and Opgate itself, need to start (threat G15), and
// what cannot matter.
func (e *env) wantWritable(t *testing.T, namespace string, waiting, standing *unstructured.Unstructured) {
	t.Helper()
	name := "e2e-" + rand.String(6)
	for _, in := range []string{namespace, cluster.OpgateNamespace, cluster.PolicyNamespace, "kube-system"} {
		for _, manifest := range []string{
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"NAME"},"spec":{"ports":[{"port":443}]}}`,
			`{"apiVersion":"v1","kind":"Event","metadata":{"name":"NAME"},"involvedObject":{"kind":"Pod","namespace":"NAMESPACE"}}`,
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"NAME"}}`,
			`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"CatalogSource","metadata":{"name":"NAME"},"spec":{"sourceType":"grpc"}}`,
			`{"apiVersion":"operators.coreos.com/v1","kind":"OperatorGroup","metadata":{"name":"NAME"}}`,
		} {
			manifest = strings.NewReplacer("NAMESPACE", in, "NAME", name).Replace(manifest)
			kubectl(t, e.Cluster, cluster.Admin, manifest, "create", "--dry-run=server", "-n", in, "-f", "-")
		}
	}
	for _, manifest := range []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"NAME"}}`,
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"NAME"}}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"NAME"}}`,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"NAME"}}`,
	} {
		kubectl(t, e.Cluster, cluster.Admin, strings.ReplaceAll(manifest, "NAME", name), "create", "--dry-run=server", "-f", "-")
	}

	// Our own namespace is not gated, so that Opgate could be installed through OLM.
	for _, u := range []*unstructured.Unstructured{
		subscription(cluster.OpgateNamespace, name, foreignCatalog, "Automatic"), plan(cluster.OpgateNamespace, name, forbiddenVersion),
	} {
		kubectl(t, e.Cluster, cluster.Admin, asJSON(t, u), "create", "--dry-run=server", "-f", "-")
	}
	// OLM gives a plan up for good when it cannot write the Subscription to a dependency for a minute.
	kubectl(t, e.Cluster, cluster.OLM, asJSON(t, subscription(namespace, name, goodCatalog, "Automatic")), "create", "--dry-run=server", "-f", "-")
	// Metadata, OLM's own status, and the end of things.
	for _, args := range [][]string{
		{"label", "installplan", "-n", namespace, waiting.GetName(), "a=b"},
		{"annotate", "subscription", "-n", namespace, standing.GetName(), "a=b"},
		{"patch", "installplan", "-n", namespace, waiting.GetName(), "--subresource=status", "--type=merge", "--patch", `{"status":{"message":"by OLM"}}`},
		{"delete", "subscription", "-n", namespace, standing.GetName()},
		{"delete", "installplan", "-n", namespace, waiting.GetName(), "--dry-run=server"},
	} {
		kubectl(t, e.Cluster, cluster.OLM, "", args...)
	}
	kubectl(t, e.Cluster, cluster.Admin, "", "label", "operatorpolicy", "-n", cluster.PolicyNamespace, namespace, "a=b")
}

// TestG23Terminated asks Opgate to end. It says at once that it is no longer ready, answers all the same until the API server
// has had time to notice, ends what it has begun, and exits with code 0.
func TestG23Terminated(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.restart(t, cluster.GateOptions{Args: []string{"--drain-delay=" + speed.Scale(2*time.Second).String()}})
	e.sync(t)

	ended := make(chan error, 1)
	go func() {
		code, err := e.gate.Stop()
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		ended <- err
	}()
	eventually(t, "see that it is no longer ready", func(ctx context.Context) error {
		code, body, err := get(ctx, e.gate.HealthURL()+"/readyz")
		if err != nil || code == http.StatusOK {
			return fmt.Errorf("%d %s %w", code, body, err)
		}
		return nil
	})
	// In the time that is left it judges as before.
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "etcd", foreignCatalog, "Manual")), []string{"create", "-f", "-"}, deniedBy, foreignCatalog)
	kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "etcd", goodCatalog, "Manual")), "create", "--dry-run=server", "-f", "-")

	// The last review that it begins is still open when the listener is closed.
	last := e.begin(t)
	eventually(t, "see the listener closed", func(ctx context.Context) error {
		next, err := e.tryBegin(ctx)
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
	case <-time.After(waitTimeout):
		t.Error("opgate does not end")
	}
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "etcd", goodCatalog, "Manual")), []string{"create", "-f", "-"}, "failed calling webhook")
}

// TestG23StalledClient has a client that never finishes its review. It must not keep Opgate from ending in good order.
func TestG23StalledClient(t *testing.T) {
	e := shared(t)
	e.restart(t, cluster.GateOptions{})
	stalled := e.begin(t)
	if code, err := e.gate.Stop(); err != nil || code != 0 {
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

// trust is the TLS configuration of a client that trusts the gate.
func (e *env) trust() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.gate.CA())
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// begun is a review of which the second half has not been sent, and which the gate waits for.
type begun struct {
	connection net.Conn
	answers    *bufio.Reader
	rest       []byte
}

// begin sends the first half of a review.
func (e *env) begin(t *testing.T) *begun {
	t.Helper()
	b, err := e.tryBegin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tryBegin is begin for a gate that may not answer. It must not outlive the test.
func (e *env) tryBegin(ctx context.Context) (*begun, error) {
	connection, err := (&tls.Dialer{Config: e.trust()}).DialContext(ctx, "tcp", strings.TrimPrefix(e.gate.WebhookURL(), "https://"))
	if err != nil {
		return nil, err
	}
	body := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)
	b := &begun{connection: connection, answers: bufio.NewReader(connection), rest: body[10:]}
	fmt.Fprintf(connection, "POST /validate/subscriptions HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	// It comes when the gate reads the body: a request that it has not begun to read when it shuts down is not answered.
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

// get makes a plain HTTP request.
func get(ctx context.Context, target string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Timeout: 30 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// TestG2NotReady starts Opgate while it may not read one of the resources that it judges by. An empty list of policies must
// never read as "no policies": until it has read all of them it refuses everything, and then it needs no restart.
func TestG2NotReady(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	waiting := e.put(t, plan(namespace, "waiting", forbiddenVersion))
	e.sync(t)
	role := kubectl(t, e.Cluster, cluster.Admin, "", "get", "clusterrole", "opgate-admission", "-o", "json")
	t.Cleanup(func() {
		// From a test that failed half-way, too, the others must get a gate that works.
		ctx := context.WithoutCancel(t.Context())
		if _, err := e.Kubectl(ctx, cluster.Admin, role, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	for _, resource := range []string{"operatorpolicies", "clusterserviceversions"} {
		t.Run(resource, func(t *testing.T) {
			e.setRole(t, without(t, role, resource), resource, "no")
			e.restart(t, cluster.GateOptions{Unready: true})
			eventually(t, "wait until it says that it is not ready", func(ctx context.Context) error {
				code, body, err := get(ctx, e.gate.HealthURL()+"/readyz")
				if err != nil || code != http.StatusInternalServerError && code != http.StatusServiceUnavailable {
					return fmt.Errorf("%d %s %w", code, body, err)
				}
				return nil
			})
			// Whatever is written, by whomever.
			path := pathOf(subscriptions, namespace, "", "")
			good := []byte(asJSON(t, subscription(namespace, "good", goodCatalog, "Manual")))
			eventually(t, "be told that it is not ready", func(ctx context.Context) error {
				got, err := e.clients[cluster.Tenant].send(ctx, request{method: http.MethodPost, path: path, contentType: "application/json", body: good})
				if err != nil || !strings.Contains(got.refused, "not ready") {
					return fmt.Errorf("%s %w", got, err)
				}
				return nil
			})
			stranger := policy(namespace)
			stranger.SetName("stranger")
			for _, user := range []cluster.User{cluster.Admin, cluster.OLM} {
				for _, u := range []*unstructured.Unstructured{subscription(namespace, "good", goodCatalog, "Manual"), stranger} {
					refused(t, e.Cluster, user, asJSON(t, u), []string{"create", "-f", "-"}, deniedBy, "not ready")
				}
				refused(t, e.Cluster, user, "", []string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--type=merge", "--patch", `{"spec":{"approved":true}}`}, deniedBy, "not ready")
			}
			refused(t, e.Cluster, cluster.Tenant, "", []string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--subresource=status", "--type=merge", "--patch", `{"status":{"phase":"Installing"}}`}, deniedBy, "not ready")
			// OLM goes on all the same with what harms nobody (threat O4).
			byOLM := plan(namespace, "by-olm", forbiddenVersion)
			kubectl(t, e.Cluster, cluster.OLM, asJSON(t, byOLM), "create", "--dry-run=server", "-f", "-")
			if code, body, err := get(t.Context(), e.gate.HealthURL()+"/readyz"); err != nil || code < 500 {
				t.Errorf("/readyz says %d %s (%v)", code, body, err)
			}

			e.setRole(t, role, resource, "yes")
			if err := e.gate.WaitForReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			refused(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "foreign", foreignCatalog, "Manual")), []string{"create", "-f", "-"}, deniedBy, foreignCatalog)
			kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "good", goodCatalog, "Manual")), "create", "--dry-run=server", "-f", "-")
		})
	}
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
	u.Object["rules"] = slices.DeleteFunc(rules, func(rule any) bool { return len(rule.(map[string]any)["resources"].([]any)) == 0 })
	return asJSON(t, &u)
}

// setRole replaces Opgate's role, and waits until the API server goes by it.
func (e *env) setRole(t *testing.T, role, resource, may string) {
	t.Helper()
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(role), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetResourceVersion("")
	kubectl(t, e.Cluster, cluster.Admin, asJSON(t, &u), "replace", "-f", "-")
	eventually(t, "wait for the role", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "auth", "can-i", "list", resource, "-A", "--as=system:serviceaccount:opgate-system:opgate")
		if err == nil && strings.TrimSpace(result.Stdout) != may {
			err = fmt.Errorf("may list %s: %s", resource, result.Stdout)
		}
		return err
	})
}
