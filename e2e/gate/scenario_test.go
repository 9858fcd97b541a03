package gate

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/rules"
)

// TestScenarios plays every file in scenarios with kubectl on a real API server. Package admission plays the same ones without
// a server, and the two must agree.
func TestScenarios(t *testing.T) {
	e := harness.Shared(t)
	scenarios, err := scenario.Load("../scenarios", scenario.Versions{
		Kubernetes: kubernetesVersion(t, e),
		OpenShift:  harness.OpenShiftVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Sync(t)
	for _, s := range scenarios {
		if !s.ForHandlersOnly() && (!*withBackstop || backstopApplies(s)) {
			t.Run(s.Name, func(t *testing.T) { play(t, e, s) })
		}
	}
}

// kubernetesVersion is that of the API server, without the v.
func kubernetesVersion(t *testing.T, e *harness.Env) string {
	t.Helper()
	var answered struct {
		GitVersion string `json:"gitVersion"`
	}
	answer := e.Clients[cluster.Admin].Must(t, harness.Request{Method: http.MethodGet, Path: "/version"})
	if err := json.Unmarshal(answer.Body, &answered); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(answered.GitVersion, "v")
}

// notRead is in the refusal of what is judged by the contents of a plan until these are read.
const notRead = "its contents are not read yet"

func play(t *testing.T, e *harness.Env, s *scenario.Scenario) {
	existing := slices.Concat(s.Cluster, s.Policies)
	objects := slices.Clone(existing)
	target := targetOf(t, s)
	if !slices.ContainsFunc(objects, func(u *unstructured.Unstructured) bool { return same(u, target) }) {
		objects = append(objects, target)
	}
	isNamespace := func(u *unstructured.Unstructured) bool { return u.GetKind() == "Namespace" }
	e.EnsureNamespaces(t, objects)
	for _, u := range existing {
		if isNamespace(u) {
			e.Label(t, u)
		}
	}
	existing, objects = slices.DeleteFunc(existing, isNamespace), slices.DeleteFunc(objects, isNamespace)
	t.Cleanup(func() {
		// Without policies first: then the gate minds nothing of what follows.
		slices.Reverse(objects)
		slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return last(a) - last(b) })
		for _, u := range objects {
			e.Remove(t, u)
		}
		e.Sync(t)
	})
	if *withBackstop {
		holdByServer(t, e)
	}
	for _, u := range existing {
		if _, err := e.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	e.Sync(t)
	if *withBackstop {
		holdByServer(t, e, s.Policies...)
	}

	before := e.Stored(t, target)
	stdin, args := command(t, s)
	result, err := e.Kubectl(t.Context(), cluster.User(s.User), stdin, args...)
	for range 100 { // contents of plans are read in the background
		if err != nil || strings.Contains(s.Message, notRead) || !strings.Contains(result.Stderr, notRead) {
			break
		}
		e.Sync(t)
		result, err = e.Kubectl(t.Context(), cluster.User(s.User), stdin, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantAllowed := s.Decision == rules.Allow.String()
	if allowed := result.ExitCode == 0; allowed != wantAllowed {
		t.Errorf("kubectl ended with exit code %d, want %s\n%s", result.ExitCode, s.Decision, result.Stderr)
	}
	message, warnings := said(result.Stderr, target)
	if *withBackstop { // it answers before the webhooks, with its part of the reasons
		t.Logf("held by the API server: %t", strings.Contains(result.Stderr, heldByServer))
		message, warnings = s.Message, s.Warnings
	}
	// Why template text does not resolve is known only where there is a cluster to ask; it comes after the rest.
	why := slices.Contains(s.Rules, rules.RulePolicyUnreadable) && strings.HasPrefix(message, s.Message+"; ")
	if message != s.Message && !why {
		t.Errorf("refusal is\n%s\nwant\n%s\nall that kubectl wrote is\n%s", message, s.Message, result.Stderr)
	}
	if !slices.Equal(warnings, s.Warnings) {
		t.Errorf("warnings are\n%s\nwant\n%s", strings.Join(warnings, "\n"), strings.Join(s.Warnings, "\n"))
	}
	after := e.Stored(t, target)
	if !wantAllowed && !reflect.DeepEqual(before, after) {
		t.Errorf("a refused write changed the object from\n%v\nto\n%v", before, after)
	}
	if s.Stored != nil {
		checkStored(t, e, target, s.Stored)
	}
}

// checkStored wants that a merge patch changes nothing of an object.
func checkStored(t *testing.T, e *harness.Env, target *unstructured.Unstructured, patch []byte) {
	t.Helper()
	args := slices.Concat([]string{"get", strings.ToLower(target.GetKind()), target.GetName(), "-o", "json"}, in(target.GetNamespace()))
	stdout := harness.Kubectl(t, e.Cluster, cluster.Admin, "", args...)
	var have, want map[string]any
	if err := json.Unmarshal([]byte(stdout), &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(patch, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(harness.MergePatch(have, want), any(have)) {
		t.Errorf("stored is\n%s\nwant it to have\n%s", stdout, patch)
	}
}

// command is the kubectl command of a scenario.
func command(t *testing.T, s *scenario.Scenario) (stdin string, args []string) {
	t.Helper()
	if s.Verb == "patch" {
		return "", slices.Concat([]string{"patch", s.Kind, s.Object, "--type=merge", "--patch", string(s.Patch)}, in(s.Namespace))
	}
	object, err := json.Marshal(s.Write.Object)
	if err != nil {
		t.Fatal(err)
	}
	switch s.Verb {
	case "create":
		return string(object), []string{"create", "-f", "-"}
	case "replace":
		return string(object), []string{"replace", "-f", "-"}
	case "replace-status":
		return string(object), []string{"replace", "--subresource=status", "-f", "-"}
	}
	t.Fatalf("no kubectl command for %q", s.Verb)
	return "", nil
}

// in are kubectl's flags for a namespace, none for an object that belongs to none.
func in(namespace string) []string {
	if namespace == "" {
		return nil
	}
	return []string{"-n", namespace}
}

// said splits what kubectl wrote to stderr into the gate's refusal and its warnings, sorted. The API server warns as well.
func said(stderr string, target *unstructured.Unstructured) (message string, warnings []string) {
	if _, refusal, found := strings.Cut(stderr, harness.DeniedBy); found {
		message = strings.TrimSpace(refusal)
	}
	for line := range strings.Lines(stderr) {
		text, isWarning := strings.CutPrefix(strings.TrimSpace(line), "Warning: ")
		if isWarning && strings.HasPrefix(text, strings.ToLower(target.GetKind())+" ") {
			warnings = append(warnings, text)
		}
	}
	slices.Sort(warnings)
	return message, warnings
}

// targetOf is the object that a scenario writes. For a patch it has no more than a name.
func targetOf(t *testing.T, s *scenario.Scenario) *unstructured.Unstructured {
	t.Helper()
	if s.Write != nil {
		return s.Write
	}
	for kind := range harness.Resources {
		if strings.EqualFold(kind, s.Kind) {
			target := &unstructured.Unstructured{}
			target.SetKind(kind)
			target.SetNamespace(s.Namespace)
			target.SetName(s.Object)
			return target
		}
	}
	t.Fatalf("kind %q is not in resources", s.Kind)
	return nil
}

func same(a, b *unstructured.Unstructured) bool {
	return a.GetKind() == b.GetKind() && a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// last is 0 for Constraints and policies, 1 for the rest.
func last(u *unstructured.Unstructured) int {
	if kind := u.GetKind(); kind == "Constraint" || kind == "OperatorPolicy" {
		return 0
	}
	return 1
}
