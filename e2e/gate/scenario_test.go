package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
)

// TestScenarios plays files in scenarios with kubectl on a real API server, as the chart ships Opgate: one for each way
// to write each resource, since the API server calls the same webhook whatever rule speaks. Packages admission and
// rules/backstop play all of them without a server, and must agree.
func TestScenarios(t *testing.T) {
	e := harness.Shared(t)
	scenarios := scenariotest.Load(t, "../scenarios", scenario.Versions{
		Kubernetes: kubernetesVersion(t, e),
		OpenShift:  harness.OpenShiftVersion,
	})
	if err := e.InstallOLMv1(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !*harness.Long {
		playAll(t, e, oneOfEach(scenarios), withBackstop)
		return
	}
	playAll(t, e, scenarios, withBackstop)
	e.Restart(t, cluster.GateOptions{WithoutBackstop: true})
	t.Run("without the backstop", func(t *testing.T) {
		playAll(t, e, scenarios, func(s *scenario.Scenario) (string, []string) { return s.Message, s.Warnings })
	})
}

// oneOfEach returns the first scenario for each way to write a resource: one that a webhook refuses, if there is one, or
// that the API server does.
func oneOfEach(all []*scenario.Scenario) (chosen []*scenario.Scenario) {
	seen := map[string]bool{}
	for _, refuses := range []func(*scenario.Scenario) bool{
		func(s *scenario.Scenario) bool { return s.Message != "" && s.Backstop == "" },
		func(s *scenario.Scenario) bool { return s.Backstop != "" },
		func(*scenario.Scenario) bool { return true },
	} {
		for _, s := range all {
			if way := scenariotest.Way(s); s.Catalog == nil && refuses(s) && !seen[way] {
				seen[way], chosen = true, append(chosen, s)
			}
		}
	}
	return chosen
}

// playAll plays scenarios, each in namespaces of its own. What they depend on is written for all at once, if it is in
// these namespaces.
func playAll(
	t *testing.T, e *harness.Env, scenarios []*scenario.Scenario, want func(*scenario.Scenario) (string, []string),
) {
	run := rand.String(4)
	var together, others []*scenario.Scenario
	for i, s := range scenarios {
		if s.Catalog != nil { // a bare API server serves no PackageManifests
			continue
		}
		apart := scenariotest.Apart(t, s, fmt.Sprintf("-%s%d", run, i))
		switch {
		// the digest of a change may depend on the name of the namespace
		case strings.Contains(s.Message, "accept sha256:"):
			others = append(others, s)
		case isApart(s):
			together = append(together, apart)
		default:
			others = append(others, apart)
		}
	}
	for _, s := range others { // first, since some see what is installed in the whole cluster
		t.Run(s.Name, func(t *testing.T) {
			setUp(t, e, []*scenario.Scenario{s})
			play(t, e, s, want)
		})
	}
	setUp(t, e, together)
	for _, s := range together {
		t.Run(s.Name, func(t *testing.T) { play(t, e, s, want) })
	}
}

// withBackstop is the answer where the API server holds the policies by itself as well. It evaluates admission policies
// before it calls validating webhooks, and a refusal is the end.
func withBackstop(s *scenario.Scenario) (message string, warnings []string) {
	switch s.Backstop {
	case "":
		return s.Message, s.Warnings
	case scenario.StoresManual:
		return s.Message, slices.DeleteFunc(slices.Clone(s.Warnings), func(w string) bool {
			return strings.Contains(w, "("+string(rules.RuleSubscriptionApproval)+")")
		})
	}
	if strings.Contains(s.Backstop, "(deletion/") {
		return s.Backstop + "; " + scenariotest.HeldByDeletion, nil
	}
	return s.Backstop + "; " + scenariotest.HeldByBackstop, nil
}

// isApart reports whether all that a scenario depends on is in namespaces of its own, so that Apart separates it from
// others.
func isApart(s *scenario.Scenario) bool {
	objects := slices.Concat(s.Cluster, s.Policies)
	if s.Write != nil {
		objects = append(objects, s.Write)
	}
	return !slices.ContainsFunc(objects, func(u *unstructured.Unstructured) bool {
		selectsAll := false
		if u.GetKind() == "OperatorGroup" {
			targets, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "targetNamespaces")
			selectsAll = len(targets) == 0
		}
		return u.GetNamespace() == "" || slices.Contains(scenariotest.Shared, u.GetNamespace()) || selectsAll
	})
}

// setUp writes what exists before scenarios, and removes it after the test with what they write.
func setUp(t *testing.T, e *harness.Env, scenarios []*scenario.Scenario) {
	t.Helper()
	var before, policies, written []*unstructured.Unstructured
	for _, s := range scenarios {
		before, policies, written = append(before, s.Cluster...), append(policies, s.Policies...),
			append(written, targetOf(t, s))
	}
	for _, u := range slices.Clone(before) { // what OLM makes of it
		service := harness.CatalogService(u.GetNamespace(), u.GetName())
		if u.GetKind() == "CatalogSource" && !slices.ContainsFunc(before, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Service" && o.GetNamespace() == service.GetNamespace() && o.GetName() == service.GetName()
		}) {
			before = append(before, service)
		}
	}
	existing := slices.Concat(before, policies)
	e.EnsureNamespaces(t, slices.Concat(existing, written))
	isNamespace := func(u *unstructured.Unstructured) bool { return u.GetKind() == "Namespace" }
	for _, u := range existing {
		if isNamespace(u) {
			e.Label(t, u)
		}
	}
	existing = slices.DeleteFunc(existing, isNamespace)
	t.Cleanup(func() {
		// Without policies first: then the gate minds nothing of what follows.
		objects := slices.DeleteFunc(slices.Concat(written, existing), isNamespace)
		slices.Reverse(objects)
		slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return last(a) - last(b) })
		for _, u := range objects {
			e.Remove(t, u)
		}
		e.SyncGate(t)
	})
	for _, u := range existing {
		if _, err := e.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if slices.ContainsFunc(policies, heldByAPIServer) {
		e.Sync(t)
	} else { // the API server itself refuses nothing
		e.SyncGate(t)
	}
}

// heldByAPIServer reports whether the API server itself may refuse something because of an object.
func heldByAPIServer(u *unstructured.Unstructured) bool {
	_, protects, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "deletion")
	return u.GetKind() == "OperatorPolicy" || protects
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

func play(t *testing.T, e *harness.Env, s *scenario.Scenario, want func(*scenario.Scenario) (string, []string)) {
	target := targetOf(t, s)
	wantMessage, wantWarnings := want(s)
	before := e.Stored(t, target)
	stdin, args := command(t, s)
	if strings.HasSuffix(wantMessage, scenariotest.HeldByDeletion) { // what is deleted too early does not come back
		harness.Eventually(t, "the API server refuses deletions", func(ctx context.Context) error {
			result, err := e.Kubectl(ctx, cluster.User(s.User), "", append(args, "--dry-run=server")...)
			if err == nil && result.ExitCode == 0 {
				err = errors.New("it is not refused")
			}
			return err
		})
	}
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
	wantAllowed := wantMessage == ""
	switch allowed := result.ExitCode == 0; {
	case allowed && !wantAllowed:
		t.Errorf(harness.Final+"it was admitted, want %s", s.Decision)
	case !allowed && wantAllowed:
		t.Errorf("kubectl ended with exit code %d, want %s\n%s", result.ExitCode, s.Decision, result.Stderr)
	}
	message, warnings := said(result.Stderr, target)
	if before != nil {
		message = strings.ReplaceAll(message, string(before.GetUID()), scenariotest.UIDPlaceholder)
	}
	// Why template text does not resolve is known only where there is a cluster to ask; it comes after the rest.
	why := slices.Contains(s.Rules, bundle.RulePolicyUnreadable) && strings.HasPrefix(message, wantMessage+"; ")
	if message != wantMessage && !why {
		t.Errorf("refusal is\n%s\nwant\n%s\nall that kubectl wrote is\n%s", message, wantMessage, result.Stderr)
	}
	if !slices.Equal(warnings, wantWarnings) {
		t.Errorf("warnings are\n%s\nwant\n%s", strings.Join(warnings, "\n"), strings.Join(wantWarnings, "\n"))
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
	stdout := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", strings.ToLower(target.GetKind()), target.GetName(),
		"-o", "json", "-n", target.GetNamespace())
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

// command is the kubectl command of a scenario. For an object without a namespace kubectl ignores -n.
func command(t *testing.T, s *scenario.Scenario) (stdin string, args []string) {
	t.Helper()
	switch s.Verb {
	case "delete":
		return "", []string{"delete", s.Kind, s.Object, "--wait=false", "-n", s.Namespace}
	case "patch":
		return "", []string{"patch", s.Kind, s.Object, "--type=merge", "--patch", string(s.Patch), "-n", s.Namespace}
	case "replace-status":
		return harness.AsJSON(t, s.Write), []string{"replace", "--subresource=status", "-f", "-"}
	}
	return harness.AsJSON(t, s.Write), []string{s.Verb, "-f", "-"}
}

// said splits what kubectl wrote to stderr into the refusal of the gate or of the backstop, and the gate's warnings,
// sorted. The API server warns as well.
func said(stderr string, target *unstructured.Unstructured) (message string, warnings []string) {
	for _, prefix := range []string{harness.DeniedBy, harness.HeldBy, harness.HeldByDeletion} {
		if _, refusal, found := strings.Cut(stderr, prefix); found {
			message = strings.TrimSpace(refusal)
		}
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

// last is 0 for Constraints and policies, 1 for the rest.
func last(u *unstructured.Unstructured) int {
	if kind := u.GetKind(); kind == "Constraint" || kind == "OperatorPolicy" {
		return 0
	}
	return 1
}
