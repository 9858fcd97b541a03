package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
)

// auditEvent is the part of an event of the API server's audit log that tests read.
type auditEvent struct {
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Annotations map[string]string `json:"annotations"`
	// At is when the request got to its stage.
	At time.Time `json:"stageTimestamp"`
}

func readAudit(path string) ([]auditEvent, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var events []auditEvent
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return events, nil // what has no end yet is being written
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		events = append(events, event)
	}
}

// checkLeastPrivilege returns an error for every request of Opgate that it did not need. What the API server allows is more: it
// does not know whether the loop runs. A cluster ends with this, so that it sees what all tests made Opgate do.
func checkLeastPrivilege(c *cluster.Cluster) error {
	requests, err := c.OpgateRequests(time.Time{}, time.Time{})
	exercised.add(requests)
	rules, rulesErr := c.OpgateRules()
	return errors.Join(err, rulesErr, leastPrivilege(requests, rules...))
}

// leastPrivilege returns an error for every request that the rules do not allow.
func leastPrivilege(requests []cluster.Request, rules ...rbacv1.PolicyRule) error {
	var errs []error
	for _, r := range requests {
		if discovery := r.Verb == "get" && r.Object.Resource == "" && (strings.HasPrefix(r.URI, "/api") || strings.HasPrefix(r.URI, "/version")); discovery {
			continue // everybody may
		}
		if self := r.Verb == "create" && r.Object.Resource == "selfsubjectreviews"; self {
			continue // so may everybody ask who they are
		}
		if refused := r.Response.Code == http.StatusForbidden && r.Object.Resource == "secrets"; refused {
			continue // a template in a script asks for one, to be refused
		}
		if slices.Contains(givenGroups, r.Object.Group) {
			continue // of kinds that only scripts about ordering have, with what they grant
		}
		allowed := slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			named := len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Object.Name)
			return named && slices.Contains(rights([]rbacv1.PolicyRule{rule}), rightFor(r))
		})
		if !allowed {
			errs = append(errs, fmt.Errorf("opgate did %s %s, which it does not need", r.Verb, r.URI))
		}
	}
	return errors.Join(errs...)
}

// unusedRights are those that no request used. To read something is one right: how it is read is up to the library.
func unusedRights(requests []cluster.Request, rules ...rbacv1.PolicyRule) []right {
	reads := func(r right) right {
		if slices.Contains([]string{"get", "list", "watch"}, r.verb) {
			r.verb = "read"
		}
		return r
	}
	used := map[right]bool{}
	for _, r := range requests {
		used[reads(rightFor(r))] = true
	}
	var unused []right
	for _, r := range rights(rules) {
		if r = reads(r); !used[r] && !slices.Contains(unused, r) {
			unused = append(unused, r)
		}
	}
	return unused
}

// right is a verb on a resource, with its subresource if it is about that.
type right struct{ verb, group, resource string }

// rights takes rules apart.
func rights(rules []rbacv1.PolicyRule) []right {
	var all []right
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, right{verb, group, resource})
				}
			}
		}
	}
	return all
}

// rightFor is the right that a request needs.
func rightFor(r cluster.Request) right {
	resource := r.Object.Resource
	if r.Object.Subresource != "" {
		resource += "/" + r.Object.Subresource
	}
	return right{r.Verb, r.Object.Group, resource}
}

// exercised are the requests that Opgate made in all tests together, one of each kind.
var exercised = requestKinds{kinds: map[right]cluster.Request{}}

type requestKinds struct {
	mu    sync.Mutex
	kinds map[right]cluster.Request
}

func (k *requestKinds) add(requests []cluster.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range requests {
		k.kinds[rightFor(r)] = r
	}
}

// unused are the rights that Opgate is shipped with and that no test made it use.
func (k *requestKinds) unused() ([]right, error) {
	var all []rbacv1.PolicyRule
	for _, shipped := range []func() ([]rbacv1.PolicyRule, error){cluster.AdmissionRules, cluster.CertsRules, cluster.LoopRules} {
		rules, err := shipped()
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(unusedRights(slices.Collect(maps.Values(k.kinds)), all...), func(r right) bool {
		// Admission plugin OwnerReferencesPermissionEnforcement asks whether Opgate has these: see TestUninstall for the first.
		return r.verb == "delete" && strings.HasSuffix(r.resource, "webhookconfigurations") || r == right{"update", policies.Group, "policies/finalizers"}
	}), nil
}

// TestG25LeastPrivilege makes Opgate do all that it does at admission and looks at what it asked the API server for.
func TestG25LeastPrivilege(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	plan := e.put(t, plan(namespace, "forbidden", forbiddenVersion))
	e.sync(t)
	// An override is what it asks the authorizer about.
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "installplan", "-n", namespace, plan.GetName(), "--type=merge", "--patch",
		`{"metadata":{"annotations":{"opgate.io/override-reason":"a test"}},"spec":{"approved":true}}`)
	// Where a policy leaves open which namespace it is about, the package may suggest one.
	open := policy(namespace)
	open.SetName(namespace + "-open")
	unstructured.RemoveNestedField(open.Object, "spec", "subscription", "namespace")
	e.put(t, open)

	admission, err := cluster.AdmissionRules()
	if err != nil {
		t.Fatal(err)
	}
	all, err := e.OpgateRules()
	if err != nil {
		t.Fatal(err)
	}
	var requests []cluster.Request
	eventually(t, "see all rights used", func(context.Context) (err error) {
		if requests, err = e.OpgateRequests(time.Time{}, time.Time{}); err != nil {
			return err
		}
		if unused := unusedRights(requests, admission...); len(unused) > 0 {
			return fmt.Errorf("unused are %v", unused)
		}
		return nil
	})
	if err := leastPrivilege(requests, all...); err != nil {
		t.Error(err)
	}
}

// TestAuditAnnotations looks for the gate's reasons in the API server's audit log, where they stay when nobody is left to ask.
func TestAuditAnnotations(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	plan := e.put(t, plan(namespace, "forbidden", forbiddenVersion))
	e.sync(t)

	patch := func(user cluster.User, body string) {
		t.Helper()
		_, err := e.Kubectl(t.Context(), user, "", "patch", "installplan", "-n", namespace, plan.GetName(), "--type=merge", "--patch", body)
		if err != nil {
			t.Fatal(err)
		}
	}
	source := "OperatorPolicy policies/" + namespace
	e.wantAudit(t, plan.GetName(), "tenant", func() { patch(cluster.Tenant, `{"spec":{"approved":true}}`) }, map[string]string{
		"installplans.opgate.io/decision":   "Deny",
		"installplans.opgate.io/refused-by": "plan/version " + source,
	})
	e.wantAudit(t, plan.GetName(), "admin", func() {
		patch(cluster.Admin, `{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 77"}},"spec":{"approved":true}}`)
	}, map[string]string{
		"installplans.opgate.io/decision":  "Allow",
		"installplans.opgate.io/warned-by": "plan/override " + source,
		"installplans.opgate.io/override": `overridden with reason "ticket 77" (plan/override): ` + forbiddenCSV + " is not allowed by " + source +
			" (plan/version): allowed is " + allowedCSV,
	})
	e.wantAudit(t, "automatic", "tenant", func() {
		_, err := e.Kubectl(t.Context(), cluster.Tenant, asJSON(t, subscription(namespace, "automatic", goodCatalog, "Automatic")), "create", "-f", "-")
		if err != nil {
			t.Fatal(err)
		}
	}, map[string]string{"subscriptions.opgate.io/decision": "Allow"})
}

// wantAudit makes a write and wants that annotations of the gate come with its event, these and no others.
func (e *env) wantAudit(t *testing.T, name, user string, write func(), want map[string]string) {
	t.Helper()
	before, err := readAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	write()
	events, err := readAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	found := false
	for _, event := range events[len(before):] {
		// The name of a new object is in its body, which the log does not have.
		ours := event.ObjectRef.Name == name || event.ObjectRef.Name == "" && event.Verb == "create"
		if event.User.Username != user || !ours || event.Stage != "ResponseComplete" {
			continue
		}
		found = true
		for key, value := range event.Annotations {
			if strings.Contains(key, ".opgate.io/") {
				got[key] = value
			}
		}
	}
	if !found {
		t.Errorf("the audit log has no write of %s by %s", name, user)
	}
	for key := range got {
		if got[key] != want[key] {
			t.Errorf("annotation %s is %q, want %q", key, got[key], want[key])
		}
	}
	for key := range want {
		if _, ok := got[key]; !ok {
			t.Errorf("there is no annotation %s; there are %v", key, got)
		}
	}
}
