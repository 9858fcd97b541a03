package conversion

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestConversionKubectl works on one policy as people do, in both versions.
func TestConversionKubectl(t *testing.T) {
	e := shared(t)
	name := "people-" + utilrand.String(6)
	p := versioned(harness.Earlier, name)
	t.Cleanup(func() { e.Remove(t, p) })
	in := func(version string) string {
		return strings.Join([]string{harness.OperatorPolicies.Resource, version, harness.OperatorPolicies.Group}, ".")
	}
	field := func(version, path string) string {
		t.Helper()
		return harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", in(version), "-n", p.GetNamespace(), name, "-o",
			"jsonpath={"+path+"}")
	}
	want := func(version, path, value string) {
		t.Helper()
		if got := field(version, path); got != value {
			t.Errorf("%s of %s is %q, want %q", path, version, got, value)
		}
	}
	document := func(version, spec string) string {
		return fmt.Sprintf("apiVersion: %s/%s\nkind: OperatorPolicy\nmetadata: {name: %s, namespace: %s}\nspec:\n  complianceType: musthave\n%s",
			harness.OperatorPolicies.Group, version, name, p.GetNamespace(), spec)
	}
	apply := func(document, says string) {
		t.Helper()
		if out := harness.Kubectl(t, e.Cluster, cluster.Admin, document, "apply", "-f",
			"-"); !strings.HasSuffix(strings.TrimSpace(out), says) {
			t.Errorf("kubectl apply says %q, want %s", out, says)
		}
	}
	edit := func(version, script string) {
		t.Helper()
		result, err := e.Run(t.Context(), cluster.Command{
			User: cluster.Admin,
			Env:  []string{"KUBE_EDITOR=sed -i '" + script + "'"},
			Args: []string{"edit", in(version), "-n", p.GetNamespace(), name},
		})
		if err != nil || result.ExitCode != 0 {
			t.Fatalf("kubectl edit: %v, %s", err, result.Stderr)
		}
	}
	const manual = "  subscription: {name: etcd, namespace: shop, installPlanApproval: Manual}\n"
	apply(document(harness.Earlier, manual), "created")
	apply(document(harness.Earlier, manual), "unchanged")
	want(harness.Present, ".spec.upgradeApproval", "None")

	edit(harness.Present, "s/upgradeApproval:.None/upgradeApproval: Automatic/")
	want(harness.Earlier, ".spec.subscription.installPlanApproval", "Automatic")
	want(harness.Earlier, ".spec.upgradeApproval", "")
	edit(harness.Earlier, "s/installPlanApproval:.Automatic/installPlanApproval: Manual/")
	want(harness.Present, ".spec.upgradeApproval", "None")
	apply(document(harness.Earlier, manual), "unchanged")

	// From the first dialect to the present one, and on to v1beta2, by editing the document.
	apply(document(harness.Earlier, "  subscription: {name: etcd, namespace: shop}\n  upgradeApproval: Automatic\n"),
		"configured")
	want(harness.Earlier, ".spec.subscription.installPlanApproval", "")
	want(harness.Present, ".spec.upgradeApproval", "Automatic")
	last := document(harness.Present,
		"  subscription: {name: etcd, namespace: shop}\n  upgradeApproval: Never\n  versionRange: \">=0.9.0 <1.0.0\"\n")
	apply(last, "configured")
	apply(last, "unchanged")
	want(harness.Earlier, ".spec.upgradeApproval", "None")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "label", in(harness.Earlier), "-n", p.GetNamespace(), name,
		"team=a")
	want(harness.Present, ".spec.upgradeApproval", "Never")
	want(harness.Present, ".spec.versionRange", ">=0.9.0 <1.0.0")
	for _, version := range []string{harness.Earlier, harness.Present} {
		if out := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", in(version), "-n", p.GetNamespace(), "-o",
			"name"); !strings.Contains(out, name) {
			t.Errorf("%s lists %s", version, out)
		}
	}
}

// TestConversionManagers has two managers own fields of one policy in two versions, by server-side apply.
func TestConversionManagers(t *testing.T) {
	e := shared(t)
	name := "managers-" + utilrand.String(6)
	base := versioned(harness.Earlier, name)
	t.Cleanup(func() { e.Remove(t, base) })
	const versions, versionRange = `["` + harness.AllowedCSV + `"]`, ">=0.9.0 <1.0.0"
	apply := func(version, manager, spec string) *unstructured.Unstructured {
		t.Helper()
		got, err := sendPolicy(t.Context(), e, harness.Request{
			Method:      http.MethodPatch,
			Path:        harness.PathOf(harness.OperatorPoliciesIn(version), base.GetNamespace(), name, ""),
			Query:       url.Values{"fieldManager": {manager}},
			ContentType: "application/apply-patch+yaml",
			Body: fmt.Appendf(nil, "apiVersion: %s/%s\nkind: OperatorPolicy\nmetadata: {name: %s}\nspec: %s",
				harness.OperatorPolicies.Group, version, name, spec),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := func(list, rangeOf, install string) {
		t.Helper()
		now := read(t, e, harness.Present, base)
		have, _, _ := unstructured.NestedFieldNoCopy(now.Object, "spec", "versions")
		if have := harness.Normal(have); have != list {
			t.Errorf("versions is %s, want %s", have, list)
		}
		if have, _, _ := unstructured.NestedString(now.Object, "spec", "versionRange"); have != rangeOf {
			t.Errorf("versionRange is %q, want %q", have, rangeOf)
		}
		if upgrade, _ := approvalForms(now); upgrade != "None" {
			t.Errorf("upgradeApproval is %q, want None", upgrade)
		}
		if _, have := approvalForms(read(t, e, harness.Earlier, base)); have != install {
			t.Errorf("installPlanApproval is %q, want %q", have, install)
		}
	}
	const first = `{complianceType: musthave, subscription: {name: etcd, namespace: shop, installPlanApproval: Manual}`
	apply(harness.Earlier, "first", first+`, versions: `+versions+`}`)
	apply(harness.Present, "second", `{versionRange: "`+versionRange+`"}`)
	want(versions, versionRange, "Manual")
	// Each once more: nothing changes and no field is lost.
	before := read(t, e, harness.Present, base)
	apply(harness.Earlier, "first", first+`, versions: `+versions+`}`)
	apply(harness.Present, "second", `{versionRange: "`+versionRange+`"}`)
	if after := read(t, e, harness.Present, base); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("applying the same again changed\n%s", cmp.Diff(before.Object, after.Object))
	}
	apply(harness.Earlier, "first", first+`}`)
	want("null", versionRange, "Manual")
	apply(harness.Earlier, "first", first+`, versions: `+versions+`}`)
	apply(harness.Present, "second", `{}`)
	want(versions, "", "Manual")
	// The first moves on to the present dialect. The API server converts what both have before it takes the earlier
	// form away, so that the policy is as if it had been written with both forms.
	apply(harness.Present, "second", `{versionRange: "`+versionRange+`"}`)
	apply(harness.Earlier, "first",
		`{complianceType: musthave, subscription: {name: etcd, namespace: shop}, upgradeApproval: None, versions: `+
			versions+`}`)
	want(versions, versionRange, "Manual")
}
