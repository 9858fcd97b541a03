package install

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/rights"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const caSecret = "opgate-ca"

var (
	mutatingResource = schema.GroupVersionResource{
		Group:    "admissionregistration.k8s.io",
		Version:  "v1",
		Resource: "mutatingwebhookconfigurations",
	}

	// registrations are the names of the objects by which the API server calls Opgate.
	registrations = map[schema.GroupVersionResource]string{
		mutatingResource:           "opgate",
		harness.ValidatingResource: "opgate",
		harness.DefinitionResource: "operatorpolicies.policy.open-cluster-management.io",
	}
)

// patiently has pods end as they do by default: those that wait less for the API server to know, and to let go of its
// connections, may end one that is in use. How long controllers, the node and the API server take to know of a pod that
// ends, and of a CA, depends on the machine, and so does how long a review takes there.
func patiently() string {
	return fmt.Sprintf("webhooks.timeoutSeconds=30,drain.delay=%s,drain.timeout=100s,certificates.selfManaged.caOverlap=%s,%s",
		seconds(speed.Scale(5*time.Second)), seconds(speed.Scale(2*time.Second)), shared())
}

// helm3 is helm with Helm 3.
func (s *Site) helm3(t *testing.T, args ...string) string {
	t.Helper()
	return succeed(t, s.Helm3, args)
}

// install installs a release and waits until it is ready, as helm sees it.
func (s *Site) install(t *testing.T, set ...string) {
	t.Helper()
	s.RunHelm(t, "install", "opgate", harness.ChartDir, "--create-namespace", "--wait", "--set",
		strings.Join(append([]string{Quick()}, set...), ","))
}

// wantRights wants that the permissions of the release are enough for all that it did, and that it has used those that
// only self-managed certificates need.
func (s *Site) wantRights(t *testing.T) {
	t.Helper()
	s.WantNothingForbidden(t)
	requests, err := s.OpgateRequests(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range rights.OfCertificates {
		if !slices.ContainsFunc(requests, func(r cluster.Request) bool { return rights.For(r) == right }) {
			t.Errorf("opgate did not %s %s", right.Verb, right.Resource)
		}
	}
}

// wantHeld wants the API server to refuse by itself, soon, what needs no webhook to judge, and to admit the rest.
func (s *Site) wantHeld(t *testing.T, namespace string) {
	t.Helper()
	harness.Eventually(t, "the webhooks are not called", func(ctx context.Context) error {
		return s.Attempt(ctx, Try{User: cluster.Admin,
			Object: harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual")})
	})
	s.wantBackstop(t, namespace)
}

// wantBackstop wants the API server to refuse by itself, soon: it does so before it calls validating webhooks. The
// leader writes the policies for it, which may be some time after the first pod is ready.
func (s *Site) wantBackstop(t *testing.T, namespace string) {
	t.Helper()
	harness.Eventually(t, "the API server refuses by itself", func(ctx context.Context) error {
		err := s.Attempt(ctx, Try{User: cluster.Admin,
			Object: harness.InstallPlan(namespace, "another", harness.ForbiddenVersion)})
		if err == nil || !strings.Contains(err.Error(), "held by the API server") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// caBundles are all of those that the API server calls Opgate with.
func (s *Site) caBundles(t *testing.T) [][]byte {
	t.Helper()
	var all [][]byte
	for resource, name := range registrations {
		u, err := s.Clients[cluster.Admin].Resource(resource).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bundles(u)...)
	}
	return all
}

// bundles are the caBundles of an object, decoded.
func bundles(u *unstructured.Unstructured) [][]byte {
	var configs []any
	if webhooks, found, _ := unstructured.NestedSlice(u.Object, "webhooks"); found {
		for _, w := range webhooks {
			configs = append(configs, w.(map[string]any)["clientConfig"])
		}
	} else {
		config, _, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook", "clientConfig")
		configs = append(configs, config)
	}
	var out [][]byte
	for _, c := range configs {
		text, _ := c.(map[string]any)["caBundle"].(string)
		bundle, _ := base64.StdEncoding.DecodeString(text)
		out = append(out, bundle)
	}
	return out
}
