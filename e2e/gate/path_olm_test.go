package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// beginning is the channel in which a package has nothing but the version that is installed first.
const beginning = "beginning"

// TestPathOLM: `opgate plan` names the versions that the real OLM installs one after the other, and none after them. Each
// package has a channel of its own making, with replaces, skips, skipRange, deprecations and dead ends; TestAsOLM of
// cmd/opgate/plan compares hundreds with OLM's resolver alone.
func TestPathOLM(t *testing.T) {
	t.Parallel()
	count := 10
	if *harness.Long {
		count = 100
	}
	e := harness.VacantOLM(t, constraintPackages())
	var packages []olm.Package
	for seed := range count {
		packages = append(packages, withPath(rand.New(rand.NewPCG(uint64(seed), 2)), fmt.Sprintf("path-%d", seed)))
	}
	const catalog = "paths"
	if _, err := e.OLM.AddCatalog(t.Context(), catalog, packages...); err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(*testing.T){}
	for _, p := range packages {
		tests[p.Name] = func(t *testing.T) { takePath(t, e, catalog, p.Name) }
	}
	harness.Together(t, tests)
}

// takePath installs the first version of a package, moves it to the channel with the path, and lets OLM upgrade.
func takePath(t *testing.T, e *harness.OLMEnv, catalog, pkg string) {
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	e.CreateAs(t, cluster.Admin, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %[1]s, namespace: %[2]s}
spec: {name: %[1]s, channel: %[3]s, source: %[4]s, sourceNamespace: %[5]s, installPlanApproval: Automatic}
`, pkg, namespace, beginning, catalog, cluster.OLMNamespace))
	installed := func(ctx context.Context) (string, error) {
		sub, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(namespace).Get(ctx, pkg, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		csv, _, err := unstructured.NestedString(sub.Object, "status", "installedCSV")
		return csv, err
	}
	e.Eventually(t, "install "+pkg, func(ctx context.Context) error {
		if csv, err := installed(ctx); err != nil || csv == "" {
			return cmp.Or(err, fmt.Errorf("nothing is installed"))
		}
		return nil
	})
	// OLM deletes all but the last plans.
	planned := map[int64]string{}
	note := func(ctx context.Context) error {
		list, err := e.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, plan := range list.Items {
			generation, _, _ := unstructured.NestedInt64(plan.Object, "spec", "generation")
			names, _, _ := unstructured.NestedStringSlice(plan.Object, "spec", "clusterServiceVersionNames") // OLM sets both
			planned[generation] = strings.Join(names, " ")
		}
		return nil
	}
	want, end := pathOf(t, e, namespace, pkg, "--channel", olm.Channel)
	patch := []byte(`{"spec":{"channel":"` + olm.Channel + `"}}`)
	if _, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(namespace).Patch(t.Context(), pkg,
		types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "take "+pkg+" through "+strings.Join(want, ", "), func(ctx context.Context) error {
		if err := note(ctx); err != nil {
			return err
		}
		if csv, err := installed(ctx); err != nil || len(want) > 0 && csv != want[len(want)-1] {
			return cmp.Or(err, fmt.Errorf("%s is installed", csv))
		}
		return nil
	})
	harness.Unchanged(t, "what OLM plans for "+pkg, 5*time.Second, func() string {
		if err := note(t.Context()); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(planned)
	})
	var got []string
	for _, generation := range slices.Sorted(maps.Keys(planned)) {
		got = append(got, planned[generation])
	}
	if got = slices.Compact(got)[1:]; !slices.Equal(got, want) { // OLM may make a plan twice
		t.Errorf("OLM installs %v, opgate plan: %v, and then: %s", got, want, end)
	}
	if more, end := pathOf(t, e, namespace, pkg); len(more) > 0 {
		t.Errorf("after the path opgate plan still has %v: %s", more, end)
	}
}

// pathOf returns the steps that opgate plan prints, and why there is no further one.
func pathOf(t *testing.T, e *harness.OLMEnv, namespace, pkg string, args ...string) (steps []string, end string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), harness.Opgate(t, e.Cluster), append([]string{"plan", pkg, "-n", namespace,
		"--kubeconfig", e.Kubeconfig(), "-o", "json"}, args...)...).Output()
	if err != nil {
		stderr := ""
		if failed, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output wraps nothing
			stderr = string(failed.Stderr)
		}
		t.Fatalf("opgate plan %s: %v: %s", pkg, err, stderr)
	}
	var path struct {
		Steps []struct{ CSV string }
		End   string
	}
	if err := json.Unmarshal(out, &path); err != nil {
		t.Fatal(err)
	}
	for _, s := range path.Steps {
		steps = append(steps, s.CSV)
	}
	return steps, path.End
}

// withPath returns a package with a random channel that opm serves: one head, from which the chain of what each version
// replaces has all versions, but for those that another one skips.
func withPath(r *rand.Rand, name string) olm.Package {
	p := olm.Package{Name: name, CSV: name, Edges: map[string]map[string]olm.Edges{olm.Channel: {}},
		Channels: map[string][]string{}, Deprecated: olm.Deprecations{Versions: map[string]string{}}}
	for minor := range 4 + r.IntN(5) {
		p.Versions = append(p.Versions, fmt.Sprintf("1.%d.0", minor))
	}
	from := p.Versions[r.IntN(2)]
	p.Channels[beginning] = []string{from}
	var chain, left []string
	edges := p.Edges[olm.Channel]
	last := len(p.Versions) - 1
	for i, v := range p.Versions {
		switch {
		case v == from && r.IntN(5) == 0:
			continue // which the channel does not have
		case i < last && r.IntN(3) == 0: // beside the chain
			left = append(left, v)
			if i > 0 {
				edges[v] = olm.Edges{Replaces: p.Versions[r.IntN(i)]}
			} else {
				edges[v] = olm.Edges{}
			}
		default:
			of := olm.Edges{Skips: left}
			if left = nil; len(chain) > 0 {
				of.Replaces = chain[len(chain)-1]
			}
			if i > 0 && r.IntN(4) == 0 {
				of.SkipRange = fmt.Sprintf(">=%s <%s", p.Versions[r.IntN(i)], v)
			}
			edges[v], chain = of, append(chain, v)
		}
		p.Channels[olm.Channel] = append(p.Channels[olm.Channel], v)
		if r.IntN(4) == 0 {
			p.Deprecated.Versions[v] = "no more"
		}
	}
	return p
}
