package e2e

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
)

// tryCreations tries to create what is forbidden, in every way in which the API server takes new objects.
func (e *env) tryCreations(t *testing.T, tried map[string]int) {
	t.Helper()
	governed, free := e.newNamespace(t), e.newNamespace(t)
	e.put(t, policy(governed))
	e.sync(t)
	type creation struct {
		name, method, contentType string
		query                     url.Values
		named                     bool // the name is in the path
		generated                 bool // the API server makes up the name
	}
	creations := []creation{
		{name: "POST", method: http.MethodPost, contentType: "application/json"},
		{name: "POST without a name", method: http.MethodPost, contentType: "application/json", generated: true},
		{name: "apply", method: http.MethodPatch, contentType: "application/apply-patch+yaml", query: url.Values{"fieldManager": {"intruder"}}, named: true},
		{name: "apply by force", method: http.MethodPatch, contentType: "application/apply-patch+yaml", query: url.Values{"fieldManager": {"intruder"}, "force": {"true"}}, named: true},
	}
	approved := func(namespace string) *unstructured.Unstructured {
		u := plan(namespace, "new", forbiddenVersion)
		u.Object["spec"].(map[string]any)["approved"] = true
		return u
	}
	for what, forbidden := range map[string]func(namespace string) *unstructured.Unstructured{
		"plan":                     func(ns string) *unstructured.Unstructured { return plan(ns, "new", forbiddenVersion) },
		"approved plan":            approved,
		"subscription":             func(ns string) *unstructured.Unstructured { return subscription(ns, "new", foreignCatalog, "Manual") },
		"automatic subscription":   func(ns string) *unstructured.Unstructured { return subscription(ns, "new", goodCatalog, "Automatic") },
		"subscription to be fixed": func(ns string) *unstructured.Unstructured { return subscription(ns, "new", goodCatalog, "") },
	} {
		for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
			for _, c := range creations {
				for _, namespace := range []string{free, governed} {
					u := forbidden(namespace)
					path := pathOf(resources[u.GetKind()], namespace, "", "")
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
						query = merge(query, url.Values{"dryRun": {"All"}})
					}
					got := e.clients[user].must(t, request{method: c.method, path: path, query: query, contentType: c.contentType, body: []byte(asJSON(t, u))})
					name := fmt.Sprintf("%s of a new %s as %s", c.name, what, user)
					switch {
					case namespace == free && !got.ok():
						t.Errorf("%s is refused where no policy governs, so it proves nothing: %s", name, got)
					case namespace == free:
					case got.refused != "" && !mended:
						tried[refusedByGate]++
					case got.ok() && mended && approvalOf(got.object()) == "Manual":
						tried[mendedByGate]++
					default:
						t.Errorf("%s: WRONG ALLOW or error: %s, approval %q", name, got, approvalOf(got.object()))
					}
				}
			}
		}
	}
	for _, resource := range []schema.GroupVersionResource{subscriptions, installPlans} {
		// PUT does not create these kinds; if that changes, the gate has to have a say.
		u := approved(governed)
		if resource == subscriptions {
			u = subscription(governed, "new", foreignCatalog, "Automatic")
		}
		u.Object["metadata"].(map[string]any)["resourceVersion"] = "1"
		got := e.clients[cluster.Tenant].must(t, request{method: http.MethodPut, path: pathOf(resource, governed, "new", ""), contentType: "application/json", body: []byte(asJSON(t, u))})
		if got.ok() {
			t.Errorf("PUT created a %s", resource.Resource)
		}
		tried[refusedByServer]++
		list := e.clients[cluster.Admin].must(t, request{method: http.MethodGet, path: pathOf(resource, governed, "", "")})
		if !bytes.Contains(list.body, []byte(`"items":[]`)) {
			t.Errorf("there are %s: %s", resource.Resource, list.body)
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
