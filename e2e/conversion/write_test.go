package conversion

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// TestConversionRoundTrips writes random policies in one version and then, read in the other, there.
func TestConversionRoundTrips(t *testing.T) {
	e := shared(t)
	each := 25
	if *harness.Long {
		each = 200
	}
	for _, version := range []string{harness.Earlier, harness.Present} {
		seed := rand.Uint64()
		t.Logf("written in %s: seed %d", version, seed)
		r := rand.New(rand.NewPCG(seed, 0))
		var all []*unstructured.Unstructured
		for i := range each {
			all = append(all, randomPolicy(r, version, fmt.Sprintf("random-%d", i)))
		}
		harness.AtOnce(t, harness.Writers, all,
			func(ctx context.Context, p *unstructured.Unstructured) error { return roundTrip(ctx, e, p) })
	}
}

func roundTrip(ctx context.Context, e *harness.Env, p *unstructured.Unstructured) error {
	version := p.GroupVersionKind().Version
	other := map[string]string{harness.Earlier: harness.Present, harness.Present: harness.Earlier}[version]
	first, err := created(ctx, e, p)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, harness.Normal(p.Object))
	}
	if diff := cmp.Diff(harness.MergePatch(first.Object, p.Object), any(first.Object)); diff != "" {
		return fmt.Errorf("what was written is not what is stored (-written +stored):\n%s", diff)
	}
	between, err := readIn(ctx, e, other, p)
	if err != nil {
		return err
	}
	between.SetLabels(map[string]string{"written": other}) // so that it is written
	if between, err = replaced(ctx, e, between); err != nil {
		return fmt.Errorf("what %s shows of %s is not valid there: %w", other, harness.Normal(p.Object), err)
	}
	after, err := readIn(ctx, e, version, p)
	if err != nil {
		return err
	}
	if between.GetResourceVersion() == first.GetResourceVersion() || after.GetLabels()["written"] != other {
		return errors.New("it was not written")
	}
	if diff := cmp.Diff(first.Object["spec"], after.Object["spec"]); diff != "" {
		return fmt.Errorf("the spec changed on the way through %s (-was +is):\n%s", other, diff)
	}
	if diff := cmp.Diff(first.GetAnnotations(), after.GetAnnotations()); diff != "" {
		return fmt.Errorf("annotations changed on the way through %s (-was +is):\n%s", other, diff)
	}
	_, err = sendPolicy(ctx, e, harness.Request{
		Method: http.MethodDelete,
		Path:   harness.PathOf(harness.OperatorPolicies, p.GetNamespace(), p.GetName(), ""),
	}, nil)
	return err
}

// randomPolicy is a valid policy in a version.
func randomPolicy(r *rand.Rand, version, name string) *unstructured.Unstructured {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	pick := func(values ...any) any { return values[r.IntN(len(values))] }
	p := versioned(version, name)
	spec := p.Object["spec"].(map[string]any)
	sub := spec["subscription"].(map[string]any)
	spec["complianceType"] = pick("musthave", "mayhave", "mustnothave")
	for field, value := range map[string]any{
		"remediationAction": pick("inform", "Inform", "enforce", "Enforce"), "severity": pick("low", "High"),
		"versions": pick([]any{harness.AllowedCSV}, []any{harness.AllowedCSV + ", " + harness.ForbiddenCSV},
			[]any{}),
		"operatorGroup":   map[string]any{"name": "group", "target": map[string]any{"namespaces": []any{"shop"}}},
		"removalBehavior": map[string]any{"installPlans": pick("Keep", "Delete")},
	} {
		if chance(40) {
			spec[field] = value
		}
	}
	for field, value := range map[string]any{"channel": "alpha", "source": harness.GoodCatalog,
		"sourceNamespace": "olm", "startingCSV": harness.AllowedCSV,
		"config": map[string]any{"env": []any{map[string]any{"name": "A", "value": pick("", "Ω <&>", "{{ b }}")}}}} {
		if chance(40) {
			sub[field] = value
		}
	}
	if chance(40) {
		p.SetAnnotations(map[string]string{"note": "Ω"})
	}
	fields := []string{"catalogSourceUnhealthy", "deploymentsUnavailable", "upgradesAvailable", "deprecationsPresent",
		"minorChannelUpgradeAvailable"}
	if version == harness.Present {
		fields = append(fields, "upgradesProgressing")
	}
	config := map[string]any{}
	for _, field := range fields {
		if chance(30) {
			config[field] = pick("Compliant", "NonCompliant")
		}
	}
	if chance(60) {
		spec["complianceConfig"] = config
	}
	if version == harness.Earlier {
		forms := pick([2]any{"Automatic", nil}, [2]any{"None", nil}, [2]any{nil, "Automatic"}, [2]any{nil, "Manual"},
			[2]any{"Automatic", "Automatic"}, [2]any{"None", "Manual"}).([2]any)
		delete(spec, "upgradeApproval")
		for i, form := range forms {
			if form != nil {
				[]map[string]any{spec, sub}[i][[]string{"upgradeApproval", "installPlanApproval"}[i]] = form
			}
		}
		return p
	}
	spec["upgradeApproval"] = pick("Automatic", "None", "Never")
	if chance(40) {
		spec["versionRange"] = pick(">=0.9.0 <1.0.0", "0.9.x || >=2.0.0")
	}
	if field := pick("catalogSourceUnhealthy", "upgradesAvailable").(string); chance(40) && config[field] == nil {
		spec["statusConfig"] = map[string]any{field: pick("Condition", "NonCompliant", "StatusMessageOnly")}
	}
	return p
}

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
