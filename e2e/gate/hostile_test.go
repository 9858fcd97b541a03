package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// hostileClients is how many send at once, and maxResident what Opgate may take while they do. Where it has hardly
	// a core of its own, its garbage collector is late: a third more than on an idle machine.
	hostileClients = 64
	slowClients    = 16
	maxResident    = 320 << 20
	// hostileBody is just below the most that Opgate reads.
	hostileBody = 8<<20 - 1<<10
)

// hostilePod is a client on a pod that may reach the port of the webhooks: another address than the API server's, and
// no credentials.
func hostilePod(t *testing.T, e *harness.Env) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	return &http.Client{
		Transport: speed.Transport(&http.Transport{
			TLSClientConfig: e.Trust(),
			DialContext:     dialer.DialContext,
		}, harness.WaitTimeout),
	}
}

// stuffed repeats a part until the text is as large as a hostile body.
func stuffed(begin, part, end string) []byte {
	return []byte(begin + strings.Repeat(part, (hostileBody-len(begin)-len(end))/len(part)) + end)
}

func manyKeys(begin, value, end string) []byte {
	var b bytes.Buffer
	b.WriteString(begin)
	for i := 0; b.Len() < hostileBody-len(end)-64; i++ {
		fmt.Fprintf(&b, `"k%d":%s,`, i, value)
	}
	b.WriteString(`"k":` + value + end)
	return b.Bytes()
}

// TestA3ParallelHostileBodies has 64 clients without credentials send as much as they may, at once, to the endpoints for
// reviews and for conversion. The process stays small, and the API server gets its answers meanwhile. What each body
// takes is in TestA3DecodingFitsItsPrice; here are some of them.
func TestA3ParallelHostileBodies(t *testing.T) {
	e := harness.Shared(t)
	e.Restart(t, cluster.GateOptions{MemoryLimit: harness.ContainerMemory})
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	client := hostilePod(t, e)
	before, err := e.Gate.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	const (
		head    = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"UPDATE","oldObject":{},"object":`
		plan    = head + `{"status":{"plan":[`
		ended   = `]}}}}`
		convert = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"policy.open-cluster-management.io/v1beta2","objects":[`
		v1beta1 = `{"apiVersion":"policy.open-cluster-management.io/v1beta1","kind":"OperatorPolicy","metadata":{"name":"x"},"spec":`
	)
	for _, attack := range []struct {
		name, path string
		body       []byte
	}{
		{
			name: "as many steps as are decoded",
			path: "/validate/installplans-status",
			body: []byte(plan + strings.Repeat("{},", 50_000) + "{}" + ended),
		},
		{name: "keys", path: "/validate/policies", body: manyKeys(head+`{"metadata":{"labels":{`, `""`, `}}}}}`)},
		{name: "a step without the token", path: "/validate/steps-clusterserviceversions",
			body: stuffed(head+`{"spec":{"a":"`, "a", `"}}}}`)},
		{
			name: "values to convert",
			path: "/convert",
			body: []byte(convert + v1beta1 + `{"versions":[` + strings.Repeat("{},", 50_000) + `{}]}}]}}`),
		},
	} {
		t.Run(attack.name, func(t *testing.T) {
			attacking, stop := context.WithCancel(t.Context())
			var attackers sync.WaitGroup
			var answered, rejected, cut atomic.Int64
			for range hostileClients {
				attackers.Go(func() {
					code, err := sendAttack(attacking, e, client, attack.path, attack.body)
					switch {
					case attacking.Err() != nil:
						return
					case err != nil:
						cut.Add(1) // a client that is still sending when it is answered may not see the answer
					case code == http.StatusTooManyRequests:
						rejected.Add(1)
					default:
						answered.Add(1)
					}
				})
			}
			for range 3 {
				wantJudged(t, e, namespace)
			}
			attackers.Wait()
			stop()
			wantAlive(t, e)
			peak, err := e.Gate.PeakMemory()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d answered, %d told to come again, %d cut off; peak %d MiB, %d MiB before", answered.Load(),
				rejected.Load(), cut.Load(), peak>>20, before>>20)
			if peak > maxResident {
				t.Errorf("opgate took %d MiB, want at most %d", peak>>20, maxResident>>20)
			}
			if answered.Load() == 0 {
				t.Error("no attack was looked at, so nothing was tested")
			}
		})
	}
}

// sendAttack sends a body. What is answered does not matter: nothing is written, so some may be allowed.
func sendAttack(ctx context.Context, e *harness.Env, client *http.Client, path string, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Gate.WebhookURL()+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// wantJudged has the API server ask about a Subscription that the gate refuses, and about one that it allows.
func wantJudged(t *testing.T, e *harness.Env, namespace string) {
	t.Helper()
	path := harness.PathOf(harness.Subscriptions, namespace, "", "")
	for catalog, allowed := range map[string]bool{harness.ForeignCatalog: false, harness.GoodCatalog: true} {
		body := []byte(harness.AsJSON(t, harness.Subscription(namespace, "legitimate", catalog, "Manual")))
		got := e.Clients[cluster.Tenant].Must(t, harness.Request{
			Method:      http.MethodPost,
			Path:        path,
			Query:       url.Values{"dryRun": {"All"}},
			ContentType: "application/json",
			Body:        body,
		})
		if got.OK() != allowed || !allowed && !strings.Contains(got.Refused, "(subscription/catalog)") {
			t.Errorf("a Subscription to %s is answered %s", catalog, got)
		}
	}
}

// TestA3SlowClients has clients declare bodies and send them byte by byte, or not at all, or not read their answers.
// Others are answered meanwhile, and the clients are cut off.
func TestA3SlowClients(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	dialer := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}, Config: e.Trust()}
	var slow []net.Conn
	for i, path := range []string{"/validate/subscriptions", "/convert", "/mutate/operatorpolicies"} {
		for range slowClients {
			c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(e.Gate.WebhookURL(), "https://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, hostileBody)
			if i == 2 {
				head = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gate\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n",
					path)
			}
			// As much as is read before the rest is reserved, and a little more.
			if _, err := c.Write(append([]byte(head), bytes.Repeat([]byte(" "), 65<<10)...)); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, c)
		}
	}
	for range 3 {
		wantJudged(t, e, namespace)
	}
	// None is waited for longer than a body may take.
	waiting, cancel := speed.WithTimeout(t.Context(), harness.WaitTimeout)
	defer cancel()
	for i, c := range slow {
		context.AfterFunc(waiting, func() { _ = c.SetReadDeadline(time.Now()) })
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Fatalf("client %d is still waited for", i)
		}
	}
	wantJudged(t, e, namespace)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
