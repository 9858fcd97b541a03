package gate

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// planOfSample puts the objects of a sample with a plan and a policy into a new namespace.
func planOfSample(t *testing.T, e *harness.Env, sample string) (namespace, plan string) {
	t.Helper()
	namespace = e.NewNamespace(t)
	text, err := os.ReadFile("../../manifests/samples/" + sample + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var policy *unstructured.Unstructured
	for document := range strings.SplitSeq(strings.ReplaceAll(string(text), sample, namespace), "\n---\n") {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "", "Namespace":
			continue
		case "InstallPlan":
			plan = u.GetName()
		case "OperatorPolicy":
			policy = &u // comes last: it would not let the installed version be written
			continue
		}
		e.Put(t, &u)
	}
	e.Put(t, policy)
	e.Sync(t)
	return namespace, plan
}

// TestConsentByAnnotation consents to a change on a plan: with the verb approve, in the own name, and with the digest
// of the refusal.
func TestConsentByAnnotation(t *testing.T) {
	e := harness.Shared(t)
	namespace, plan := planOfSample(t, e, "bundle-consent-hold") // an upgrade that asks for rights to secrets
	patch := func(body string) []string {
		return []string{"patch", "installplan", plan, "-n", namespace, "--type=merge", "--patch", body}
	}
	const approve = `{"spec":{"approved":true}}`
	var digest string
	// contents are read in the background
	harness.Eventually(t, "have the change reviewed", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", patch(approve)...)
		if err != nil {
			return err
		}
		digest = regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(result.Stderr)
		if digest == "" || !strings.Contains(result.Stderr, "(bundle/consent)") ||
			!strings.Contains(result.Stderr, "get, list on secrets") {
			return fmt.Errorf("kubectl wrote %q", result.Stderr)
		}
		return nil
	})
	annotate := func(more ...string) []string {
		return append([]string{"annotate", "installplan", plan, "-n", namespace, "opgate.io/consent=" + digest},
			more...)
	}
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "", annotate(), "(plan/consent-right)",
		"it needs the verb approve on operatorpolicies "+namespace+" in namespace policies")

	for _, where := range []string{"policies", namespace} {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "approvers-"+namespace,
			"--clusterrole=opgate-approver", "--user=tenant", "--namespace="+where)
	}
	t.Cleanup(func() {
		// only tidies up
		_, _ = e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", "rolebinding",
			"approvers-"+namespace, "-n", "policies")
	})
	// the authorizer follows bindings by a watch
	harness.Eventually(t, "have the right", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, "", annotate("opgate.io/consent-by=admin")...)
		if err == nil && !strings.Contains(result.Stderr,
			`names "admin" (plan/consent-right): allowed is the name of the user who consents, "tenant"`) {
			err = fmt.Errorf("kubectl wrote %q", result.Stderr)
		}
		return err
	})
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "",
		[]string{"annotate", "installplan", plan, "-n", namespace, "opgate.io/consent=all"}, "(plan/consent-right)",
		"is not a digest")
	// It ends, and the user consents again until a later time.
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "", annotate("opgate.io/consent-expires=2026-01-01T00:00:00Z"),
		"(plan/consent-right)", "the consent ended at 2026-01-01T00:00:00Z")
	ends := time.Now().Add(speed.Scale(10 * time.Second)).UTC().Format(time.RFC3339)
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "",
		annotate("opgate.io/consent-by=tenant", "opgate.io/consent-expires="+ends)...)
	harness.Eventually(t, "see the consent end", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", append(patch(approve), "--dry-run=server")...)
		if err == nil && !strings.Contains(result.Stderr, "(the consent to it ended at "+ends+
			"; allowed in annotation opgate.io/consent-expires") {
			err = fmt.Errorf("kubectl wrote %q", result.Stderr)
		}
		return err
	})
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "",
		annotate("--overwrite", "opgate.io/consent-expires=2126-01-01T00:00:00Z")...)
	e.Sync(t)

	wantAudit(t, e, plan, "admin", func() { harness.Kubectl(t, e.Cluster, cluster.Admin, "", patch(approve)...) },
		map[string]string{
			"installplans.opgate.io/decision": "Allow",
			"installplans.opgate.io/consent": "etcdoperator.v0.9.4 " + digest +
				` by annotation opgate.io/consent of user "tenant" until 2126-01-01T00:00:00Z ` +
				"for OperatorPolicy policies/" + namespace,
		})
}
