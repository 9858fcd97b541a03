package conversion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const policyDefinition = "operatorpolicies.policy.open-cluster-management.io"

// storeIn makes the API server store policies in a version, and waits until it does.
func storeIn(t *testing.T, e *harness.Env, version string) {
	t.Helper()
	if err := e.SetStorageVersion(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	probe := versioned(harness.Present, "probe")
	t.Cleanup(func() { e.Remove(t, probe) })
	harness.Eventually(t, "policies are stored in "+version, func(ctx context.Context) error {
		defer e.Remove(t, probe)
		if _, err := created(ctx, e, probe); err != nil {
			return err
		}
		stored, err := e.StoredPolicies(ctx)
		if err != nil {
			return err
		}
		if got, want := stored[probe.GetNamespace()+"/"+probe.GetName()],
			harness.OperatorPolicies.Group+"/"+version; got != want {
			return fmt.Errorf("the probe is stored in %s", got)
		}
		return nil
	})
}

// storedIn counts the policies that are stored in a version, by etcd.
func storedIn(t *testing.T, e *harness.Env, version string) int {
	t.Helper()
	stored, err := e.StoredPolicies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for apiVersion := range maps.Values(stored) {
		if apiVersion == harness.OperatorPolicies.Group+"/"+version {
			n++
		}
	}
	return n
}

// wantStoredVersions checks what the API server reports of the versions in which policies may be stored.
func wantStoredVersions(t *testing.T, e *harness.Env, want ...string) {
	t.Helper()
	crd, err := e.Clients[cluster.Admin].Resource(harness.DefinitionResource).Get(t.Context(), policyDefinition,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("storedVersions is %v, want %v", got, want)
	}
}

// documented runs the command below a heading of docs/conversion.md.
func documented(t *testing.T, e *harness.Env, heading string) error {
	t.Helper()
	text, err := os.ReadFile("../../docs/conversion.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	step := regexp.MustCompile("(?s)```shell\n(.*?)```").FindStringSubmatch(section)
	if step == nil {
		t.Fatalf("docs/conversion.md has no command below %q", heading)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euc", step[1])
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Kubeconfig(), "PATH="+filepath.Dir(e.Assets().Kubectl())+":"+
		os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.2000s", err, out)
	}
	return nil
}

// migrate rewrites what is stored in v1beta1.
func migrate(t *testing.T, e *harness.Env) error {
	t.Helper()
	return documented(t, e, "What is stored in which version")
}

// TestConversionAtStart starts the gate where policies are stored in v1beta1, of which some would not be admitted any
// more: it has to convert them itself before it can read them, and it has to read them before it is ready.
func TestConversionAtStart(t *testing.T) {
	t.Parallel()
	e := &harness.LoopEnv{Env: harness.Vacant(t)}
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.PackageManifests, "create", "-f", "-")
	harness.Afterwards(t, e.Cluster, "delete", "customresourcedefinition",
		"packagemanifests.packages.operators.coreos.com")
	e.Connect(t)
	storeIn(t, e.Env, harness.Earlier)

	// Before there was an admission.
	stored := map[string]struct {
		spec     map[string]any
		explains string
	}{
		"contradiction": {
			spec: map[string]any{"upgradeApproval": "Automatic",
				"subscription": map[string]any{"installPlanApproval": "Manual"}},
			explains: "remove it; spec.upgradeApproval: Automatic says already what becomes of upgrades",
		},
		"neither": {spec: map[string]any{"upgradeApproval": nil}, explains: "spec.upgradeApproval: Required value"},
		"unknown": {
			spec: map[string]any{"verions": []any{harness.AllowedCSV},
				"extra": map[string]any{"a": []any{float64(1), "Ω"}}, "upgradeApproval": nil,
				"subscription": map[string]any{"installPlanApproval": "Automatic"}},
			explains: `unknown field "spec.verions"; correct it or remove it`,
		},
		"good": {spec: map[string]any{"upgradeApproval": nil,
			"subscription": map[string]any{"installPlanApproval": "Automatic"}}},
	}
	written := map[string]*unstructured.Unstructured{}
	for name, s := range stored {
		p := versioned(harness.Earlier, name)
		p.Object = harness.MergePatch(p.Object, map[string]any{"spec": s.spec}).(map[string]any)
		p.Object = harness.MergePatch(p.Object, harness.Spec("remediationAction", "enforce")).(map[string]any)
		if _, err := created(t.Context(), e.Env, p); err != nil {
			t.Fatal(err)
		}
		status := []byte(`{"status":{"installedVersion":"` + harness.ForbiddenCSV + `"}}`)
		if _, err := sendPolicy(t.Context(), e.Env, harness.Request{
			Method:      http.MethodPatch,
			Path:        harness.PathOf(harness.OperatorPoliciesIn(harness.Earlier), p.GetNamespace(), name, "status"),
			ContentType: "application/merge-patch+json",
			Body:        status,
		}, nil); err != nil {
			t.Fatal(err)
		}
		written[name] = read(t, e.Env, harness.Earlier, p)
		e.EnsureNamespace(t, name, true)
		e.Propose(t, name, "install-1", harness.AllowedVersion)
	}
	if err := e.SetStorageVersion(t.Context(), harness.Present); err != nil {
		t.Fatal(err)
	}

	// No server converts until the gate does.
	nobody := "https://127.0.0.1:1/convert"
	if err := e.SetConversion(t.Context(), apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &nobody},
			ConversionReviewVersions: []string{"v1"},
		},
	}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "policies cannot be read", func(ctx context.Context) error {
		if _, err := readIn(ctx, e.Env, harness.Present, versioned(harness.Present, "good")); err == nil {
			return errors.New("they can")
		}
		return nil
	})
	if n := storedIn(t, e.Env, harness.Earlier); n != len(stored) {
		t.Fatalf("%d policies are stored in v1beta1, want %d", n, len(stored))
	}
	var err error
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Unready: true}); err != nil {
		t.Fatal(err)
	}
	if err := e.Gate.WaitForReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Not even those that would be refused today are in the way of a migration.
	if err := migrate(t, e.Env); err != nil {
		t.Error(err)
	}
	if n := storedIn(t, e.Env, harness.Earlier); n != 0 {
		t.Errorf("%d policies are stored in v1beta1", n)
	}
	wantStoredVersions(t, e.Env, harness.Present)
	e.Restart(t, cluster.GateOptions{Loop: true})

	for name, s := range stored {
		t.Run(name, func(t *testing.T) {
			if s.explains == "" {
				e.WaitApproved(t, name, "install-1")
				if upgrade, install := approvalForms(read(t, e.Env, harness.Present,
					written[name])); upgrade != "Automatic" || install != "" {
					t.Errorf("v1beta2 has upgradeApproval %q and installPlanApproval %q", upgrade, install)
				}
			} else {
				harness.Eventually(t, "status", func(context.Context) error {
					op, err := e.StateOf(t.Context(), name)
					if err != nil {
						return err
					}
					if said := scripttest.Conditions(op); op.Status.Compliant != "NonCompliant" ||
						!strings.Contains(said, s.explains) {
						return fmt.Errorf("it is %q and says\n%s", op.Status.Compliant, said)
					}
					return nil
				})
				harness.WantRefused(t, e.Cluster, cluster.Admin, "",
					[]string{"patch", "installplan", "-n", name, "install-1", "--type=merge", "--patch",
						`{"spec":{"approved":true}}`}, "(policy/unreadable)")
				e.WantApproved(t, name, "install-1", false)
			}
			// What was written is still there as it was written.
			now := read(t, e.Env, harness.Earlier, written[name])
			if diff := cmp.Diff(written[name].Object["spec"], now.Object["spec"]); diff != "" {
				t.Errorf("the spec changed (-was +is):\n%s", diff)
			}
			annotations := now.GetAnnotations()
			delete(annotations, "opgate.io/conversion") // what a later edit is compared with
			if diff := cmp.Diff(written[name].GetAnnotations(), annotations, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("annotations changed (-was +is):\n%s", diff)
			}
			for _, version := range []string{harness.Earlier, harness.Present} {
				list := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get",
					harness.OperatorPolicies.Resource+"."+version+"."+harness.OperatorPolicies.Group, "-A", "-o",
					"name")
				if !strings.Contains(list, "/"+name+"\n") {
					t.Errorf("%s lists %s", version, list)
				}
			}
		})
	}
}

// TestConversionMigrate stores policies in v1beta1 and migrates them, without the converter and with it.
func TestConversionMigrate(t *testing.T) {
	e := shared(t)
	const count = 50
	storeIn(t, e, harness.Earlier)
	var all []*unstructured.Unstructured
	for i := range count {
		all = append(all, versioned([]string{harness.Earlier, harness.Present}[i%2], fmt.Sprintf("migrate-%03d", i)))
	}
	t.Cleanup(func() { emptied(t, e) })
	harness.AtOnce(t, harness.Writers, all, func(ctx context.Context, p *unstructured.Unstructured) error {
		_, err := created(ctx, e, p)
		return err
	})
	storeIn(t, e, harness.Present)
	if n := storedIn(t, e, harness.Earlier); n != count {
		t.Fatalf("%d policies are stored in v1beta1, want %d", n, count)
	}

	t.Run("without a converter", func(t *testing.T) {
		if _, err := e.Gate.Stop(); err != nil {
			t.Fatal(err)
		}
		defer e.Restart(t, cluster.GateOptions{WithoutBackstop: true})
		if err := migrate(t, e); err == nil {
			t.Error("it succeeds")
		}
		if n := storedIn(t, e, harness.Earlier); n != count {
			t.Errorf("%d policies are stored in v1beta1, want all of them still", n)
		}
		wantStoredVersions(t, e, harness.Earlier, harness.Present)
	})

	t.Run("to the end", func(t *testing.T) {
		before := list(t, e, harness.Earlier)
		if err := migrate(t, e); err != nil {
			t.Error(err)
		}
		if n := storedIn(t, e, harness.Earlier); n != 0 {
			t.Errorf("%d policies are stored in v1beta1", n)
		}
		wantStoredVersions(t, e, harness.Present)
		if diff := cmp.Diff(before, list(t, e, harness.Earlier)); diff != "" {
			t.Errorf("policies changed (-before +after):\n%s", diff)
		}
	})
}

// list returns the specs of all policies in a version.
func list(t *testing.T, e *harness.Env, version string) map[string]any {
	t.Helper()
	list, err := e.Clients[cluster.Admin].Resource(harness.OperatorPoliciesIn(version)).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]any{}
	for _, p := range list.Items {
		specs[p.GetNamespace()+"/"+p.GetName()] = p.Object["spec"]
	}
	return specs
}

// emptied deletes all policies.
func emptied(t *testing.T, e *harness.Env) {
	t.Helper()
	err := e.Clients[cluster.Admin].Resource(harness.OperatorPolicies).Namespace(
		cluster.PolicyNamespace).DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{},
		metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	}
}

// TestConversionEmergency runs the command that docs/conversion.md has for the case that the converter is gone for
// good.
func TestConversionEmergency(t *testing.T) {
	e := shared(t)
	storeIn(t, e, harness.Earlier)
	var names []string
	for _, version := range []string{harness.Earlier, harness.Present} {
		p := versioned(version, "emergency-"+version)
		if _, err := created(t.Context(), e, p); err != nil {
			t.Fatal(err)
		}
		names = append(names, p.GetName())
	}
	storeIn(t, e, harness.Present)
	if _, err := e.Gate.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Restart(t, cluster.GateOptions{WithoutBackstop: true})
		emptied(t, e)
		if err := migrate(t, e); err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, "the converter is missed", func(ctx context.Context) error {
		if _, err := readIn(ctx, e, harness.Present, versioned(harness.Present, names[0])); err == nil {
			return errors.New("a policy is still converted")
		}
		return nil
	})

	if err := documented(t, e, "When the converter is down"); err != nil {
		t.Fatal(err)
	}
	for i, version := range []string{harness.Earlier, harness.Present} {
		in := harness.OperatorPolicies.Resource + "." + version + "." + harness.OperatorPolicies.Group
		harness.Eventually(t, "everything is listed in "+version, func(ctx context.Context) error {
			result, err := e.Kubectl(ctx, cluster.Admin, "", "get", in, "-n", cluster.PolicyNamespace, "-o", "name")
			if err != nil {
				return err
			}
			for _, name := range names[i:] {
				if !strings.Contains(result.Stdout, name) {
					return fmt.Errorf("%s is missing: %s%s", name, result.Stdout, result.Stderr)
				}
			}
			return nil
		})
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", in, "-n", cluster.PolicyNamespace, names[i])
	}
}
