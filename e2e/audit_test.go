package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

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

// leastPrivilege returns an error for every request of Opgate that its job does not need. The suite ends with it, so that it
// sees what all tests made Opgate do.
func leastPrivilege(path string) error {
	events, err := readAudit(path)
	if err != nil {
		return err
	}
	followed := []string{
		"policy.open-cluster-management.io/operatorpolicies", "operators.coreos.com/subscriptions",
		"operators.coreos.com/installplans", "operators.coreos.com/clusterserviceversions",
	}
	var errs []error
	for _, event := range events {
		if event.User.Username != "system:serviceaccount:opgate-system:opgate" {
			continue
		}
		resource := event.ObjectRef.APIGroup + "/" + event.ObjectRef.Resource
		switch {
		case event.ObjectRef.Subresource != "":
		case slices.Contains([]string{"get", "list", "watch"}, event.Verb) && slices.Contains(followed, resource):
			continue
		case event.Verb == "create" && resource == "authorization.k8s.io/subjectaccessreviews":
			continue
		}
		errs = append(errs, fmt.Errorf("opgate did %s %s, which it does not need", event.Verb, event.RequestURI))
	}
	return errors.Join(errs...)
}

// TestG25LeastPrivilege makes Opgate do all that it does and looks at what it asked the API server for.
func TestG25LeastPrivilege(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	plan := e.put(t, plan(namespace, "forbidden", forbiddenVersion))
	e.sync(t)
	// An override is what it asks the authorizer about.
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "installplan", "-n", namespace, plan.GetName(), "--type=merge", "--patch",
		`{"metadata":{"annotations":{"opgate.io/override-reason":"a test"}},"spec":{"approved":true}}`)
	if err := leastPrivilege(e.AuditLog()); err != nil {
		t.Error(err)
	}
	events, err := readAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, event := range events {
		if event.User.Username == "system:serviceaccount:opgate-system:opgate" {
			seen[event.Verb+" "+event.ObjectRef.Resource] = true
		}
	}
	for _, want := range []string{
		"watch operatorpolicies", "watch subscriptions", "watch installplans", "watch clusterserviceversions", "create subjectaccessreviews",
	} {
		if !seen[want] {
			t.Errorf("the audit log does not have %q, so it proves nothing; it has %v", want, seen)
		}
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
