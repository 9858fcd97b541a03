package conversion

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// identity is a converter that does nothing but what every converter must: it reports that each object is of the
// version asked for.
type identity struct {
	*httptest.Server
	reviews, objects atomic.Int64
}

func startIdentity(t testing.TB) *identity {
	t.Helper()
	i := &identity{}
	i.Server = httptest.NewUnstartedServer(i)
	i.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	i.StartTLS()
	t.Cleanup(i.Close)
	return i
}

func (i *identity) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	i.reviews.Add(1)
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID}
	answer.Result.Status = "Success"
	for _, object := range review.Request.Objects {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(object.Raw, &u.Object); err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		u.SetAPIVersion(review.Request.DesiredAPIVersion)
		object.Raw, object.Object = nil, u
		answer.ConvertedObjects = append(answer.ConvertedObjects, object)
		i.objects.Add(1)
	}
	review.Request, review.Response = nil, answer
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(review)
}

func (i *identity) conversion() apiextensionsv1.CustomResourceConversion {
	return webhookConversion(i.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
}

func webhookConversion(target string, ca []byte) apiextensionsv1.CustomResourceConversion {
	return apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      &target,
				CABundle: ca,
			}, ConversionReviewVersions: []string{"v1"}},
	}
}

// timeList reads the policies of a namespace, of all for "", in v1beta1, and returns the time until the last byte.
func timeList(ctx context.Context, e *harness.Env, namespace string) (time.Duration, []byte, error) {
	path := harness.PathOf(harness.OperatorPoliciesIn(harness.Earlier), namespace, "", "")
	if namespace == "" {
		path = "/apis/" + harness.OperatorPolicies.Group + "/" + harness.Earlier + "/" +
			harness.OperatorPolicies.Resource
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.Clients[cluster.Admin].Host+path, nil)
	if err != nil {
		return 0, nil, err
	}
	begin := time.Now()
	response, err := e.Clients[cluster.Admin].HTTP.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	took := time.Since(begin)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", response.Status, body)
	}
	return took, body, err
}

const (
	// listRounds is how often each converter is measured, in turn. The fastest counts, since others use the machine as
	// well.
	listRounds = 3
	// mostOfIdentity is how much longer than with the converter that does nothing a LIST may take.
	mostOfIdentity = 1.15
)

// BenchmarkConversionList measures one LIST in v1beta1 of policies that are stored in v1beta2: with Opgate's converter,
// with one that does nothing, and with none, on the same API server and in turn. By default the API server converts a
// policy when it changes and keeps it; a LIST converts nothing then. Without its watch cache every LIST converts every
// policy.
func BenchmarkConversionList(b *testing.B) {
	for _, cached := range []bool{true, false} {
		b.Run(fmt.Sprintf("cache=%t", cached), func(b *testing.B) {
			e := harness.Start(b, cluster.Options{Audit: true, WithoutWatchCache: !cached})
			sizes := map[string]int{"policies": 1_000, "": 5_000} // by namespace
			var all []*unstructured.Unstructured
			for i := range sizes[""] {
				p := listedPolicy(i)
				if i >= sizes["policies"] {
					p.SetNamespace(cluster.ShopNamespace)
				}
				all = append(all, p)
			}
			harness.AtOnce(b, harness.Writers, all, func(ctx context.Context, p *unstructured.Unstructured) error {
				_, err := created(ctx, e, p)
				return err
			})
			var err error
			if e.Gate, err = e.StartOpgate(b.Context(), cluster.GateOptions{}); err != nil {
				b.Fatal(err)
			}
			nothing := startIdentity(b)
			lists := []string{"policies", ""}
			if cached { // they are fast, and so are disturbed easily
				lists = slices.Repeat(lists, 5)
			}
			fastest := map[string]time.Duration{}
			for range listRounds {
				for name, conversion := range map[string]apiextensionsv1.CustomResourceConversion{
					"none":     {Strategy: apiextensionsv1.NoneConverter},
					"identity": nothing.conversion(),
					"opgate":   webhookConversion(e.Gate.WebhookURL()+"/convert", e.Gate.CA()),
				} {
					convertBy(b, e, name, conversion, nothing, cached)
					for _, namespace := range lists {
						n, before := sizes[namespace], nothing.objects.Load()
						took, _, err := timeList(b.Context(), e, namespace)
						if err != nil {
							b.Fatal(err)
						}
						if converted := int(nothing.objects.Load() - before); name == "identity" && !cached &&
							converted != n {
							b.Fatalf("%d policies were converted for a LIST, want %d", converted, n)
						}
						key := fmt.Sprint(name, n)
						if fastest[key] == 0 || took < fastest[key] {
							fastest[key] = took
						}
					}
				}
			}
			ratio := func(a, b string) float64 { return fastest[a].Seconds() / fastest[b].Seconds() }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(fastest["opgate5000"].Seconds()*1e3, "ms/list")
			b.ReportMetric(ratio("opgate5000", "identity5000"), "x-identity")
			b.ReportMetric(ratio("opgate5000", "none5000"), "x-none")
			b.ReportMetric(ratio("identity5000", "none5000"), "identity-x-none")
			b.ReportMetric(ratio("opgate5000", "opgate1000")/5, "5000/1000-each")
			b.ReportMetric(float64(nothing.objects.Load())/float64(nothing.reviews.Load()), "objects/review")
			if got := ratio("opgate5000", "identity5000"); got > mostOfIdentity {
				b.Errorf("a LIST takes %.2f times as long as with a converter that does nothing, want %.2f at most",
					got, mostOfIdentity)
			}
		})
	}
}

// listedPolicy is one of usual size.
func listedPolicy(i int) *unstructured.Unstructured {
	p := versioned(harness.Present, "speed-"+strconv.Itoa(i))
	p.SetAnnotations(map[string]string{"policy.open-cluster-management.io/description": "one of many, and of usual size"})
	p.Object = harness.MergePatch(p.Object, map[string]any{"spec": map[string]any{
		"remediationAction": "inform", "severity": "medium", "versionRange": ">=0.9.0 <1.0.0",
		"upgradeApproval": "None",
		"versions":        []any{harness.AllowedCSV, harness.ForbiddenCSV},
		"operatorGroup":   map[string]any{"name": "group", "target": map[string]any{"namespaces": []any{"shop"}}},
		"subscription": map[string]any{"channel": "alpha", "source": harness.GoodCatalog, "sourceNamespace": "olm",
			"startingCSV": harness.AllowedCSV},
		"complianceConfig": map[string]any{"upgradesAvailable": "NonCompliant", "upgradesProgressing": "Compliant"},
	}}).(map[string]any)
	return p
}

// convertBy changes the converter, and waits until LISTs are answered with it.
func convertBy(
	b *testing.B, e *harness.Env, name string, conversion apiextensionsv1.CustomResourceConversion, nothing *identity,
	cached bool,
) {
	b.Helper()
	if err := e.SetConversion(b.Context(), conversion); err != nil {
		b.Fatal(err)
	}
	probe := listedPolicy(0)
	harness.Eventually(b, name+" converts", func(ctx context.Context) error {
		before := nothing.reviews.Load()
		p, err := readIn(ctx, e, harness.Earlier, probe) // a GET is read from etcd
		if err != nil {
			return err
		}
		_, install := approvalForms(p)
		if asked := nothing.reviews.Load() > before; asked != (name == "identity") && !cached ||
			(install != "") != (name == "opgate") {
			return errors.New("another one does")
		}
		if cached {
			_, _, err = timeList(ctx, e, "") // it may be being filled
		}
		return err
	})
}
