package conversion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// verbs write the contents of a document to a stored policy: in place of what exists (whole), or on top of it.
var verbs = []struct {
	name  string
	whole bool
}{{"merge patch", false}, {"json patch", false}, {"server-side apply", true}, {"replace", true},
	{"kubectl apply", true}}

// edit writes the contents of a document to a live policy, by the version of the document.
func edit(ctx context.Context, e *harness.Env, verb string, live, document *unstructured.Unstructured) error {
	r := harness.Request{
		Method: http.MethodPatch,
		Path: harness.PathOf(harness.OperatorPoliciesIn(document.GroupVersionKind().Version), document.GetNamespace(),
			document.GetName(), ""),
	}
	switch verb {
	case "replace":
		whole := document.DeepCopy()
		whole.SetResourceVersion(live.GetResourceVersion())
		_, err := replaced(ctx, e, whole)
		return err
	case "server-side apply", "forced apply":
		r.ContentType = "application/apply-patch+yaml"
		r.Query = url.Values{"fieldManager": {"author"}, "force": {strconv.FormatBool(verb == "forced apply")}}
	case "merge patch":
		r.ContentType = "application/merge-patch+json"
	case "json patch":
		r.ContentType, r.Body = "application/json-patch+json", []byte(harness.Normal(operations(live, document)))
		_, err := sendPolicy(ctx, e, r, nil)
		return err
	}
	_, err := sendPolicy(ctx, e, r, document)
	return err
}

// operations are a JSON patch that sets each field of a document. What is shown is replaced, which fails if it is not
// there.
func operations(live, document *unstructured.Unstructured) []map[string]any {
	var ops []map[string]any
	set := func(prefix string, fields, shown map[string]any) {
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			op := "add"
			if _, ok := shown[field]; ok {
				op = "replace"
			}
			if prefix+field != "/spec/subscription" {
				ops = append(ops, map[string]any{"op": op, "path": prefix + field, "value": fields[field]})
			}
		}
	}
	wanted, shown := document.Object["spec"].(map[string]any), live.Object["spec"].(map[string]any)
	set("/spec/", wanted, shown)
	sub, _ := wanted["subscription"].(map[string]any)
	shownSub, _ := shown["subscription"].(map[string]any)
	set("/spec/subscription/", sub, shownSub)
	return ops
}

// inVersion writes a document of the designs in a version. In v1beta2 it has the words of v1beta2, in v1beta1 those of
// v1beta1.
func inVersion(document *unstructured.Unstructured, version, name string) *unstructured.Unstructured {
	p := document.DeepCopy()
	p.SetAPIVersion(harness.OperatorPolicies.Group + "/" + version)
	p.SetName(name)
	p.SetNamespace(cluster.PolicyNamespace)
	delete(p.Object, "status")
	spec := p.Object["spec"].(map[string]any)
	switch sub := spec["subscription"].(map[string]any); {
	case version == harness.Present && sub["installPlanApproval"] != nil:
		spec["upgradeApproval"] = map[any]string{"Automatic": "Automatic", "Manual": "None"}[sub["installPlanApproval"]]
		delete(sub, "installPlanApproval")
	case version == harness.Earlier && spec["statusConfig"] != nil:
		config := map[string]any{}
		for field, value := range spec["statusConfig"].(map[string]any) {
			if config[field] = "Compliant"; value == "NonCompliant" {
				config[field] = value
			}
		}
		delete(config, "upgradesProgressing")
		spec["complianceConfig"] = config
		delete(spec, "statusConfig")
	}
	return p
}

// story is one document after another, each in a version.
type story struct {
	first, then               string
	firstVersion, thenVersion string
	verb                      string
	whole                     bool
	before, after             *unstructured.Unstructured
}

func (s *story) String() string {
	return fmt.Sprintf("%s in %s after %s in %s, by %s", s.then, s.thenVersion, s.first, s.firstVersion, s.verb)
}

// stories are documents of either design after those of the other. In the long form they are all, in all versions, and
// verbs take turns; in the short form half of the documents, and versions take turns as well.
func stories(t *testing.T) []*story {
	t.Helper()
	documents := map[string]*unstructured.Unstructured{}
	for name, text := range originals(t) {
		documents[name] = &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &documents[name].Object); err != nil {
			t.Fatal(err)
		}
	}
	names := slices.Sorted(maps.Keys(documents))
	versions := []string{harness.Earlier, harness.Present}
	var all []*story
	for i, first := range names {
		for j, then := range names {
			if first[:len("seed-000")] == then[:len("seed-000")] {
				continue
			}
			for v := range len(versions) * len(versions) {
				if !*harness.Long && ((i+j)%2 == 1 || v != (i+2*j)/2%4) {
					continue
				}
				verb := verbs[(i+j+v)%len(verbs)]
				s := &story{first: first, then: then, firstVersion: versions[v%2], thenVersion: versions[v/2],
					verb: verb.name, whole: verb.whole}
				name := fmt.Sprintf("story-%d", len(all))
				s.before, s.after = inVersion(documents[first], s.firstVersion, name),
					inVersion(documents[then], s.thenVersion, name)
				all = append(all, s)
			}
		}
	}
	return all
}

// contradiction is what the answer to a patch states where what it leaves in the policy contradicts what it sets.
func (s *story) contradiction(live *unstructured.Unstructured) string {
	if s.whole {
		return ""
	}
	spec := harness.MergePatch(live.Object, s.after.Object).(map[string]any)["spec"].(map[string]any)
	group, _, _ := unstructured.NestedString(spec, "operatorGroup", "namespace")
	namespace, _, _ := unstructured.NestedString(spec, "subscription", "namespace")
	upgrade, install := approvalForms(live)
	changed, added := approvalForms(s.after)
	earlier, _ := live.Object["spec"].(map[string]any)["statusConfig"].(map[string]any)
	config, _ := s.after.Object["spec"].(map[string]any)["complianceConfig"].(map[string]any)
	switch {
	case group != "" && group != namespace:
		return "spec.operatorGroup.namespace: Invalid value"
	case changed == "" && install == "" && map[string]string{"Automatic": "Automatic",
		"Manual": "None"}[added] != upgrade:
		return "spec.subscription.installPlanApproval: Invalid value"
	}
	for field, value := range config {
		if earlier[field] != nil && (earlier[field] == "NonCompliant") != (value == "NonCompliant") {
			return "spec.statusConfig." + field + ": Forbidden"
		}
	}
	return ""
}

// check reads the policy in both versions: it is as the second document states.
func (s *story) check(ctx context.Context, e *harness.Env) error {
	for _, want := range []*unstructured.Unstructured{s.after, inVersion(s.after, harness.Present, s.after.GetName())} {
		got, err := readIn(ctx, e, want.GroupVersionKind().Version, want)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		if diff := cmp.Diff(harness.MergePatch(got.Object["spec"], want.Object["spec"]),
			got.Object["spec"]); diff != "" {
			return fmt.Errorf("%s: read in %s (-written +read):\n%s", s, want.GroupVersionKind().Version, diff)
		}
	}
	return nil
}

// TestConversionStories writes documents of either design after documents of the other, in both versions.
func TestConversionStories(t *testing.T) {
	e := shared(t)
	var requests, applied []*story
	for _, s := range stories(t) {
		if s.verb == "kubectl apply" {
			applied = append(applied, s)
		} else {
			requests = append(requests, s)
		}
	}
	harness.AtOnce(t, harness.Writers, requests, func(ctx context.Context, s *story) error {
		defer e.Remove(t, s.after)
		var err error
		if s.verb == "server-side apply" {
			err = edit(ctx, e, s.verb, nil, s.before)
		} else {
			_, err = created(ctx, e, s.before)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		live, err := readIn(ctx, e, s.thenVersion, s.after)
		if err != nil {
			return err
		}
		says := s.contradiction(live)
		switch err = edit(ctx, e, s.verb, live, s.after); {
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			return fmt.Errorf("%s: %w, want %s", s, errors.Join(err), says)
		case says != "":
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", s, err)
		}
		return s.check(ctx, e)
	})
	// few at once: all of them govern one package, so that each is answered with warnings about the others
	for some := range slices.Chunk(applied, 36) {
		var before, after strings.Builder
		for _, s := range some {
			fmt.Fprintf(&before, "---\n%s\n", harness.Normal(s.before.Object))
			fmt.Fprintf(&after, "---\n%s\n", harness.Normal(s.after.Object))
		}
		harness.Kubectl(t, e.Cluster, cluster.Admin, before.String(), "apply", "-f", "-")
		harness.Kubectl(t, e.Cluster, cluster.Admin, after.String(), "apply", "-f", "-")
		harness.AtOnce(t, harness.Writers, some, func(ctx context.Context, s *story) error { return s.check(ctx, e) })
		if out := harness.Kubectl(t, e.Cluster, cluster.Admin, after.String(), "apply", "-f", "-"); strings.Count(out,
			" unchanged") != len(some) {
			t.Errorf("the second apply says\n%s", out)
		}
		for _, s := range some {
			e.Remove(t, s.after)
		}
	}
}
