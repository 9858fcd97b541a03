package conversion

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// content reads YAML as the API server hands it over.
func content(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := decode(raw, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// appliedWith is the annotation of kubectl for a document with installPlanApproval Manual and an upgradeApproval.
func appliedWith(upgrade string) string {
	return `kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"upgradeApproval":"` + upgrade +
		`","subscription":{"name":"etcd","installPlanApproval":"Manual"}}}'`
}

// managedBy are managedFields of both forms by one operation.
func managedBy(operation string) string {
	return `managedFields: [{operation: ` + operation +
		`, fieldsV1: {"f:spec": {"f:upgradeApproval": {}, "f:subscription": {"f:installPlanApproval": {}}}}}]`
}

// TestConvert shows both directions for everything in which the versions differ. Each pair is converted both
// ways unless it states otherwise.
func TestConvert(t *testing.T) {
	for name, c := range map[string]struct {
		v1beta1, v1beta2 string
		only             string // the direction in which alone it holds
	}{
		"the old dialect, Automatic": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Automatic"}'}}, spec: {subscription: {name: etcd, installPlanApproval: Automatic}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"installPlanApproval"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, ""},
		"the old dialect, as it is written first": {
			`{metadata: {name: a}, spec: {subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"installPlanApproval"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd}}}`, "to v1beta2"},
		"the old dialect, Manual": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"installPlanApproval"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd}}}`, ""},
		"the current dialect": {
			`{metadata: {name: a}, spec: {upgradeApproval: None, subscription: {name: etcd}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd}}}`, ""},
		"upgradeApproval was added to the old dialect": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"a document with both forms was applied by kubectl to the old dialect": {
			`{metadata: {name: a, annotations: {` + appliedWith("Automatic") +
				`, opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, annotations: {` + appliedWith("Automatic") +
				`}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			"to v1beta2"},
		"a document with both forms was applied by kubectl, and then upgradeApproval was edited": {
			`{metadata: {name: a, annotations: {` + appliedWith("None") +
				`, opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, annotations: {` + appliedWith("None") +
				`, opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"a document with both forms was applied on the server": {
			`{metadata: {name: a, ` + managedBy("Apply") +
				`, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, ` + managedBy("Apply") +
				`}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			"to v1beta2"},
		"both forms were created, and then upgradeApproval was edited": {
			`{metadata: {name: a, ` + managedBy("Update") +
				`, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, ` + managedBy("Update") +
				`, annotations: {opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"of both forms, upgradeApproval was changed": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Automatic"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd, installPlanApproval: Automatic}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd}}}`, "to v1beta2"},
		"of both forms, installPlanApproval was changed": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd, installPlanApproval: Automatic}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"installPlanApproval"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"of both forms, both were changed": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Automatic}}}`,
			`{metadata: {name: a}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"of both forms, one has a value that fits neither": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: None, subscription: {installPlanApproval: Sometimes}}}`,
			`{metadata: {name: a}, spec: {upgradeApproval: None, subscription: {installPlanApproval: Sometimes}}}`,
			"to v1beta2"},
		"v1beta2 shows both": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a}, spec: {upgradeApproval: None, subscription: {name: etcd}}}`, ""},
		"Never is None in v1beta1": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual","upgradeApproval":"Never"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a}, spec: {upgradeApproval: Never, subscription: {name: etcd}}}`, ""},
		"Never was changed to Automatic in v1beta1": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual","upgradeApproval":"Never"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Automatic}}}`,
			`{metadata: {name: a}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"Never, of which installPlanApproval was changed": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual","upgradeApproval":"Never"}'}}, spec: {upgradeApproval: None, subscription: {name: etcd, installPlanApproval: Automatic}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"installPlanApproval"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"Never, of which upgradeApproval was changed": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Manual","upgradeApproval":"Never"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {upgradeApproval: Automatic, subscription: {name: etcd}}}`, "to v1beta2"},
		"contradicting forms of which nothing is carried stay": {
			`{metadata: {name: a}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`,
			`{metadata: {name: a}, spec: {upgradeApproval: Automatic, subscription: {name: etcd, installPlanApproval: Manual}}}`, ""},
		"a value that fits neither stays": {`{metadata: {name: a}, spec: {subscription: {installPlanApproval: Sometimes}}}`, `{metadata: {name: a}, spec: {subscription: {installPlanApproval: Sometimes}}}`, ""},
		"a value that is no text stays":   {`{metadata: {name: a}, spec: {subscription: {installPlanApproval: {a: [1]}}}}`, `{metadata: {name: a}, spec: {subscription: {installPlanApproval: {a: [1]}}}}`, ""},
		"neither form": {`{metadata: {name: a}, spec: {subscription: {name: etcd}}}`,
			`{metadata: {name: a}, spec: {subscription: {name: etcd}}}`, ""},
		"an empty installPlanApproval is kept": {`{metadata: {name: a}, spec: {upgradeApproval: None, subscription: {installPlanApproval: ""}}}`, `{metadata: {name: a}, spec: {upgradeApproval: None, subscription: {installPlanApproval: ""}}}`, ""},
		"no spec":                              {`{kind: OperatorPolicy}`, `{kind: OperatorPolicy}`, ""},
		"a spec of another type": {`{metadata: {name: a}, spec: [1]}`, `{metadata: {name: a}, spec: [1]}`,
			""},
		"a subscription of another type": {`{metadata: {name: a}, spec: {subscription: text}}`,
			`{metadata: {name: a}, spec: {subscription: text}}`, ""},
		"unknown fields reach admission":     {`{metadata: {name: a}, spec: {verions: [a], subscription: {chanel: b}}}`, `{metadata: {name: a}, spec: {verions: [a], subscription: {chanel: b}}}`, ""},
		"metadata and status are left as is": {`{metadata: {name: a, labels: {x: y}, annotations: {z: "1"}, generation: 9007199254740993}, status: {compliant: Compliant}}`, `{metadata: {name: a, labels: {x: y}, annotations: {z: "1"}, generation: 9007199254740993}, status: {compliant: Compliant}}`, ""},
		"annotations of others stay beside ours": {
			`{metadata: {name: a, annotations: {z: "1"}}, spec: {upgradeApproval: None, subscription: {}}}`,
			`{metadata: {name: a, annotations: {z: "1", opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {upgradeApproval: None, subscription: {}}}`, ""},
		"versionRange and statusConfig travel": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"statusConfig":{"upgradesAvailable":"Condition"},"versionRange":">=1.0.0 <2.0.0"}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {versionRange: ">=1.0.0 <2.0.0", statusConfig: {upgradesAvailable: Condition}, subscription: {}}}`, ""},
		"deprecated travels": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"deprecated":"Hold"}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {deprecated: Hold, subscription: {}}}`, ""},
		"consent travels": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"consent":{"accepted":["sha256:aa"],"permissions":"Hold"}}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {consent: {permissions: Hold, accepted: ["sha256:aa"]}, subscription: {}}}`,
			""},
		"approvalWindows travel": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"approvalWindows":[{"cron":"0 22 * * 6","duration":"4h"}]}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {approvalWindows: [{cron: 0 22 * * 6, duration: 4h}], subscription: {}}}`, ""},
		"freezes travel": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"freezes":[{"end":"b","start":"a"}]}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {freezes: [{start: a, end: b}], subscription: {}}}`, ""},
		"minimumAge and urgent travel": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"minimumAge":"168h","urgent":["a"]}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {minimumAge: 168h, urgent: [a], subscription: {}}}`, ""},
		"maximumWait travels": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"maximumWait":"72h"}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {maximumWait: 72h, subscription: {}}}`, ""},
		"planApproval travels": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"planApproval":"IfAllowed"}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {planApproval: IfAllowed, subscription: {}}}`, ""},
		"exceptions travel": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"exceptions":[{"expires":"b","versions":["a"]}]}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {exceptions: [{versions: [a], expires: b}], subscription: {}}}`, ""},
		"catalog travels": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"catalog":{"accepted":["sha256:aa"],"image":"Hold"}}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {catalog: {image: Hold, accepted: ["sha256:aa"]}, subscription: {}}}`, ""},
		"an empty consent is not none": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"consent":{}}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a}, spec: {consent: {}, subscription: {}}}`, ""},
		"the default of upgradesProgressing does not": {
			`{metadata: {name: a}, spec: {complianceConfig: {upgradesAvailable: Compliant}}}`,
			`{metadata: {name: a}, spec: {complianceConfig: {upgradesAvailable: Compliant, upgradesProgressing: Compliant}}}`, ""},
		"another value of upgradesProgressing does": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"upgradesProgressing":"NonCompliant"}'}}, spec: {complianceConfig: {upgradesAvailable: Compliant}}}`,
			`{metadata: {name: a}, spec: {complianceConfig: {upgradesAvailable: Compliant, upgradesProgressing: NonCompliant}}}`, ""},
		"no upgradesProgressing where it is expected": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"upgradesProgressing":null}'}}, spec: {complianceConfig: {upgradesAvailable: Compliant}}}`,
			`{metadata: {name: a}, spec: {complianceConfig: {upgradesAvailable: Compliant}}}`, ""},
		"upgradesProgressing alone": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"upgradesProgressing":"Compliant"}'}}, spec: {complianceConfig: {}}}`,
			`{metadata: {name: a}, spec: {complianceConfig: {upgradesProgressing: Compliant}}}`, ""},
		"an annotation that no version writes stays, for admission to refuse": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: 'versionRange'}}, spec: {upgradeApproval: None, subscription: {}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: 'versionRange'}}, spec: {upgradeApproval: None, subscription: {}}}`, ""},
		"an approval that no version carries stays, for admission to refuse": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Sometimes"}'}}, spec: {upgradeApproval: None, subscription: {}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"installPlanApproval":"Sometimes"}'}}, spec: {upgradeApproval: None, subscription: {}}}`, ""},
		"complianceConfig was changed and statusConfig travels": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"statusConfig":{"catalogSourceUnhealthy":"Condition","upgradesAvailable":"NonCompliant"}}'}}, spec: {complianceConfig: {upgradesAvailable: Compliant}}}`,
			`{metadata: {name: a}, spec: {statusConfig: {catalogSourceUnhealthy: Condition}, complianceConfig: {upgradesAvailable: Compliant, upgradesProgressing: Compliant}}}`, "to v1beta2"},
		"all of what travels of statusConfig was changed": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"statusConfig":{"upgradesAvailable":"NonCompliant"}}'}}, spec: {complianceConfig: {upgradesAvailable: Compliant}}}`,
			`{metadata: {name: a}, spec: {complianceConfig: {upgradesAvailable: Compliant, upgradesProgressing: Compliant}}}`, "to v1beta2"},
		"statusConfig that complianceConfig contradicts stays": {
			`{metadata: {name: a}, spec: {statusConfig: {upgradesAvailable: NonCompliant}, complianceConfig: {upgradesAvailable: Compliant}}}`,
			`{metadata: {name: a}, spec: {statusConfig: {upgradesAvailable: NonCompliant}, complianceConfig: {upgradesAvailable: Compliant, upgradesProgressing: Compliant}}}`, ""},
		"a smuggled dialect stays, for admission to refuse": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"no"}'}}, spec: {subscription: {}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"no"}'}}, spec: {subscription: {}}}`,
			""},
		"a dialect in v1beta1, from v1beta2 by hand, gives way to the form": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"upgradeApproval"}'}}, spec: {subscription: {installPlanApproval: Manual}}}`,
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"dialect":"installPlanApproval"}'}}, spec: {upgradeApproval: None, subscription: {}}}`, "to v1beta2"},
		"what was edited wins over what was carried": {
			`{metadata: {name: a, annotations: {opgate.io/conversion: '{"versionRange":"<1.0.0"}'}}, spec: {versionRange: "<2.0.0", subscription: {}}}`,
			`{metadata: {name: a}, spec: {versionRange: "<2.0.0", subscription: {}}}`, "to v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			v1beta1, v1beta2 := content(t, c.v1beta1), content(t, c.v1beta2)
			if diff := cmp.Diff(v1beta2, ToV1beta2(v1beta1)); diff != "" {
				t.Errorf("to v1beta2 (-want +got):\n%s", diff)
			}
			if c.only != "" {
				return
			}
			if diff := cmp.Diff(v1beta1, ToV1beta1(v1beta2)); diff != "" {
				t.Errorf("to v1beta1 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(content(t, c.v1beta1), v1beta1); diff != "" {
				t.Errorf("the object that was converted has changed:\n%s", diff)
			}
		})
	}
}

// FuzzRoundTrip converts random objects there and back. A number represents an object; the seeds are run with
// every test.
func FuzzRoundTrip(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { roundTrip(t, seed) })
}

// TestRoundTrips is the same for many objects at once.
func TestRoundTrips(t *testing.T) {
	for seed := range uint64(cases.Of(20_000)) {
		if roundTrip(t, seed); t.Failed() {
			return
		}
	}
}

func roundTrip(t *testing.T, seed uint64) {
	t.Helper()
	r := random{rand.New(rand.NewPCG(seed, 0))}
	v1beta2 := r.v1beta2()
	before := encode(v1beta2)
	if got := encode(ToV1beta2(reread(t, ToV1beta1(v1beta2)))); got != before {
		t.Errorf("seed %d: v1beta2 differs after v1beta1:\n%s", seed, cmp.Diff(before, got))
	}
	if after := encode(v1beta2); after != before {
		t.Errorf("seed %d: conversion has changed what it was given:\n%s", seed, cmp.Diff(before, after))
	}
	v1beta1 := r.v1beta1()
	stored := ToV1beta2(v1beta1)
	shown := ToV1beta1(reread(t, stored))
	if again := encode(ToV1beta2(reread(t, shown))); again != encode(stored) {
		t.Errorf("seed %d: v1beta1 means something else after v1beta2:\n%s", seed, cmp.Diff(encode(stored), again))
	}
	if annotation(v1beta1) == "" && annotation(shown) != "" {
		annotate(shown, "") // the value that is shown as installPlanApproval
	}
	if before, got := encode(v1beta1), encode(shown); got != before {
		t.Errorf("seed %d: v1beta1 differs after v1beta2:\n%s", seed, cmp.Diff(before, got))
	}
}

// reread sends an object through JSON, as the API server does between two conversions.
func reread(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	var again map[string]any
	if err := decode([]byte(encode(object)), &again); err != nil {
		t.Fatal(err)
	}
	return again
}

// random makes objects.
type random struct{ *rand.Rand }

func (r random) chance(percent int) bool { return r.IntN(100) < percent }

func pick[T any](r random, values ...T) T { return values[r.IntN(len(values))] }

// anything is any JSON, not deep.
func (r random) anything(depth int) any {
	switch r.IntN(8 - min(depth, 2)) {
	case 0:
		return nil
	case 1:
		return r.chance(50)
	case 2:
		return r.Int64()
	case 3:
		return r.Float64()
	case 4, 5:
		return pick(r, "", "text", "Ωmega <&>", `{"a":1}`, "{{ fromConfigMap }}", "Automatic")
	case 6:
		list := []any{}
		for range r.IntN(3) {
			list = append(list, r.anything(depth+1))
		}
		return list
	}
	object := map[string]any{}
	for i := range r.IntN(3) {
		object[fmt.Sprint("key", i)] = r.anything(depth + 1)
	}
	return object
}

// common is what both versions have alike, unknown fields included.
func (r random) common(version string) map[string]any {
	metadata := map[string]any{"name": "etcd", "namespace": "policies"}
	if r.chance(30) {
		metadata["annotations"] = map[string]any{"other": "Ω"}
	}
	if r.chance(30) {
		metadata["labels"] = map[string]any{"a": "b"}
	}
	spec := map[string]any{"complianceType": "musthave", "subscription": map[string]any{"name": "etcd"}}
	for _, field := range []string{"versions", "operatorGroup", "removalBehavior", "severity", "deletion", "unknown"} {
		if r.chance(30) {
			spec[field] = r.anything(0)
		}
	}
	if r.chance(60) {
		config := map[string]any{}
		for _, field := range []string{"catalogSourceUnhealthy", "upgradesAvailable", "deprecationsPresent"} {
			if r.chance(50) {
				config[field] = pick(r, "Compliant", "NonCompliant")
			}
		}
		spec["complianceConfig"] = config
	}
	object := map[string]any{"apiVersion": "policy.open-cluster-management.io/" + version, "kind": "OperatorPolicy",
		"metadata": metadata, "spec": spec}
	if r.chance(50) {
		object["status"] = r.anything(0)
	}
	return object
}

// v1beta2 is an object that the schema of v1beta2 lets pass.
func (r random) v1beta2() map[string]any {
	object := r.common("v1beta2")
	spec := object["spec"].(map[string]any)
	approval := pick(r, "Automatic", "None", "Never")
	spec["upgradeApproval"] = approval
	if r.chance(20) {
		spec["versionRange"] = pick[any](r, "<1.0.0", "", nil, r.anything(0))
	}
	if r.chance(20) {
		spec["deprecated"] = pick[any](r, "Hold", "Allow", "", nil, r.anything(0))
		spec["planApproval"] = pick[any](r, "IfAllowed", "IfRequested", "", nil, r.anything(0))
	}
	if r.chance(20) {
		spec["consent"] = pick[any](r, map[string]any{},
			map[string]any{"permissions": "Hold", "accepted": []any{"sha256:aa"}}, nil, r.anything(0))
	}
	if r.chance(20) {
		spec["catalog"] = pick[any](r, map[string]any{},
			map[string]any{"image": "Hold", "accepted": []any{"sha256:aa"}}, nil, r.anything(0))
	}
	if r.chance(20) {
		spec["approvalWindows"] = pick[any](r, []any{}, []any{map[string]any{"cron": "0 22 * * 6", "duration": "4h"}},
			nil, r.anything(0))
		spec["freezes"] = pick[any](r, []any{}, []any{map[string]any{"start": "a", "end": "b"}}, nil, r.anything(0))
	}
	if r.chance(20) {
		spec["minimumAge"], spec["urgent"] = pick[any](r, "168h", "", nil, r.anything(0)),
			pick[any](r, []any{"a"}, []any{}, nil, r.anything(0))
		spec["maximumWait"] = pick[any](r, "72h", "", nil, r.anything(0))
		spec["exceptions"] = pick[any](r, []any{}, []any{map[string]any{"versions": []any{"a"}, "expires": "b"}}, nil,
			r.anything(0))
	}
	if r.chance(20) {
		spec["statusConfig"] = pick[any](r, map[string]any{"upgradesAvailable": "Condition"},
			map[string]any{"upgradesAvailable": "NonCompliant"}, r.anything(0))
	}
	if config, ok := spec["complianceConfig"].(map[string]any); ok && r.chance(50) {
		config["upgradesProgressing"] = pick(r, "Compliant", "NonCompliant", "")
	}
	switch r.IntN(4) {
	case 0: // of a dialect
		annotate(object, encode(map[string]operatorpolicy.Dialect{"dialect": pick(r,
			operatorpolicy.DialectInstallPlanApproval, operatorpolicy.DialectUpgradeApproval)}))
	case 1: // stuck with a form that contradicts the other; one that states the same is dropped, and refused anyway
		spec["subscription"].(map[string]any)["installPlanApproval"] = pick[any](r, "", "Sometimes", 3, nil,
			map[string]any{"Automatic": 0},
			map[string]string{"Automatic": "Manual", "None": "Automatic", "Never": "Automatic"}[approval])
	}
	return object
}

// v1beta1 is an object that the schema of v1beta1 lets pass, in any dialect, or one that was shown as v1beta1.
func (r random) v1beta1() map[string]any {
	if r.chance(30) {
		shown := ToV1beta1(r.v1beta2())
		shown["apiVersion"] = "policy.open-cluster-management.io/v1beta1"
		return shown
	}
	object := r.common("v1beta1")
	spec := object["spec"].(map[string]any)
	if r.chance(60) {
		spec["upgradeApproval"] = pick(r, "Automatic", "None")
	}
	if r.chance(60) {
		spec["subscription"].(map[string]any)["installPlanApproval"] = pick[any](r, "Automatic", "Manual", "Automatic",
			"Manual", "", nil, 1, r.anything(0))
	}
	return object
}

// TestRandomObjectsDiffer makes sure that the round trips above convert something.
func TestRandomObjectsDiffer(t *testing.T) {
	seen, n := map[string]int{}, cases.Of(500)
	for seed := range uint64(n) {
		r := random{rand.New(rand.NewPCG(seed, 0))}
		shown := ToV1beta1(r.v1beta2())
		for _, field := range slices.Collect(maps.Keys(shown["spec"].(map[string]any))) {
			seen[field]++
		}
		var extra map[string]json.RawMessage
		if text := annotation(shown); text != "" && decodeStrictly(text, &extra) == nil {
			for field := range extra {
				seen["annotation "+field]++
			}
		}
		stored := ToV1beta2(r.v1beta1())
		if dialect, err := operatorpolicy.ParseDialect(annotation(stored)); err == nil {
			seen["dialect "+string(dialect)]++
		}
	}
	for _, want := range []string{"upgradeApproval", "complianceConfig", "annotation upgradeApproval",
		"annotation installPlanApproval", "annotation versionRange", "annotation deprecated", "annotation consent",
		"annotation planApproval",
		"annotation catalog", "annotation approvalWindows", "annotation freezes", "annotation exceptions",
		"annotation minimumAge", "annotation urgent", "annotation maximumWait",
		"annotation statusConfig",
		"annotation upgradesProgressing", "dialect ", "dialect installPlanApproval", "dialect upgradeApproval"} {
		if seen[want] < n/50 {
			t.Errorf("%s was seen %d times only", want, seen[want])
		}
	}
}
