package gate

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// tryCreations tries to create what is forbidden, in every way in which the API server takes new objects.
func tryCreations(t *testing.T, e *harness.Env, tried map[string]int) {
	t.Helper()
	governed, free := e.NewNamespace(t), e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(governed))
	e.Sync(t)
	type creation struct {
		name, method, contentType string
		query                     url.Values
		named                     bool // the name is in the path
		generated                 bool // the API server makes up the name
	}
	creations := []creation{
		{name: "POST", method: http.MethodPost, contentType: "application/json"},
		{name: "POST without a name", method: http.MethodPost, contentType: "application/json", generated: true},
		{
			name:        "apply",
			method:      http.MethodPatch,
			contentType: "application/apply-patch+yaml",
			query:       url.Values{"fieldManager": {"intruder"}},
			named:       true,
		},
		{
			name:        "apply by force",
			method:      http.MethodPatch,
			contentType: "application/apply-patch+yaml",
			query:       url.Values{"fieldManager": {"intruder"}, "force": {"true"}},
			named:       true,
		},
	}
	approved := func(namespace string) *unstructured.Unstructured {
		u := harness.InstallPlan(namespace, "new", harness.ForbiddenVersion)
		u.Object["spec"].(map[string]any)["approved"] = true
		return u
	}
	for what, forbidden := range map[string]func(namespace string) *unstructured.Unstructured{
		"plan": func(ns string) *unstructured.Unstructured {
			return harness.InstallPlan(ns, "new", harness.ForbiddenVersion)
		},
		"approved plan": approved,
		"subscription": func(ns string) *unstructured.Unstructured {
			return harness.Subscription(ns, "new", harness.ForeignCatalog, "Manual")
		},
		"automatic subscription": func(ns string) *unstructured.Unstructured {
			return harness.Subscription(ns, "new", harness.GoodCatalog, "Automatic")
		},
		"subscription to be fixed": func(ns string) *unstructured.Unstructured {
			return harness.Subscription(ns, "new", harness.GoodCatalog, "")
		},
	} {
		for i, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
			for j, c := range creations {
				if !*harness.Long && i != j%2 { // users take turns
					continue
				}
				for _, namespace := range []string{free, governed} {
					u := forbidden(namespace)
					path := harness.PathOf(harness.Resources[u.GetKind()], namespace, "", "")
					if c.named {
						path += "/" + u.GetName()
					}
					if c.generated {
						u.SetName("")
						u.SetGenerateName("new-")
					}
					mended := strings.Contains(what, "automatic") || strings.Contains(what, "fixed")
					query := c.query
					if namespace == free || mended {
						// What is let through must not be in the way of the next.
						query = harness.MergeQuery(query, url.Values{"dryRun": {"All"}})
					}
					got := e.Clients[user].Must(t, harness.Request{
						Method:      c.method,
						Path:        path,
						Query:       query,
						ContentType: c.contentType,
						Body:        []byte(harness.AsJSON(t, u)),
					})
					name := fmt.Sprintf("%s of a new %s as %s", c.name, what, user)
					switch {
					case namespace == free && !got.OK():
						t.Errorf("%s is refused where no policy governs, so it proves nothing: %s", name, got)
					case namespace == free:
					case got.Refused != "" && !mended:
						tried[refusedByGate]++
					case got.OK() && mended && approvalOf(got.Object()) == "Manual":
						tried[mendedByGate]++
					default:
						t.Errorf("%s: WRONG ALLOW or error: %s, approval %q", name, got, approvalOf(got.Object()))
					}
				}
			}
		}
	}
	for _, resource := range []schema.GroupVersionResource{harness.Subscriptions, harness.InstallPlans} {
		// PUT does not create these kinds; if that changes, the gate has to have a say.
		u := approved(governed)
		if resource == harness.Subscriptions {
			u = harness.Subscription(governed, "new", harness.ForeignCatalog, "Automatic")
		}
		u.Object["metadata"].(map[string]any)["resourceVersion"] = "1"
		got := e.Clients[cluster.Tenant].Must(t, harness.Request{
			Method:      http.MethodPut,
			Path:        harness.PathOf(resource, governed, "new", ""),
			ContentType: "application/json",
			Body:        []byte(harness.AsJSON(t, u)),
		})
		if got.OK() {
			t.Errorf("PUT created a %s", resource.Resource)
		}
		tried[refusedByServer]++
		list := e.Clients[cluster.Admin].Must(t, harness.Request{
			Method: http.MethodGet,
			Path:   harness.PathOf(resource, governed, "", ""),
		})
		if !bytes.Contains(list.Body, []byte(`"items":[]`)) {
			t.Errorf("there are %s: %s", resource.Resource, list.Body)
		}
	}
}

func approvalOf(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	approval, _, _ := unstructured.NestedString(u.Object, "spec", "installPlanApproval")
	return approval
}
