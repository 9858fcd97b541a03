package loop

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
)

// minCallsOfUse is the share of calls that must be able to change the outcome of a write.
const minCallsOfUse = 0.9

// callsAvoided counts the calls of Opgate's webhooks while OLM installs an operator and upgrades it once, and wants at
// least nine of ten to be able to change the outcome of the write. A call is if, in some state of the cluster, Opgate
// answers this very review with a refusal, a change or a warning. Each review is sent to gates in the states of
// witnesses, so a call counts only if one of them shows it, and the share is a lower bound.
func callsAvoided(t *testing.T, e *harness.OLMEnv) {
	namespace, policies := e.NewNamespace(t), e.NewNamespace(t)
	recorder := recordReviews(t, e, namespace, policies)
	p := harness.WithField(harness.GroupedPolicy(namespace, "etcd", harness.Etcd2), harness.Etcd2, "spec",
		"subscription", "startingCSV")
	p.SetNamespace(policies)
	e.Apply(t, p)
	e.WaitForCSV(t, namespace, harness.Etcd2)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval"))
	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd2+`","`+harness.Etcd4+`"]}}`)
	e.WaitForCSV(t, namespace, harness.Etcd4)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4),
		wantCondition("InstallPlanCompliant=True NoInstallPlansRequiringApproval"))

	reviews := recorder.recorded()
	witnesses := witnesses(t, namespace, reviews)
	calls, ofUse, total, edited := map[string]int{}, map[string]int{}, 0, map[string]bool{}
	for _, r := range reviews {
		what := r.what()
		if strings.Contains(what, "operatorpolicies UPDATE") {
			if edited[what] {
				continue // the API server repeats a patch if the status was written at the same time
			}
			edited[what] = true
		}
		calls[what]++
		if slices.ContainsFunc(witnesses,
			func(gate map[string]http.Handler) bool { return r.changesOutcome(t, gate) }) {
			ofUse[what]++
			total++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(calls)) {
		t.Logf("%s: %d calls, %d of use", what, calls[what], ofUse[what])
	}
	all := 0
	for _, n := range calls {
		all += n
	}
	share := float64(total) / float64(all)
	t.Logf("%d calls for %d writes, %.2f of use", all, writesOf(t, e, namespace, policies), share)
	if share < minCallsOfUse {
		t.Errorf("%.2f of the calls can change the outcome, want %.2f", share, minCallsOfUse)
	}
	if what := "/validate/clusterserviceversions UPDATE by " + cluster.OLMUserName; calls[what] > 0 {
		t.Errorf("%s: %d calls, although OLM may write every field", what, calls[what])
	}
	for what, want := range map[string]int{
		"/validate/operatorpolicies CREATE by " + string(cluster.Admin):           1,
		"/validate/subscriptions CREATE by " + cluster.OpgateUserName:             1,
		"/validate/installplans UPDATE by " + cluster.OpgateUserName:              2,
		"/validate/steps-clusterserviceversions CREATE by " + cluster.OLMUserName: 2,
	} {
		if calls[what] < want {
			t.Errorf("%s: %d calls were recorded, want %d", what, calls[what], want)
		}
	}
}

// review is one call of a webhook.
type review struct {
	path string
	body []byte
	admissionv1.AdmissionReview
}

// what is the endpoint, the operation and the user.
func (r *review) what() string {
	return fmt.Sprintf("%s %s by %s", r.path, r.Request.Operation, r.Request.UserInfo.Username)
}

// changesOutcome reports whether a gate refuses the write, changes it, or warns of it.
func (r *review) changesOutcome(t *testing.T, gate map[string]http.Handler) bool {
	t.Helper()
	answer := httptest.NewRecorder()
	gate[r.path].ServeHTTP(answer, httptest.NewRequest(http.MethodPost, r.path, strings.NewReader(string(r.body))))
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &out); err != nil || out.Response == nil {
		t.Fatalf("%s: answer %d: %v", r.what(), answer.Code, err)
	}
	return !out.Response.Allowed || len(out.Response.Patch) > 0 || len(out.Response.Warnings) > 0
}

// recorder is a server that allows every write, and records the reviews.
type recorder struct {
	mu      sync.Mutex
	reviews []review
}

// recorded returns the reviews of writes that were no dry runs.
func (r *recorder) recorded() []review {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.reviews), func(r review) bool { return *r.Request.DryRun })
}

// called reports whether a webhook was called, also for a dry run.
func (r *recorder) called(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.reviews, func(r review) bool { return r.path == path })
}

// ServeHTTP allows a write.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	in := review{path: request.URL.Path}
	var err error
	if in.body, err = io.ReadAll(request.Body); err == nil {
		err = json.Unmarshal(in.body, &in.AdmissionReview)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.reviews = append(r.reviews, in)
	r.mu.Unlock()
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta,
		Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}})
}

// recordReviews records what the API server sends to Opgate for some namespaces, by copies of Opgate's webhooks with
// the same rules and conditions. By their name they are called before those that change objects.
func recordReviews(t *testing.T, e *harness.OLMEnv, namespaces ...string) *recorder {
	t.Helper()
	r := &recorder{}
	server := httptest.NewTLSServer(r)
	t.Cleanup(server.Close)
	name := "before-opgate-" + rand.String(6)
	for kind, verb := range map[string]string{"MutatingWebhookConfiguration": "mutate",
		"ValidatingWebhookConfiguration": "validate"} {
		var shipped unstructured.Unstructured
		if err := json.Unmarshal([]byte(harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", kind, "opgate", "-o",
			"json")), &shipped.Object); err != nil {
			t.Fatal(err)
		}
		hooks, _, err := unstructured.NestedSlice(shipped.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		var copies []any
		for _, hook := range hooks {
			hook := hook.(map[string]any)
			rule := hook["rules"].([]any)[0].(map[string]any)
			if rule["scope"] == "Cluster" {
				continue // Constraints, which are in no namespace
			}
			name := strings.TrimSuffix(hook["name"].(string), ".opgate.io")
			hook["clientConfig"] = map[string]any{"url": server.URL + path.Join("/", verb, name),
				"caBundle": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
			hook["failurePolicy"] = "Ignore"
			if verb == "mutate" {
				hook["reinvocationPolicy"] = "Never" // Opgate changes objects afterwards
			}
			hook["namespaceSelector"] = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: namespaces},
			}}
			copies = append(copies, hook)
		}
		copied, err := json.Marshal(map[string]any{"apiVersion": shipped.GetAPIVersion(), "kind": kind,
			"metadata": map[string]any{"name": name}, "webhooks": copies})
		if err != nil {
			t.Fatal(err)
		}
		harness.Kubectl(t, e.Cluster, cluster.Admin, string(copied), "create", "-f", "-")
		t.Cleanup(func() {
			if _, err := e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", kind,
				name); err != nil {
				t.Error(err)
			}
		})
	}
	// The API server follows configurations with a delay.
	e.Eventually(t, "see the webhooks called", func(ctx context.Context) error {
		_, err := e.Clients[cluster.Admin].Send(ctx, harness.Request{
			Method: http.MethodPost, Path: harness.PathOf(harness.Subscriptions, namespaces[0], "", ""),
			Query:       url.Values{"dryRun": {"All"}},
			ContentType: "application/json",
			Body: []byte(harness.AsJSON(t, harness.Subscription(namespaces[0], "probe", harness.GoodCatalog,
				"Manual"))),
		})
		if err == nil && (!r.called(admission.PathMutateSubscriptions) ||
			!r.called(admission.PathValidateSubscriptions)) {
			err = errors.New("they are not yet")
		}
		return err
	})
	return r
}

// writesOf counts the stored writes of what Opgate judges in some namespaces, as far as the audit log has them: of all
// but OperatorGroups and CatalogSources, and of no status but that of plans.
func writesOf(t *testing.T, e *harness.OLMEnv, namespaces ...string) (writes int) {
	t.Helper()
	events, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		o := event.ObjectRef
		if slices.Contains(namespaces, o.Namespace) &&
			(o.APIGroup == harness.OLMVersion.Group || o.APIGroup == harness.OperatorPolicies.Group) &&
			(o.Subresource == "" || o.Resource == harness.InstallPlans.Resource) &&
			slices.Contains([]string{"create", "update", "patch"}, event.Verb) &&
			event.Response.Code < http.StatusMultipleChoices {
			writes++
		}
	}
	return writes
}

// noRights lets no user do more than write.
type noRights struct{}

func (noRights) May(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
	return false, nil
}

// witnesses are the handlers of gates in three states: nothing is allowed and nothing is installed; everything is
// allowed; and a version is installed that policies do not allow.
func witnesses(t *testing.T, namespace string, reviews []review) []map[string]http.Handler {
	t.Helper()
	forbidden := harness.WithField(harness.GroupedPolicy(namespace, "etcd"), "mustnothave", "spec", "complianceType")
	unstructured.RemoveNestedField(forbidden.Object, "spec", "operatorGroup")
	nothing := harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: nothing}
spec:
  constraints: '[{"type":"olm.constraint","value":{"rule":"false"}},{"type":"olm.constraint","value":{"rule":"false","on":"operatorGroup"}}]'
`)
	installed := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %s
  namespace: %s
  annotations: {operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.0"}}]}'}
spec: {version: 0.9.0}
`, harness.Etcd0, namespace)
	var gates []map[string]http.Handler
	for _, objects := range [][]*unstructured.Unstructured{
		{forbidden, nothing},
		{harness.GroupedPolicy(namespace, "etcd")},
		{installed},
	} {
		gates = append(gates, witness(t, namespace, reviews, objects))
	}
	return gates
}

// witness returns the handlers of a gate with a snapshot of a namespace and objects.
func witness(
	t *testing.T, namespace string, reviews []review, objects []*unstructured.Unstructured,
) map[string]http.Handler {
	t.Helper()
	kinds := map[string]*snapshot.Kind{"Namespace": snapshot.Namespaces, "OperatorPolicy": snapshot.OperatorPolicies,
		"Constraint":            snapshot.Constraints,
		"ClusterServiceVersion": snapshot.ClusterServiceVersions}
	reader := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName, err error) { t.Fatal(err) }}
	var read []*snapshot.Object
	for _, u := range append(objects, harness.Object("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}",
		namespace)) {
		read = append(read, reader.Read(kinds[u.GetKind()], []byte(harness.AsJSON(t, u))))
	}
	var builder snapshot.Builder
	builder.Put(time.Time{}, read...)
	store := snapshot.NewStore(builder.SetCluster(time.Time{}, facts.Cluster{Version: "1.36.2"}))

	account, err := olmidentity.Parse(cluster.OLMUserName)
	if err != nil {
		t.Fatal(err)
	}
	olm := olmidentity.New(account)
	trusted := olmidentity.State{Reason: olmidentity.Trusted}
	for _, r := range reviews {
		if r.Request.UserInfo.Username == cluster.OLMUserName {
			trusted.UID = types.UID(r.Request.UserInfo.UID)
		}
	}
	olm.Set(trusted)
	registry := prometheus.NewRegistry()
	gate := admission.New(admission.Options{
		Store: store, Metrics: admission.NewMetrics(registry, store, time.Now), Budget: inflight.NewBudget(registry),
		Panics: panics.NewRecorder(registry, logr.Discard()), Authorizer: noRights{},
		Authenticated: func(*http.Request) bool { return true },
		OLM:           olm, Identity: func() string { return cluster.OpgateUserName }, Now: time.Now,
	})
	return gate.Handlers()
}
