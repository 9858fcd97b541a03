package e2e

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
)

// TestConversionRoundTrips writes random policies in one version and then, read in the other, there.
func TestConversionRoundTrips(t *testing.T) {
	e := shared(t)
	const each = 200
	for _, version := range []string{earlier, present} {
		seed := rand.Uint64()
		t.Logf("written in %s: seed %d", version, seed)
		r := rand.New(rand.NewPCG(seed, 0))
		var all []*unstructured.Unstructured
		for i := range each {
			all = append(all, randomPolicy(r, version, fmt.Sprintf("random-%d", i)))
		}
		atOnce(t, writers, all, e.roundTrip)
	}
}

func (e *env) roundTrip(ctx context.Context, p *unstructured.Unstructured) error {
	version := p.GroupVersionKind().Version
	other := map[string]string{earlier: present, present: earlier}[version]
	first, err := e.created(ctx, p)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, normal(p.Object))
	}
	if diff := cmp.Diff(merged(first.Object, p.Object), any(first.Object)); diff != "" {
		return fmt.Errorf("what was written is not what is stored (-written +stored):\n%s", diff)
	}
	between, err := e.readIn(ctx, other, p)
	if err != nil {
		return err
	}
	between.SetLabels(map[string]string{"written": other}) // so that it is written
	if between, err = e.replaced(ctx, between); err != nil {
		return fmt.Errorf("what %s shows of %s is not valid there: %w", other, normal(p.Object), err)
	}
	after, err := e.readIn(ctx, version, p)
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
	_, err = e.sendPolicy(ctx, request{method: http.MethodDelete, path: pathOf(policies, p.GetNamespace(), p.GetName(), "")}, nil)
	return err
}

// randomPolicy is a valid policy in a version.
func randomPolicy(r *rand.Rand, version, name string) *unstructured.Unstructured {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	pick := func(values ...any) any { return values[r.IntN(len(values))] }
	p := versioned(version, name)
	spec := p.Object["spec"].(map[string]any)
	sub := spec["subscription"].(map[string]any)
	spec["complianceType"] = pick("musthave", "mustnothave")
	for field, value := range map[string]any{
		"remediationAction": pick("inform", "Inform", "enforce", "Enforce"), "severity": pick("low", "High"), "versions": pick([]any{allowedCSV}, []any{allowedCSV + ", " + forbiddenCSV}, []any{}),
		"operatorGroup":   map[string]any{"name": "group", "target": map[string]any{"namespaces": []any{"shop"}}},
		"removalBehavior": map[string]any{"installPlans": pick("Keep", "Delete")},
	} {
		if chance(40) {
			spec[field] = value
		}
	}
	for field, value := range map[string]any{"channel": "alpha", "source": goodCatalog, "sourceNamespace": "olm", "startingCSV": allowedCSV,
		"config": map[string]any{"env": []any{map[string]any{"name": "A", "value": pick("", "Ω <&>", "{{ b }}")}}}} {
		if chance(40) {
			sub[field] = value
		}
	}
	if chance(40) {
		p.SetAnnotations(map[string]string{"note": "Ω"})
	}
	fields := []string{"catalogSourceUnhealthy", "deploymentsUnavailable", "upgradesAvailable", "deprecationsPresent", "minorChannelUpgradeAvailable"}
	if version == present {
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
	if version == earlier {
		forms := pick([2]any{"Automatic", nil}, [2]any{"None", nil}, [2]any{nil, "Automatic"}, [2]any{nil, "Manual"}, [2]any{"Automatic", "Automatic"}, [2]any{"None", "Manual"}).([2]any)
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
	p := versioned(earlier, name)
	t.Cleanup(func() { e.remove(t, p) })
	in := func(version string) string {
		return strings.Join([]string{policies.Resource, version, policies.Group}, ".")
	}
	field := func(version, path string) string {
		t.Helper()
		return kubectl(t, e.Cluster, cluster.Admin, "", "get", in(version), "-n", p.GetNamespace(), name, "-o", "jsonpath={"+path+"}")
	}
	want := func(version, path, value string) {
		t.Helper()
		if got := field(version, path); got != value {
			t.Errorf("%s of %s is %q, want %q", path, version, got, value)
		}
	}
	document := func(version, spec string) string {
		return fmt.Sprintf("apiVersion: %s/%s\nkind: OperatorPolicy\nmetadata: {name: %s, namespace: %s}\nspec:\n  complianceType: musthave\n%s",
			policies.Group, version, name, p.GetNamespace(), spec)
	}
	apply := func(document, says string) {
		t.Helper()
		if out := kubectl(t, e.Cluster, cluster.Admin, document, "apply", "-f", "-"); !strings.HasSuffix(strings.TrimSpace(out), says) {
			t.Errorf("kubectl apply says %q, want %s", out, says)
		}
	}
	edit := func(version, script string) {
		t.Helper()
		result, err := e.Run(t.Context(), cluster.Command{User: cluster.Admin, Env: []string{"KUBE_EDITOR=sed -i '" + script + "'"}, Args: []string{"edit", in(version), "-n", p.GetNamespace(), name}})
		if err != nil || result.ExitCode != 0 {
			t.Fatalf("kubectl edit: %v, %s", err, result.Stderr)
		}
	}
	const manual = "  subscription: {name: etcd, namespace: shop, installPlanApproval: Manual}\n"
	apply(document(earlier, manual), "created")
	apply(document(earlier, manual), "unchanged")
	want(present, ".spec.upgradeApproval", "None")

	edit(present, "s/upgradeApproval:.None/upgradeApproval: Automatic/")
	want(earlier, ".spec.subscription.installPlanApproval", "Automatic")
	want(earlier, ".spec.upgradeApproval", "")
	edit(earlier, "s/installPlanApproval:.Automatic/installPlanApproval: Manual/")
	want(present, ".spec.upgradeApproval", "None")
	apply(document(earlier, manual), "unchanged")

	// From the first dialect to the present one, and on to v1beta2, by editing the document.
	apply(document(earlier, "  subscription: {name: etcd, namespace: shop}\n  upgradeApproval: Automatic\n"), "configured")
	want(earlier, ".spec.subscription.installPlanApproval", "")
	want(present, ".spec.upgradeApproval", "Automatic")
	last := document(present, "  subscription: {name: etcd, namespace: shop}\n  upgradeApproval: Never\n  versionRange: \">=0.9.0 <1.0.0\"\n")
	apply(last, "configured")
	apply(last, "unchanged")
	want(earlier, ".spec.upgradeApproval", "None")
	kubectl(t, e.Cluster, cluster.Admin, "", "label", in(earlier), "-n", p.GetNamespace(), name, "team=a")
	want(present, ".spec.upgradeApproval", "Never")
	want(present, ".spec.versionRange", ">=0.9.0 <1.0.0")
	for _, version := range []string{earlier, present} {
		if out := kubectl(t, e.Cluster, cluster.Admin, "", "get", in(version), "-n", p.GetNamespace(), "-o", "name"); !strings.Contains(out, name) {
			t.Errorf("%s lists %s", version, out)
		}
	}
}

// TestConversionManagers has two managers own fields of one policy in two versions, by server-side apply.
func TestConversionManagers(t *testing.T) {
	e := shared(t)
	name := "managers-" + utilrand.String(6)
	base := versioned(earlier, name)
	t.Cleanup(func() { e.remove(t, base) })
	const versions, versionRange = `["` + allowedCSV + `"]`, ">=0.9.0 <1.0.0"
	apply := func(version, manager, spec string) *unstructured.Unstructured {
		t.Helper()
		got, err := e.sendPolicy(t.Context(), request{method: http.MethodPatch, path: pathOf(policiesIn(version), base.GetNamespace(), name, ""), query: url.Values{"fieldManager": {manager}},
			contentType: "application/apply-patch+yaml", body: fmt.Appendf(nil, "apiVersion: %s/%s\nkind: OperatorPolicy\nmetadata: {name: %s}\nspec: %s", policies.Group, version, name, spec)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := func(list, rangeOf, install string) {
		t.Helper()
		now := e.read(t, present, base)
		have, _, _ := unstructured.NestedFieldNoCopy(now.Object, "spec", "versions")
		if have := normal(have); have != list {
			t.Errorf("versions is %s, want %s", have, list)
		}
		if have, _, _ := unstructured.NestedString(now.Object, "spec", "versionRange"); have != rangeOf {
			t.Errorf("versionRange is %q, want %q", have, rangeOf)
		}
		if upgrade, _ := approvalForms(now); upgrade != "None" {
			t.Errorf("upgradeApproval is %q, want None", upgrade)
		}
		if _, have := approvalForms(e.read(t, earlier, base)); have != install {
			t.Errorf("installPlanApproval is %q, want %q", have, install)
		}
	}
	const first = `{complianceType: musthave, subscription: {name: etcd, namespace: shop, installPlanApproval: Manual}`
	apply(earlier, "first", first+`, versions: `+versions+`}`)
	apply(present, "second", `{versionRange: "`+versionRange+`"}`)
	want(versions, versionRange, "Manual")
	// Each once more: nothing changes and nobody loses anything.
	before := e.read(t, present, base)
	apply(earlier, "first", first+`, versions: `+versions+`}`)
	apply(present, "second", `{versionRange: "`+versionRange+`"}`)
	if after := e.read(t, present, base); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("applying the same again changed\n%s", cmp.Diff(before.Object, after.Object))
	}
	apply(earlier, "first", first+`}`)
	want("null", versionRange, "Manual")
	apply(earlier, "first", first+`, versions: `+versions+`}`)
	apply(present, "second", `{}`)
	want(versions, "", "Manual")
	// The first moves on to the present dialect. The API server converts what both have before it takes the earlier form away, so
	// that the policy is as if it had been written with both forms.
	apply(present, "second", `{versionRange: "`+versionRange+`"}`)
	apply(earlier, "first", `{complianceType: musthave, subscription: {name: etcd, namespace: shop}, upgradeApproval: None, versions: `+versions+`}`)
	want(versions, versionRange, "Manual")
}
