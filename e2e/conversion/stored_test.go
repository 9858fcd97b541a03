package conversion

import (
	"bufio"
	"bytes"
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
	"syscall"
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

// migrate runs `opgate migrate` to its end.
func migrate(t *testing.T, e *harness.Env, args ...string) (out string, exitCode int) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), harness.Opgate(t, e.Cluster),
		append([]string{"migrate", "--kubeconfig", e.Kubeconfig()}, args...)...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
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
	if out, code := migrate(t, e.Env); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
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

// TestConversionMigrate stores policies in v1beta1 and migrates them, with everything that gets in the way.
func TestConversionMigrate(t *testing.T) {
	e := shared(t)
	const count = 150 // more than the 100 of a line of progress
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
	untouched := func(t *testing.T) {
		t.Helper()
		if n := storedIn(t, e, harness.Earlier); n != count {
			t.Errorf("%d policies are stored in v1beta1, want all of them still", n)
		}
		wantStoredVersions(t, e, harness.Earlier, harness.Present)
	}

	t.Run("dry run", func(t *testing.T) {
		out, code := migrate(t, e, "--dry-run")
		if code != 0 || strings.Count(out, "would write policies/migrate-") != count ||
			!strings.Contains(out, fmt.Sprintf("%d OperatorPolicies would be written", count)) {
			t.Errorf("exit code %d\n%s", code, out)
		}
		untouched(t)
	})

	t.Run("without a converter", func(t *testing.T) {
		if _, err := e.Gate.Stop(); err != nil {
			t.Fatal(err)
		}
		defer e.Restart(t, cluster.GateOptions{WithoutBackstop: true})
		out, code := migrate(t, e)
		if code != 1 || !strings.Contains(out, "is the conversion webhook running?") {
			t.Errorf("exit code %d\n%.2000s", code, out)
		}
		untouched(t)
	})

	t.Run("interrupted", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), harness.Opgate(t, e.Cluster), "migrate", "--kubeconfig", e.Kubeconfig())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, progress := bufio.NewScanner(stdout), false
		for lines.Scan() {
			if lines.Text() == fmt.Sprintf("100 of %d OperatorPolicies", count) {
				progress = true
				if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Error(err)
				}
			}
		}
		err = cmd.Wait()
		if !progress || err == nil || !strings.Contains(stderr.String(), "start again, what is done stays done") {
			t.Errorf("a line of progress: %t, then %v: %s", progress, err, stderr.String())
		}
		if n := storedIn(t, e, harness.Earlier); n == 0 || n > count-100 {
			t.Errorf("%d policies are stored in v1beta1 after 100 of %d were written", n, count)
		}
		wantStoredVersions(t, e, harness.Earlier, harness.Present)
	})

	t.Run("to the end", func(t *testing.T) {
		left := storedIn(t, e, harness.Earlier)
		before := list(t, e, harness.Earlier)
		out, code := migrate(t, e)
		want := fmt.Sprintf("%d OperatorPolicies: %d rewritten, %d were stored in v1beta2 already", count, left,
			count-left)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want %q\n%s", code, want, out)
		}
		if n := storedIn(t, e, harness.Earlier); n != 0 {
			t.Errorf("%d policies are stored in v1beta1", n)
		}
		wantStoredVersions(t, e, harness.Present)
		if diff := cmp.Diff(before, list(t, e, harness.Earlier)); diff != "" {
			t.Errorf("policies changed (-before +after):\n%s", diff)
		}
	})

	t.Run("again", func(t *testing.T) {
		out, code := migrate(t, e)
		if code != 0 || out != "nothing to do: every OperatorPolicy is stored in v1beta2\n" {
			t.Errorf("exit code %d\n%s", code, out)
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
	text, err := os.ReadFile("../../docs/conversion.md")
	if err != nil {
		t.Fatal(err)
	}
	step := regexp.MustCompile("(?s)```shell\n(.*?)```").FindStringSubmatch(string(text))
	if step == nil {
		t.Fatal("docs/conversion.md has no command")
	}
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
		if out, code := migrate(t, e); code != 0 {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
	harness.Eventually(t, "the converter is missed", func(ctx context.Context) error {
		if _, err := readIn(ctx, e, harness.Present, versioned(harness.Present, names[0])); err == nil {
			return errors.New("a policy is still converted")
		}
		return nil
	})

	cmd := exec.CommandContext(t.Context(), "bash", "-euc", step[1])
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Kubeconfig(), "PATH="+filepath.Dir(e.Assets().Kubectl())+":"+
		os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
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
