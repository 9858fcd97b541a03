package gate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// load is how many Policies a tenant writes at once, and for how many steps of OLM.
func load() (clients, steps int) {
	if *harness.Long {
		return 16, 20
	}
	return 6, 5
}

// tokenInPath finds a path that the API server calls, in the text of a failed call.
var tokenInPath = regexp.MustCompile(`/[a-z2-7]{26}\b`)

// TestP4LoadNeverOpens has a tenant, who may create Policies in one namespace, write many at once over and over, each of
// which becomes many values and needs as many rights as are asked about. None is stored. A ClusterServiceVersion that a
// Constraint forbids, written by OLM, is refused each time meanwhile, though its webhook has failurePolicy Ignore,
// another namespace is judged, and no answer of Opgate shows the token. Where the machine is too slow to answer before
// the API server's timeout, that refuses, and shows what TestP4tTokenOfAFailedCall has replaced (threat O44); or the
// request meets a timeout of its own before.
func TestP4LoadNeverOpens(t *testing.T) {
	e := harness.Shared(t)
	tenant, shop := e.NewNamespace(t), e.NewNamespace(t)
	mayCreatePolicies(t, e, tenant)
	e.Put(t, harness.OperatorPolicy(shop))
	constrain(t, e, constraintOf(shop, only(shop, noClusterAdmin), "no cluster admins"))
	ctx, stop := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	var answers, late atomic.Int64
	loadClients, steps := load()
	// One has as many questions as are asked, the other those of the attack as it was found.
	for i, questions := range []int{20, 481} {
		body := greedyPolicy(tenant, 137_066, questions)
		for range loadClients / 2 {
			attackers.Go(func() {
				for ctx.Err() == nil {
					got, err := e.Clients[cluster.Tenant].Send(ctx, harness.Request{
						Method: http.MethodPost, Path: harness.PathOf(harness.Policies, tenant, "", ""),
						Query:       url.Values{"dryRun": {"All"}},
						ContentType: "application/json", Body: body,
					})
					switch {
					case ctx.Err() != nil:
						return
					case err != nil:
						t.Errorf("Policy %d: %v", i, err)
						return
					case (got.Code == http.StatusInternalServerError || got.Code == http.StatusGatewayTimeout) &&
						strings.Contains(got.Message, context.DeadlineExceeded.Error()):
						late.Add(1)
						continue
					case got.OK() || got.Code != http.StatusForbidden:
						t.Errorf("Policy %d is answered %s", i, got)
					}
					if tokenInPath.MatchString(got.Message) {
						t.Errorf("the answer to the tenant shows the token: %s", got)
					}
					answers.Add(1)
				}
			})
		}
	}
	csv := []byte(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"evil.v1.0.0","namespace":"` + shop + `"},
		"spec":{"displayName":"evil","version":"1.0.0","install":{"strategy":"deployment","spec":{"deployments":[],
		"clusterPermissions":[{"serviceAccountName":"evil","rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}]}}}}`)
	for round := 0; round < steps || answers.Load() == 0 || answers.Load()+late.Load() < int64(loadClients); round++ {
		begun := time.Now()
		step := e.Clients[cluster.OLM].Must(t, harness.Request{
			Method: http.MethodPost, Path: harness.PathOf(harness.ClusterServiceVersions, shop, "", ""),
			ContentType: "application/json", Body: csv,
		})
		if step.Code != http.StatusForbidden || step.Refused == "" {
			t.Errorf("after %s OLM's step is answered %s", time.Since(begun), step)
		}
		wantJudged(t, e, shop)
	}
	stop()
	attackers.Wait()
	t.Logf("%d Policies were answered, %d not in time", answers.Load(), late.Load())
}

// greedyPolicy is a Policy with a template of many values, whose author's rights take some questions.
func greedyPolicy(namespace string, values, questions int) []byte {
	var on []string
	for i := range questions - 1 {
		on = append(on, fmt.Sprintf(
			`{"apiVersion":"example.com/v1","kind":"Kind%d","name":"x","namespace":"other","compliance":"Compliant"}`,
			i))
	}
	return []byte(`{"apiVersion":"policy.open-cluster-management.io/v1","kind":"Policy","metadata":{"name":"greedy","namespace":"` + namespace + `"},` +
		`"spec":{"disabled":false,"dependencies":[` + strings.Join(on, ",") +
		`],"policy-templates":[{"objectDefinition":` +
		`{"apiVersion":"policy.open-cluster-management.io/v1","kind":"ConfigurationPolicy","metadata":{"name":"x"},"spec":{"a":[` + strings.Repeat("{},", values) + `{}]}}}]}}`)
}

// mayCreatePolicies lets the tenant create Policies in a namespace.
func mayCreatePolicies(t *testing.T, e *harness.Env, namespace string) {
	t.Helper()
	for resource, object := range map[string]any{
		"roles": &rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Name: "policies"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{harness.Policies.Group}, Resources: []string{"policies"},
				Verbs: []string{"create"}}},
		},
		"rolebindings": &rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: "policies"},
			RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "policies"},
			Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User",
				Name: string(cluster.Tenant)}},
		},
	} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		of := e.Clients[cluster.Admin].Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io",
			Version: "v1", Resource: resource})
		if _, err := of.Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: content},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "see the tenant allowed to create Policies", func(ctx context.Context) error {
		got, err := e.Clients[cluster.Tenant].Send(ctx, harness.Request{
			Method: http.MethodPost, Path: harness.PathOf(harness.Policies, namespace, "", ""),
			Query:       url.Values{"dryRun": {"All"}},
			ContentType: "application/json", Body: greedyPolicy(namespace, 0, 1),
		})
		if err == nil && got.Refused == "" {
			err = fmt.Errorf("it is answered %s", got)
		}
		return err
	})
}
