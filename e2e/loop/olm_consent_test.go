package loop

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// growing is a package whose second version asks for more than its first one: all of secrets, a webhook on pods, and a
// definition without a version that was served. Its third version asks for nothing new.
func growing(name, csv string, images bool, secrets ...string) olm.Package {
	return olm.Package{
		Name: name, CSV: csv, Versions: []string{"0.9.2", "0.9.4", "0.9.5"}, Images: images, Owns: "Backup",
		Objects: map[string]any{"priorityclass.json": &schedulingv1.PriorityClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 1000,
		}},
		Permissions: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"},
			Verbs: []string{"create"}}},
		Release: func(version string, p *olm.Package) {
			p.ClusterPermissions = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
				Verbs: []string{"get", "list"}}}
			if version == "0.9.2" {
				p.APIVersions = []string{"v1beta1", "v1"}
				return
			}
			p.ClusterPermissions = append(p.ClusterPermissions,
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: secrets})
			ignore, none, path := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone,
				"/validate"
			p.Webhooks = []operatorsv1alpha1.WebhookDescription{{
				GenerateName: "pods." + name + ".example.com", Type: operatorsv1alpha1.ValidatingAdmissionWebhook,
				DeploymentName: name + "-operator",
				ContainerPort:  443, AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: &ignore,
				WebhookPath: &path,
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"pods"}},
				}},
			}}
		},
	}
}

// rebuilt is the catalog in which the same versions ask for one more verb.
const rebuilt = "rebuilt"

// withReports installs what Reports need, before Opgate starts.
func withReports(t *testing.T) func(*harness.Env) {
	return func(e *harness.Env) {
		for _, install := range []func(context.Context) error{e.InstallReports, e.GrantReports} {
			if err := install(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// addRebuilt adds the catalog in which the versions of growing packages ask for one more verb.
func addRebuilt(t *testing.T, e *harness.OLMEnv, packages ...olm.Package) {
	t.Helper()
	if _, err := e.OLM.AddCatalog(t.Context(), rebuilt, packages...); err != nil {
		t.Fatal(err)
	}
}

// consentPolicy allows all versions of a package, and wants three classes of changes reviewed.
func consentPolicy(namespace, pkg, csv string, accepted ...any) *unstructured.Unstructured {
	p := harness.GroupedPolicy(namespace, pkg, csv+".v0.9.2", csv+".v0.9.4", csv+".v0.9.5")
	p = harness.WithField(p, csv+".v0.9.2", "spec", "subscription", "startingCSV")
	return harness.WithField(p, map[string]any{
		"permissions": "Hold", "webhooks": "Hold", "breakingCRDs": "Hold", "accepted": append([]any{}, accepted...),
	}, "spec", "consent")
}

var digestPattern = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// heldUpgrade installs the first version, which passes without review, and returns the upgrade that is held, with its
// digest.
func heldUpgrade(
	t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured, csv string,
) (plan *unstructured.Unstructured, digest string) {
	t.Helper()
	namespace, _, _ := unstructured.NestedString(p.Object, "spec", "subscription", "namespace")
	e.Apply(t, p)
	e.WaitForCSV(t, namespace, csv+".v0.9.2")
	plan = e.WaitForPlan(t, namespace, csv+".v0.9.4")
	waitForPolicy(t, e, p, is(compliant), has(csv+".v0.9.2"),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval", csv+".v0.9.4", "(bundle/consent)",
			"secrets"))
	refusal := e.WantApprovalRefused(t, cluster.Admin, plan, csv+".v0.9.4", "(bundle/consent)", "secrets", "pods",
		"v1beta1", "spec.consent.accepted")
	if digest = digestPattern.FindString(refusal); digest == "" {
		t.Fatalf("the refusal names no digest: %s", refusal)
	}
	wantSameDiff(t, e, plan, digest)
	wantShown(t, e, plan, p, csv, digest)
	return plan, digest
}

// approve runs opgate approve with a digest, and returns what it prints.
func approve(
	t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured, digest string, exitCode int,
	wantCondition ...string,
) (output string) {
	t.Helper()
	got, err := e.RunOpgate(t.Context(),
		cluster.Command{Args: []string{"approve", plan.GetNamespace() + "/" + plan.GetName(), "--digest", digest}})
	if err != nil {
		t.Fatal(err)
	}
	if got.ExitCode != exitCode {
		t.Errorf("opgate approve ends with exit code %d, want %d", got.ExitCode, exitCode)
	}
	for _, text := range wantCondition {
		if !strings.Contains(got.Stdout+got.Stderr, text) {
			t.Errorf("opgate approve prints %s%s\nwant %q in it", got.Stdout, got.Stderr, text)
		}
	}
	return got.Stdout + got.Stderr
}

// upgradeReviewed follows a package from its first version to its last one.
func upgradeReviewed(t *testing.T, e *harness.OLMEnv, pkg, csv string) {
	namespace, second := e.NewNamespace(t), e.NewNamespace(t)
	p := consentPolicy(namespace, pkg, csv)
	plan, digest := heldUpgrade(t, e, p, csv)
	wantEvent(t, e, plan, "Warning Held opgate "+csv+".v0.9.4 is held by OperatorPolicy policies/"+p.GetName()+
		" (bundle/consent): accept "+digest+" in ")

	// Other contents of the same name have another digest, so that they are held all the same.
	other := harness.WithField(consentPolicy(second, pkg, csv, digest), rebuilt, "spec", "subscription", "source")
	otherPlan, otherDigest := heldUpgrade(t, e, other, csv)
	if otherDigest == digest {
		t.Errorf("a version that asks for more has the same digest %s", digest)
	}
	began := time.Now()
	e.Edit(t, p, fmt.Sprintf(`{"spec":{"consent":{"accepted":["%s"]}}}`, digest))
	waitForApproval(t, e, plan)
	t.Logf("%s was approved within %s of the digest in the policy", plan.GetName(),
		time.Since(began).Round(time.Millisecond))
	e.WaitForCSV(t, namespace, csv+".v0.9.4")
	wantEvent(t, e, plan, "Normal Approved opgate consent to "+csv+".v0.9.4 "+digest+
		" by spec.consent.accepted of OperatorPolicy policies/"+p.GetName()+" (bundle/consent); ")
	// The next version changes nothing, so it is not reviewed.
	e.WaitForCSV(t, namespace, csv+".v0.9.5")
	waitForPolicy(t, e, p, is(compliant), has(csv+".v0.9.5"))

	// The definition, which both namespaces share, has lost its version by now: what is left of the change has a digest
	// of its own.
	refusal := approve(t, e, otherPlan, otherDigest, 1, "(bundle/consent)", "secrets")
	approve(t, e, otherPlan, digestPattern.FindString(refusal), 0, "approved, with consent to "+
		digestPattern.FindString(refusal))
	wantEvent(t, e, otherPlan, `Normal Approved opgate by user "admin"; consent to `+csv+".v0.9.4 "+
		digestPattern.FindString(refusal)+` by annotation opgate.io/consent of user "admin"`)
	e.WaitForCSV(t, second, csv+".v0.9.5")
	waitForPolicy(t, e, other, is(compliant), has(csv+".v0.9.5"))
}

// wantEvent waits until kubectl describe shows an event on a plan that begins with a text.
func wantEvent(t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured, begins string) {
	t.Helper()
	e.Eventually(t, "see the event on "+plan.GetName(), func(ctx context.Context) error {
		lines, err := eventsOf(ctx, e.Env, plan.GetNamespace(), "installplan", plan.GetName())
		if err == nil && !slices.ContainsFunc(lines,
			func(line string) bool { return strings.HasPrefix(line, begins) }) {
			err = fmt.Errorf("there are\n%s\nwant %s", strings.Join(lines, "\n"), begins)
		}
		return err
	})
}

// editedAfterApproval edits what OLM unpacked between the approval and the installation.
func editedAfterApproval(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := consentPolicy(namespace, "anchor", "anchoroperator")
	plan, digest := heldUpgrade(t, e, p, "anchoroperator")
	if err := e.OLM.CatalogOperator().Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Edit(t, p, fmt.Sprintf(`{"spec":{"consent":{"accepted":["%s"]}}}`, digest))
	waitForApproval(t, e, plan)
	editUnpacked(t, e, plan)
	if err := e.OLM.CatalogOperator().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitForPolicy(t, e, p, wantCondition("InstallPlanCompliant=False InstallPlanRefused", "anchoroperator.v0.9.4",
		"was changed after OLM had written it"))
	_, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(namespace).Get(t.Context(),
		"anchoroperator.v0.9.4", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the version whose contents were edited: %v, want none", err)
	}
}

// waitForApproval waits until the loop has approved a plan.
func waitForApproval(t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured) {
	t.Helper()
	e.Eventually(t, "wait for the approval of "+plan.GetName(), func(ctx context.Context) error {
		got, err := e.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(plan.GetNamespace()).Get(ctx,
			plan.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if approved, _, _ := unstructured.NestedBool(got.Object, "spec", "approved"); !approved {
			return errors.New("it is not approved")
		}
		return nil
	})
}

// editUnpacked adds a right of the operator to the ConfigMap that a step of a plan refers to, by an attacker with OLM's
// account: the backstop refuses it to others.
func editUnpacked(t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured) {
	t.Helper()
	steps, _, _ := unstructured.NestedSlice(plan.Object, "status", "plan")
	var ref struct{ Namespace, Name string }
	for _, step := range steps {
		manifest, _, _ := unstructured.NestedString(step.(map[string]any), "resource", "manifest")
		if err := json.Unmarshal([]byte(manifest), &ref); err == nil && ref.Name != "" {
			break
		}
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	configMaps := e.Clients[cluster.OLM].Resource(resource).Namespace(ref.Namespace)
	got, err := configMaps.Get(t.Context(), ref.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedStringMap(got.Object, "binaryData")
	const file = "clusterserviceversion.json"
	manifest := bytes.ReplaceAll(unzip(t, data[file]), []byte(`"configmaps"`), []byte(`"nodes"`))
	harness.WithField(got, string(manifest), "data", file)
	for name := range data {
		if name != file {
			harness.WithField(got, string(unzip(t, data[name])), "data", name)
		}
	}
	unstructured.RemoveNestedField(got.Object, "binaryData")
	got.SetAnnotations(nil) // OLM reads the data, which is not compressed
	_, err = e.Clients[cluster.Admin].Resource(resource).Namespace(ref.Namespace).Update(t.Context(), got,
		metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "only OLM writes them") {
		t.Errorf("an admin edits the contents of an unpacked bundle: %v", err)
	}
	if _, err := configMaps.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// unzip returns a manifest in binaryData: base64 of the API, and then base64 and gzip of OLM.
func unzip(t *testing.T, data string) []byte {
	t.Helper()
	once, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(once)))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}
