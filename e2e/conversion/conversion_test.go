package conversion

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const (
	conversionAnnotation = "opgate.io/conversion"
)

// read reads a policy in a version.
func read(t *testing.T, e *harness.Env, version string, p *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := readIn(t.Context(), e, version, p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func readIn(
	ctx context.Context, e *harness.Env, version string, p *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	return sendPolicy(ctx, e, harness.Request{
		Method: http.MethodGet,
		Path:   harness.PathOf(harness.OperatorPoliciesIn(version), p.GetNamespace(), p.GetName(), ""),
	}, nil)
}

// replaced writes a policy that was read back, in the version that it was read in.
func replaced(ctx context.Context, e *harness.Env, p *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	path := harness.PathOf(harness.OperatorPoliciesIn(p.GroupVersionKind().Version), p.GetNamespace(), p.GetName(), "")
	return sendPolicy(ctx, e, harness.Request{Method: http.MethodPut, Path: path, ContentType: "application/json"}, p)
}

// created creates a policy in its own version.
func created(ctx context.Context, e *harness.Env, p *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	path := harness.PathOf(harness.OperatorPoliciesIn(p.GroupVersionKind().Version), p.GetNamespace(), "", "")
	return sendPolicy(ctx, e, harness.Request{Method: http.MethodPost, Path: path, ContentType: "application/json"}, p)
}

func sendPolicy(
	ctx context.Context, e *harness.Env, r harness.Request, p *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	if p != nil {
		r.Body = []byte(harness.Normal(p.Object))
	}
	got, err := e.Clients[cluster.Admin].Send(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case !got.OK():
		return nil, fmt.Errorf("%s %s: %s", r.Method, r.Path, got)
	}
	return got.Object(), nil
}

// approvalForms are what a policy shows of what becomes of upgrades.
func approvalForms(p *unstructured.Unstructured) (upgradeApproval, installPlanApproval string) {
	upgradeApproval, _, _ = unstructured.NestedString(p.Object, "spec", "upgradeApproval")
	installPlanApproval, _, _ = unstructured.NestedString(p.Object, "spec", "subscription", "installPlanApproval")
	return upgradeApproval, installPlanApproval
}

// originals are the OperatorPolicies of the designs in the version that they have there.
func originals(t *testing.T) map[string]string {
	t.Helper()
	documents := map[string]string{}
	for _, pattern := range []string{"v1beta1/testdata/seed-*.yaml", "v1beta2/testdata/seed-000-*.yaml"} {
		paths, err := filepath.Glob("../../api/policy/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if name := filepath.Base(path); documents[name] == "" { // one of v1beta1 has a copy in v1beta2
				documents[name] = string(text)
			}
		}
	}
	if len(documents) != 17 {
		t.Fatalf("there are %d documents, want 9 of the older dialect and 8 of the current one (R-CV-3)",
			len(documents))
	}
	return documents
}

// TestConversionDocuments applies every OperatorPolicy of the designs word for word but for its name, in its own
// version, and reads it in both.
func TestConversionDocuments(t *testing.T) {
	e := shared(t)
	var all strings.Builder
	documents := map[string]*unstructured.Unstructured{}
	for file, text := range originals(t) {
		name := strings.NewReplacer(".yaml", "", "_", "-").Replace(file)
		text = regexp.MustCompile(`(?m)^  name: .*$`).ReplaceAllLiteralString(text, "  name: "+name)
		written := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &written.Object); err != nil {
			t.Fatal(err)
		}
		written.SetNamespace(cluster.PolicyNamespace)
		t.Cleanup(func() { e.Remove(t, written) })
		documents[name] = written
		all.WriteString("\n---\n" + text)
	}
	apply := func() string {
		t.Helper()
		return harness.Kubectl(t, e.Cluster, cluster.Admin, all.String(), "apply", "-n", cluster.PolicyNamespace, "-f",
			"-")
	}
	apply()
	for name, written := range documents {
		t.Run(name, func(t *testing.T) { convertDocument(t, e, written) })
	}
	if out := apply(); strings.Count(out, " unchanged\n") != len(documents) {
		t.Errorf("the second apply says\n%s", out)
	}
}

// convertDocument reads a document that was applied, in both versions, and writes back what is shown.
func convertDocument(t *testing.T, e *harness.Env, written *unstructured.Unstructured) {
	own := written.GroupVersionKind().Version
	got := read(t, e, own, written)
	// All that the author wrote is stored as they wrote it, and in the form in which they wrote it.
	if diff := cmp.Diff(harness.MergePatch(got.Object, written.Object), any(got.Object)); diff != "" {
		t.Errorf("what was written is not what is read (-written +read):\n%s", diff)
	}
	upgrade, install := approvalForms(written)
	if u, i := approvalForms(got); u != upgrade || i != install {
		t.Errorf("read are upgradeApproval %q and installPlanApproval %q, written were %q and %q", u, i, upgrade,
			install)
	}
	if _, has := got.GetAnnotations()[conversionAnnotation]; own == harness.Earlier && has != (install != "") {
		t.Errorf("there is an annotation: %t, while installPlanApproval is %q", has, install)
	}

	wanted := upgrade
	if wanted == "" {
		wanted = map[string]string{"Automatic": "Automatic", "Manual": "None"}[install]
	}
	if u, i := approvalForms(read(t, e, harness.Present, written)); u != wanted || i != "" {
		t.Errorf("v1beta2 has upgradeApproval %q and installPlanApproval %q, want %q", u, i, wanted)
	}
	if own == harness.Present {
		shown := map[string]string{"Automatic": "Automatic", "None": "Manual"}[upgrade]
		if u, i := approvalForms(read(t, e, harness.Earlier, written)); u != upgrade || i != shown {
			t.Errorf("v1beta1 has upgradeApproval %q and installPlanApproval %q, want %q and %q", u, i, upgrade, shown)
		}
	}

	for _, version := range []string{harness.Earlier, harness.Present} {
		after, err := replaced(t.Context(), e, read(t, e, version, written))
		if err != nil {
			t.Errorf("what %s shows is not valid there: %v", version, err)
		} else if after.GetResourceVersion() != got.GetResourceVersion() {
			t.Errorf("writing back what %s shows changed the policy (-was +is):\n%s", version,
				cmp.Diff(got.Object, read(t, e, own, written).Object))
		}
	}
}

// versioned is a policy with the least spec, in a version. It governs a namespace of its name, which need not be there.
func versioned(version, name string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: policy.open-cluster-management.io/%[1]s
kind: OperatorPolicy
metadata: {name: %[2]s, namespace: %[3]s}
spec:
  complianceType: musthave
  subscription: {name: etcd, namespace: %[2]s}
  upgradeApproval: Automatic
`, version, name, cluster.PolicyNamespace)
}

// TestConversionEveryVersion writes in every version that is served what admission changes, warns of and refuses. It
// does so alike, and in the same words.
func TestConversionEveryVersion(t *testing.T) {
	e := shared(t)
	var versions []string
	for version := range e.Discover(t, harness.OperatorPolicies.Group, harness.OperatorPolicies.Resource) {
		versions = append(versions, version.Version)
	}
	slices.Sort(versions)
	if want := []string{harness.Earlier, harness.Present}; !slices.Equal(versions, want) {
		t.Fatalf("served are %v, want %v", versions, want)
	}
	approvals := func(upgrade, install any) map[string]any {
		return map[string]any{"spec": map[string]any{"upgradeApproval": upgrade,
			"subscription": map[string]any{"installPlanApproval": install}}}
	}
	annotated := func(content string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{conversionAnnotation: content}}}
	}
	for name, test := range map[string]struct {
		change map[string]any
		says   string
		warns  string // instead
		schema bool   // the schema of one version refuses it before admission is asked
	}{
		"an unknown field": {
			change: harness.Spec("verions", []any{harness.AllowedCSV}),
			says:   `unknown field "spec.verions"`,
		},
		"a contradiction": {
			change: approvals("Automatic", "Manual"),
			says:   `remove it; spec.upgradeApproval: Automatic says already what becomes of upgrades`,
		},
		"the other contradiction": {
			change: approvals("None", "Automatic"),
			says:   `remove it; spec.upgradeApproval: None says already what becomes of upgrades`,
		},
		"a value that fits neither": {
			change: approvals("Automatic", "Sometimes"),
			says:   `spec.subscription.installPlanApproval: Invalid value: "Sometimes"`,
		},
		"a value that fits neither, alone": {
			change: approvals(nil, "Sometimes"),
			says:   "spec.upgradeApproval: Required value",
			schema: true,
		},
		"neither form": {
			change: approvals(nil, nil),
			says:   "spec.upgradeApproval: Required value",
			schema: true,
		},
		"an entry that is no name": {
			change: harness.Spec("versions", []any{"etcd operator"}),
			says:   "spec.versions[0]: Invalid value",
		},
		"an annotation that is no JSON": {
			change: annotated("versionRange"),
			says:   "it has fields of v1beta2 that",
		},
		"an annotation with another field": {
			change: annotated(`{"channel":"alpha"}`),
			says:   "it has fields of v1beta2 that",
		},
		"an annotation of the wrong dialect": {
			change: annotated(`{"dialect":"upgradesApproval"}`),
			says:   "it has fields of v1beta2 that",
		},
		"a range that nothing satisfies": {
			change: harness.Spec("versionRange", ">2.0.0 <1.0.0"),
			says:   "spec.versionRange: Invalid value",
		},
		"an entry that looks like a version": {
			change: harness.Spec("versions", []any{"0.9.4"}),
			warns:  "looks like a version and not like the name of a ClusterServiceVersion",
		},
	} {
		t.Run(name, func(t *testing.T) {
			words := map[string]string{}
			for _, version := range versions {
				p := versioned(version, "every-"+utilrand.String(6))
				if _, err := created(t.Context(), e, p); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { e.Remove(t, p) })
				before := read(t, e, version, p)
				fresh := versioned(version, "fresh-"+p.GetName())
				bad := func(of *unstructured.Unstructured) []byte {
					return []byte(harness.Normal(harness.MergePatch(of.Object, test.change)))
				}
				path := harness.PathOf(harness.OperatorPoliciesIn(version), p.GetNamespace(), p.GetName(), "")
				for way, r := range map[string]harness.Request{
					"create": {
						Method:      http.MethodPost,
						Path:        harness.PathOf(harness.OperatorPoliciesIn(version), p.GetNamespace(), "", ""),
						ContentType: "application/json",
						Body:        bad(fresh),
					},
					"update": {
						Method:      http.MethodPut,
						Path:        path,
						ContentType: "application/json",
						Body:        bad(before),
					},
					"patch": {
						Method:      http.MethodPatch,
						Path:        path,
						ContentType: "application/merge-patch+json",
						Body:        []byte(harness.Normal(test.change)),
					},
					"server-side apply": {
						Method: http.MethodPatch,
						Path: harness.PathOf(harness.OperatorPoliciesIn(version), p.GetNamespace(),
							fresh.GetName(), ""),
						Query:       url.Values{"fieldManager": {"e2e"}},
						ContentType: "application/apply-patch+yaml",
						Body:        bad(fresh),
					},
				} {
					r.Query = harness.MergeQuery(r.Query, url.Values{"dryRun": {"All"}})
					got := e.Clients[cluster.Admin].Must(t, r)
					said := got.Message
					if test.warns != "" {
						said = strings.Join(got.Warnings, "\n")
					}
					if got.OK() != (test.warns != "") || !strings.Contains(said, test.says+test.warns) {
						t.Errorf("%s in %s: %s %q, want %q", way, version, got, got.Warnings, test.says+test.warns)
					}
					said = strings.NewReplacer("fresh-"+p.GetName(), "NAME", p.GetName(), "NAME").Replace(said)
					if _, known := words[way]; known && said != words[way] && !test.schema {
						t.Errorf("%s is answered in %s with\n%s\nand in %s with\n%s", way, version, said, versions[0],
							words[way])
					}
					words[way] = said
				}
			}
		})
	}
	for _, version := range versions {
		t.Run("defaults in "+version, func(t *testing.T) {
			p := versioned(version, "defaults-"+utilrand.String(6))
			p.Object = harness.MergePatch(p.Object,
				harness.Spec("complianceConfig", map[string]any{"upgradesAvailable": "NonCompliant"})).(map[string]any)
			got, err := created(t.Context(), e, p)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Remove(t, p) })
			want := map[string]any{"catalogSourceUnhealthy": "Compliant", "deploymentsUnavailable": "NonCompliant",
				"upgradesAvailable":   "NonCompliant",
				"deprecationsPresent": "Compliant", "minorChannelUpgradeAvailable": "Compliant"}
			if version == harness.Present {
				want["upgradesProgressing"] = "Compliant"
			}
			if diff := cmp.Diff(want, got.Object["spec"].(map[string]any)["complianceConfig"]); diff != "" {
				t.Errorf("complianceConfig (-want +got):\n%s", diff)
			}
			if n := len(got.Object["spec"].(map[string]any)["removalBehavior"].(map[string]any)); n != 5 {
				t.Errorf("removalBehavior has %d fields, want 5", n)
			}
		})
	}
}

// TestConversionMetadata wants everything but the annotation of conversion to be the same in both versions.
func TestConversionMetadata(t *testing.T) {
	e := shared(t)
	for _, version := range []string{harness.Earlier, harness.Present} {
		p := versioned(version, "metadata-"+utilrand.String(6))
		p.SetLabels(map[string]string{"team": "a", "opgate.io/x": ""})
		p.SetAnnotations(map[string]string{"note": "Ω <&>", "empty": ""})
		p.SetFinalizers([]string{"example.com/hold"})
		p.Object = harness.MergePatch(p.Object, map[string]any{"metadata": map[string]any{"ownerReferences": []any{
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
				"uid": "c3d3b1a0-0000-4000-8000-000000000000", "blockOwnerDeletion": true}}}}).(map[string]any)
		if _, err := created(t.Context(), e, p); err != nil {
			t.Fatal(err)
		}
		status := map[string]any{"compliant": "NonCompliant", "observedGeneration": float64(1),
			"overlappingPolicies": []any{"a.b"}}
		if _, err := sendPolicy(t.Context(), e, harness.Request{
			Method:      http.MethodPatch,
			Path:        harness.PathOf(harness.OperatorPoliciesIn(version), p.GetNamespace(), p.GetName(), "status"),
			ContentType: "application/merge-patch+json",
			Body:        []byte(harness.Normal(map[string]any{"status": status})),
		}, nil); err != nil {
			t.Fatal(err)
		}
		shown := map[string]*unstructured.Unstructured{harness.Earlier: read(t, e, harness.Earlier, p),
			harness.Present: read(t, e, harness.Present, p)}
		for other, got := range shown {
			annotations := got.GetAnnotations()
			delete(annotations, conversionAnnotation)
			got.SetAnnotations(annotations)
			if diff := cmp.Diff(harness.MergePatch(got.Object["metadata"], p.Object["metadata"]),
				got.Object["metadata"]); diff != "" {
				t.Errorf("written in %s, read in %s (-written +read):\n%s", version, other, diff)
			}
			if diff := cmp.Diff(any(status), got.Object["status"]); diff != "" {
				t.Errorf("the status of %s, read in %s (-written +read):\n%s", version, other, diff)
			}
		}
		if diff := cmp.Diff(shown[harness.Earlier].Object["metadata"],
			shown[harness.Present].Object["metadata"]); diff != "" {
			t.Errorf("metadata of a policy written in %s (-v1beta1 +v1beta2):\n%s", version, diff)
		}
		e.Patch(t, cluster.Admin, p, `{"metadata":{"finalizers":null}}`)
		e.Remove(t, p)
	}
}
