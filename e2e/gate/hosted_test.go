package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// hostedUser is what OLM authenticates as on a hosted control plane, by a client certificate.
const hostedUser = "system:admin"

// certified returns a client with a certificate.
func certified(t *testing.T, e *harness.Env, name string, groups ...string) *harness.Client {
	t.Helper()
	config, err := e.Credentials(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := harness.ClientOf(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// creation is the request that creates a plan in OLM's form, owned by a Subscription, unless that is nil.
func creation(t *testing.T, namespace string, owner *unstructured.Unstructured) harness.Request {
	t.Helper()
	plan := harness.InstallPlan(namespace, "", harness.ForbiddenVersion)
	delete(plan.Object, "status")
	plan.SetName("")
	plan.SetGenerateName("install-")
	if owner != nil {
		plan.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": owner.GetAPIVersion(),
			"kind": owner.GetKind(),
			"name": owner.GetName(), "uid": string(owner.GetUID()), "controller": false, "blockOwnerDeletion": false}}
	}
	return harness.Request{Method: http.MethodPost, Path: harness.PathOf(harness.InstallPlans, namespace, "", ""),
		ContentType: "application/json",
		Body:        []byte(harness.AsJSON(t, plan))}
}

// TestHostedControlPlane makes OLM write as system:admin, as on HyperShift. While another account is configured, its
// plans are refused, and everything that the webhooks say names the value to set; once that is set they pass.
func TestHostedControlPlane(t *testing.T) {
	e := harness.SharedWithoutBackstop(t)
	namespace := e.NewNamespace(t)
	sub := e.Put(t, harness.Subscription(namespace, "good", harness.GoodCatalog, "Manual"))
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	olm := certified(t, e, hostedUser, "system:masters")
	create, start := creation(t, namespace, sub), harness.Request{Method: http.MethodPatch,
		Path:        harness.PathOf(harness.InstallPlans, namespace, waiting.GetName(), "status"),
		ContentType: "application/merge-patch+json", Body: []byte(`{"status":{"phase":"Installing"}}`)}
	value := "set --olm-identity=" + hostedUser + " (olm.identity=" + hostedUser + " of the chart)"

	t.Run("it is refused, with the value to set", func(t *testing.T) {
		for rule, request := range map[string]harness.Request{"plan/create": create, "plan/status-phase": start} {
			got := olm.Must(t, request)
			for _, want := range []string{"(" + rule + ")", hostedUser +
				" writes this installplan as OLM does, but OLM is configured as " + cluster.OLMUserName +
				" (gate/olm-identity)", value, "any user with these credentials then passes as OLM"} {
				if !strings.Contains(got.Refused, want) {
					t.Errorf("%s: got %s\nwant %q", rule, got, want)
				}
			}
		}
		samples := []string{`opgate_olm_identity_candidate_writes_total{identity="system:admin",kind="installplan"} 2` +
			"\n"}
		wantScraped(t, e, samples)
		log, err := os.ReadFile(e.Gate.LogPath())
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(log),
			`"msg":"user writes as OLM does, but is not configured as OLM","user":"system:admin"`); n != 1 ||
			!strings.Contains(string(log), value) {
			t.Errorf("the log says so %d times, want once, with %q", n, value)
		}
		for _, about := range []*unstructured.Unstructured{sub, waiting} {
			harness.Eventually(t, "an event on "+about.GetKind(), func(ctx context.Context) error {
				result, err := e.Kubectl(ctx, cluster.Admin, "", "get", "events", "-n", namespace, "--field-selector",
					"reason=NotOLM,involvedObject.uid="+string(about.GetUID()), "-o", "jsonpath={.items[*].message}")
				if err != nil || !strings.Contains(result.Stdout, value) {
					return fmt.Errorf("events are %q (%w)", result.Stdout, err)
				}
				return nil
			})
		}
		if _, body, err := harness.GetURL(t.Context(), e.Gate.HealthURL()+"/readyz"); err != nil ||
			!strings.Contains(body, "system:admin wrote as OLM does") {
			t.Errorf("/readyz says %s (%v)", body, err)
		}
	})
	t.Run("others are not", func(t *testing.T) {
		admin := e.Clients[cluster.Admin]
		for name, got := range map[string]harness.Answer{
			"a tenant with a plan in OLM's form": e.Clients[cluster.Tenant].Must(t, create),
			"a tenant who starts a plan":         e.Clients[cluster.Tenant].Must(t, start),
			"an admin with a plan of its own":    admin.Must(t, creation(t, namespace, nil)),
		} {
			if got.Refused == "" || strings.Contains(got.Refused, "as OLM does") {
				t.Errorf("%s: got %s", name, got)
			}
		}
		wantScraped(t, e, []string{`opgate_olm_identity_candidate_writes_total{identity="system:admin",kind="installplan"} 2` + "\n"}, `identity="tenant"`, `identity="admin"`)
	})

	e.Restart(t, cluster.GateOptions{OLMIdentity: hostedUser, WithoutBackstop: true})
	wantIdentity(t, e, "trusted", "")
	t.Run("with the value it passes", func(t *testing.T) {
		create := create
		create.Query = map[string][]string{"dryRun": {"All"}}
		if got := olm.Must(t, create); !got.OK() {
			t.Errorf("got %s", got)
		}
		if got := olm.Must(t, harness.Request{Method: http.MethodPatch, Path: start.Path,
			ContentType: start.ContentType, Body: []byte(`{"status":{"message":"by OLM"}}`)}); !got.OK() {
			t.Errorf("got %s", got)
		}
		// Neither is sent to Opgate. A plan that is born approved is.
		create.Body = bytes.Replace(create.Body, []byte(`"approved":false`), []byte(`"approved":true`), 1)
		if got := olm.Must(t, create); !strings.Contains(got.Refused, "(plan/born-approved)") {
			t.Errorf("got %s", got)
		}
		_, body, err := harness.GetURL(t.Context(), e.Gate.MetricsURL())
		if err != nil || !strings.Contains(body,
			`opgate_olm_identity_last_seen_timestamp_seconds{identity="system:admin"} 1`) {
			t.Errorf("the metric does not say when it was seen (%v)", err)
		}
	})
	t.Run("other users are not trusted", func(t *testing.T) {
		// The name alone may not even write plans: here it may, as a tenant.
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "hosted", "-n", namespace,
			"--clusterrole=opgate-e2e-tenant", "--user="+hostedUser)
		for name, test := range map[string]struct {
			client *harness.Client
			says   string
		}{
			"the name without the group": {certified(t, e, hostedUser), "the request is not of group system:masters"},
			"the group without the name": {certified(t, e, "system:other", "system:masters"),
				"olm.identity=system:other"},
			"the account of before": {e.Clients[cluster.OLM], "olm.identity=" + cluster.OLMUserName},
			"a tenant":              {e.Clients[cluster.Tenant], "(plan/create)"},
		} {
			harness.Eventually(t, name+" is refused", func(ctx context.Context) error { // as soon as the binding counts
				got, err := test.client.Send(ctx, create)
				if err != nil || !strings.Contains(got.Refused, test.says) {
					return fmt.Errorf("got %s, want %q (%w)", got, test.says, err)
				}
				return nil
			})
		}
	})
}

// wantScraped wants samples to be in the metrics, and texts not to be.
func wantScraped(t *testing.T, e *harness.Env, samples []string, absent ...string) {
	t.Helper()
	_, body, err := harness.GetURL(t.Context(), e.Gate.MetricsURL())
	for _, want := range samples {
		if !strings.Contains(body, want) {
			err = errors.Join(err, fmt.Errorf("%q is not there", want))
		}
	}
	for _, other := range absent {
		if strings.Contains(body, other) {
			err = errors.Join(err, fmt.Errorf("%q is there", other))
		}
	}
	if err != nil {
		t.Error(err)
	}
}
