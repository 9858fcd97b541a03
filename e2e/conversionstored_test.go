package e2e

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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
)

const policyDefinition = "operatorpolicies.policy.open-cluster-management.io"

// storeIn makes the API server store policies in a version, and waits until it does.
func (e *env) storeIn(t *testing.T, version string) {
	t.Helper()
	if err := e.SetStorageVersion(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	probe := versioned(present, "probe")
	t.Cleanup(func() { e.remove(t, probe) })
	eventually(t, "policies are stored in "+version, func(ctx context.Context) error {
		defer e.remove(t, probe)
		if _, err := e.created(ctx, probe); err != nil {
			return err
		}
		stored, err := e.StoredPolicies(ctx)
		if err != nil {
			return err
		}
		if got, want := stored[probe.GetNamespace()+"/"+probe.GetName()], policies.Group+"/"+version; got != want {
			return fmt.Errorf("the probe is stored in %s", got)
		}
		return nil
	})
}

// storedIn counts the policies that are stored in a version, by etcd.
func (e *env) storedIn(t *testing.T, version string) int {
	t.Helper()
	stored, err := e.StoredPolicies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for apiVersion := range maps.Values(stored) {
		if apiVersion == policies.Group+"/"+version {
			n++
		}
	}
	return n
}

// wantStoredVersions checks what the API server says of the versions in which policies may be stored.
func (e *env) wantStoredVersions(t *testing.T, want ...string) {
	t.Helper()
	crd, err := e.clients[cluster.Admin].Resource(definitions).Get(t.Context(), policyDefinition, metav1.GetOptions{})
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
func (e *env) migrate(t *testing.T, args ...string) (out string, exitCode int) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), e.Opgate(), append([]string{"migrate", "--kubeconfig", e.Kubeconfig()}, args...)...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// TestConversionAtStart starts the gate where policies are stored in v1beta1, of which some would not be admitted any more: it
// has to convert them itself before it can read them, and it has to read them before it is ready.
func TestConversionAtStart(t *testing.T) {
	t.Parallel()
	e := &loopEnv{env: startWithoutGate(t)}
	kubectl(t, e.Cluster, cluster.Admin, packageManifests, "create", "-f", "-")
	e.connect(t)
	e.storeIn(t, earlier)

	// Before there was an admission.
	stored := map[string]struct {
		spec     map[string]any
		explains string
	}{
		"contradiction": {spec: map[string]any{"upgradeApproval": "Automatic", "subscription": map[string]any{"installPlanApproval": "Manual"}},
			explains: "remove it; spec.upgradeApproval: Automatic says already what becomes of upgrades"},
		"neither": {spec: map[string]any{"upgradeApproval": nil}, explains: "spec.upgradeApproval: Required value"},
		"unknown": {spec: map[string]any{"verions": []any{allowedCSV}, "extra": map[string]any{"a": []any{float64(1), "Ω"}}, "upgradeApproval": nil, "subscription": map[string]any{"installPlanApproval": "Automatic"}},
			explains: `unknown field "spec.verions"; correct it or remove it`},
		"good": {spec: map[string]any{"upgradeApproval": nil, "subscription": map[string]any{"installPlanApproval": "Automatic"}}},
	}
	written := map[string]*unstructured.Unstructured{}
	for name, s := range stored {
		p := versioned(earlier, name)
		p.Object = merged(p.Object, map[string]any{"spec": s.spec}).(map[string]any)
		p.Object = merged(p.Object, spec("remediationAction", "enforce")).(map[string]any)
		if _, err := e.created(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		status := []byte(`{"status":{"installedVersion":"` + forbiddenCSV + `"}}`)
		if _, err := e.sendPolicy(t.Context(), request{method: http.MethodPatch, path: pathOf(policiesIn(earlier), p.GetNamespace(), name, "status"),
			contentType: "application/merge-patch+json", body: status}, nil); err != nil {
			t.Fatal(err)
		}
		written[name] = e.read(t, earlier, p)
		e.needNamespace(t, name, true)
		e.propose(t, name, "install-1", allowedVersion)
	}
	if err := e.SetStorageVersion(t.Context(), present); err != nil {
		t.Fatal(err)
	}

	// Nobody converts until the gate does.
	nobody := "https://127.0.0.1:1/convert"
	if err := e.SetConversion(t.Context(), apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &nobody}, ConversionReviewVersions: []string{"v1"}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "policies cannot be read", func(ctx context.Context) error {
		if _, err := e.readIn(ctx, present, versioned(present, "good")); err == nil {
			return errors.New("they can")
		}
		return nil
	})
	if n := e.storedIn(t, earlier); n != len(stored) {
		t.Fatalf("%d policies are stored in v1beta1, want %d", n, len(stored))
	}
	var err error
	if e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Unready: true}); err != nil {
		t.Fatal(err)
	}
	if err := e.gate.WaitForReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Not even those that would be refused today are in the way of a migration.
	if out, code := e.migrate(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if n := e.storedIn(t, earlier); n != 0 {
		t.Errorf("%d policies are stored in v1beta1", n)
	}
	e.wantStoredVersions(t, present)
	e.restart(t, cluster.GateOptions{Loop: true})

	for name, s := range stored {
		t.Run(name, func(t *testing.T) {
			if s.explains == "" {
				e.waitApproved(t, name, "install-1")
				if upgrade, install := approvalForms(e.read(t, present, written[name])); upgrade != "Automatic" || install != "" {
					t.Errorf("v1beta2 has upgradeApproval %q and installPlanApproval %q", upgrade, install)
				}
			} else {
				eventually(t, "status", func(context.Context) error {
					op, err := e.stateOf(t.Context(), name)
					if err != nil {
						return err
					}
					if said := conditions(op); op.Status.Compliant != "NonCompliant" || !strings.Contains(said, s.explains) {
						return fmt.Errorf("it is %q and says\n%s", op.Status.Compliant, said)
					}
					return nil
				})
				refused(t, e.Cluster, cluster.Admin, "", []string{"patch", "installplan", "-n", name, "install-1", "--type=merge", "--patch", `{"spec":{"approved":true}}`}, deniedBy)
				e.wantApproved(t, name, "install-1", false)
			}
			// What was written is still there as it was written.
			now := e.read(t, earlier, written[name])
			if diff := cmp.Diff(written[name].Object["spec"], now.Object["spec"]); diff != "" {
				t.Errorf("the spec changed (-was +is):\n%s", diff)
			}
			if diff := cmp.Diff(written[name].GetAnnotations(), now.GetAnnotations()); diff != "" {
				t.Errorf("annotations changed (-was +is):\n%s", diff)
			}
			for _, version := range []string{earlier, present} {
				list := kubectl(t, e.Cluster, cluster.Admin, "", "get", policies.Resource+"."+version+"."+policies.Group, "-A", "-o", "name")
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
	const count = 250
	e.storeIn(t, earlier)
	var all []*unstructured.Unstructured
	for i := range count {
		all = append(all, versioned([]string{earlier, present}[i%2], fmt.Sprintf("migrate-%03d", i)))
	}
	t.Cleanup(func() { e.emptied(t) })
	atOnce(t, writers, all, func(ctx context.Context, p *unstructured.Unstructured) error {
		_, err := e.created(ctx, p)
		return err
	})
	e.storeIn(t, present)
	if n := e.storedIn(t, earlier); n != count {
		t.Fatalf("%d policies are stored in v1beta1, want %d", n, count)
	}
	untouched := func(t *testing.T) {
		t.Helper()
		if n := e.storedIn(t, earlier); n != count {
			t.Errorf("%d policies are stored in v1beta1, want all of them still", n)
		}
		e.wantStoredVersions(t, earlier, present)
	}

	t.Run("dry run", func(t *testing.T) {
		out, code := e.migrate(t, "--dry-run")
		if code != 0 || strings.Count(out, "would write policies/migrate-") != count || !strings.Contains(out, fmt.Sprintf("%d OperatorPolicies would be written", count)) {
			t.Errorf("exit code %d\n%s", code, out)
		}
		untouched(t)
	})

	t.Run("nobody converts", func(t *testing.T) {
		if _, err := e.gate.Stop(); err != nil {
			t.Fatal(err)
		}
		defer e.restart(t, cluster.GateOptions{})
		out, code := e.migrate(t)
		if code != 1 || !strings.Contains(out, "is the conversion webhook running?") {
			t.Errorf("exit code %d\n%.2000s", code, out)
		}
		untouched(t)
	})

	t.Run("interrupted", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), e.Opgate(), "migrate", "--kubeconfig", e.Kubeconfig())
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
		if n := e.storedIn(t, earlier); n == 0 || n > count-100 {
			t.Errorf("%d policies are stored in v1beta1 after 100 of %d were written", n, count)
		}
		e.wantStoredVersions(t, earlier, present)
	})

	t.Run("to the end", func(t *testing.T) {
		left := e.storedIn(t, earlier)
		before := e.list(t, earlier)
		out, code := e.migrate(t)
		want := fmt.Sprintf("%d OperatorPolicies: %d rewritten, %d were stored in v1beta2 already", count, left, count-left)
		if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, fmt.Sprintf("\n200 of %d OperatorPolicies\n", count)) {
			t.Errorf("exit code %d, want %q\n%s", code, want, out)
		}
		if n := e.storedIn(t, earlier); n != 0 {
			t.Errorf("%d policies are stored in v1beta1", n)
		}
		e.wantStoredVersions(t, present)
		if diff := cmp.Diff(before, e.list(t, earlier)); diff != "" {
			t.Errorf("policies changed (-before +after):\n%s", diff)
		}
	})

	t.Run("again", func(t *testing.T) {
		out, code := e.migrate(t)
		if code != 0 || out != "nothing to do: every OperatorPolicy is stored in v1beta2\n" {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
}

// list gives the specs of all policies in a version.
func (e *env) list(t *testing.T, version string) map[string]any {
	t.Helper()
	list, err := e.clients[cluster.Admin].Resource(policiesIn(version)).List(t.Context(), metav1.ListOptions{})
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
func (e *env) emptied(t *testing.T) {
	t.Helper()
	err := e.clients[cluster.Admin].Resource(policies).Namespace(cluster.PolicyNamespace).DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	}
}

// TestConversionEmergency runs the command that docs/conversion.md has for the case that the converter is gone for good.
func TestConversionEmergency(t *testing.T) {
	text, err := os.ReadFile("../docs/conversion.md")
	if err != nil {
		t.Fatal(err)
	}
	step := regexp.MustCompile("(?s)```shell\n(.*?)```").FindStringSubmatch(string(text))
	if step == nil {
		t.Fatal("docs/conversion.md has no command")
	}
	e := shared(t)
	e.storeIn(t, earlier)
	var names []string
	for _, version := range []string{earlier, present} {
		p := versioned(version, "emergency-"+version)
		if _, err := e.created(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		names = append(names, p.GetName())
	}
	e.storeIn(t, present)
	if _, err := e.gate.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.restart(t, cluster.GateOptions{})
		e.emptied(t)
		if out, code := e.migrate(t); code != 0 {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
	eventually(t, "the converter is missed", func(ctx context.Context) error {
		if _, err := e.readIn(ctx, present, versioned(present, names[0])); err == nil {
			return errors.New("a policy is still converted")
		}
		return nil
	})

	cmd := exec.CommandContext(t.Context(), "bash", "-euc", step[1])
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Kubeconfig(), "PATH="+filepath.Dir(e.Assets().Kubectl())+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, version := range []string{earlier, present} {
		in := policies.Resource + "." + version + "." + policies.Group
		eventually(t, "everything is listed in "+version, func(ctx context.Context) error {
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
		kubectl(t, e.Cluster, cluster.Admin, "", "delete", in, "-n", cluster.PolicyNamespace, names[i])
	}
}
