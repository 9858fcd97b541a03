package v1beta2_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/api/policy/v1beta2"

	"github.com/opgate/opgate/api/internal/crdtest"
)

// texts turns constants of a string type into the values of a schema enum.
func texts[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// The enum of each field has exactly the values of its type, and near misses are refused.
func TestEnums(t *testing.T) {
	consent := texts(v1beta2.ConsentHold, v1beta2.ConsentWarn, v1beta2.ConsentIgnore)
	keepOrDelete := texts(v1beta2.RemovalKeep, v1beta2.RemovalDelete)
	compliance := texts(v1beta2.ConfigCompliant, v1beta2.ConfigNonCompliant)
	status := texts(v1beta2.StatusConfigStatusMessageOnly, v1beta2.StatusConfigCondition,
		v1beta2.StatusConfigCompliant, v1beta2.StatusConfigNonCompliant)
	tests := []struct {
		field   string
		accept  []string
		refuse  []string
		require bool
	}{
		{field: "spec.remediationAction",
			accept: texts(v1beta2.Inform, "Inform", v1beta2.Enforce, "Enforce"),
			refuse: []string{"", "ENFORCE", "enforced", " enforce", "InformOnly"}},
		{field: "spec.severity",
			accept: []string{"low", "Low", "medium", "Medium", "high", "High", "critical", "Critical"},
			refuse: []string{"", "HIGH", "severe"}},
		{field: "spec.complianceType", require: true,
			accept: texts(v1beta2.MustHave, v1beta2.MayHave, v1beta2.MustNotHave),
			refuse: []string{"", "MustHave", "MUSTHAVE", "mustonlyhave", "musthave "}},
		{field: "spec.upgradeApproval", require: true,
			accept: texts(v1beta2.UpgradeApprovalAutomatic, v1beta2.UpgradeApprovalNone, v1beta2.UpgradeApprovalNever),
			refuse: []string{"", "Manual", "automatic", "none"}},
		{field: "spec.planApproval",
			accept: texts(v1beta2.PlanApprovalIfRequested, v1beta2.PlanApprovalIfAllowed),
			refuse: []string{"", "ifAllowed", "Automatic", "Always", "IfAllowed "}},
		{field: "spec.deprecated",
			accept: texts(v1beta2.DeprecatedHold, v1beta2.DeprecatedAllow),
			refuse: []string{"", "hold", "Deny", "Hold "}},
		{field: "spec.deletion",
			accept: texts(v1beta2.DeletionAllow, v1beta2.DeletionConfirm, v1beta2.DeletionDeny),
			refuse: []string{"", "deny", "Hold", "Deny "}},
		{field: "spec.consent.permissions", accept: consent, refuse: []string{"", "hold", "Allow", "Deny"}},
		{field: "spec.consent.webhooks", accept: consent, refuse: []string{"", "hold", "Allow", "Deny"}},
		{field: "spec.consent.breakingCRDs", accept: consent, refuse: []string{"", "hold", "Allow", "Deny"}},
		{field: "spec.consent.images", accept: consent, refuse: []string{"", "hold", "Allow", "Deny"}},
		{field: "spec.consent.podSecurity", accept: consent, refuse: []string{"", "hold", "Allow", "Deny"}},
		{field: "spec.consent.scope", accept: consent, refuse: []string{"", "hold", "Allow", "Deny"}},
		{field: "spec.consent.firstInstall", accept: consent, refuse: []string{"", "hold", "Allow", "Deny"}},
		{field: "spec.catalog.image",
			accept: texts(v1beta2.CatalogHold, v1beta2.CatalogAllow),
			refuse: []string{"", "hold", "Warn", "Deny"}},
		{field: "spec.catalog.jump",
			accept: texts(v1beta2.CatalogHold, v1beta2.CatalogAllow),
			refuse: []string{"", "hold", "Warn", "Deny"}},
		{field: "spec.removalBehavior.operatorGroups",
			accept: append(texts(v1beta2.RemovalDeleteIfUnused), keepOrDelete...),
			refuse: []string{"", "keep", "deleteIfUnused"}},
		{field: "spec.removalBehavior.subscriptions", accept: keepOrDelete, refuse: []string{"", "delete", "DeleteIfUnused"}},
		{field: "spec.removalBehavior.clusterServiceVersions",
			accept: keepOrDelete, refuse: []string{"", "delete", "DeleteIfUnused"}},
		{field: "spec.removalBehavior.installPlans", accept: keepOrDelete, refuse: []string{"", "delete", "DeleteIfUnused"}},
		{field: "spec.removalBehavior.customResourceDefinitions",
			accept: keepOrDelete, refuse: []string{"", "delete", "DeleteIfUnused"}},
		{field: "spec.complianceConfig.catalogSourceUnhealthy", accept: compliance,
			refuse: []string{"", "compliant", "Condition"}},
		{field: "spec.complianceConfig.deploymentsUnavailable", accept: compliance, refuse: []string{"", "Noncompliant"}},
		{field: "spec.complianceConfig.upgradesAvailable", accept: compliance, refuse: []string{"", "StatusMessageOnly"}},
		{field: "spec.complianceConfig.upgradesProgressing", accept: compliance, refuse: []string{"", "Pending"}},
		{field: "spec.complianceConfig.deprecationsPresent", accept: compliance, refuse: []string{"", "Warning"}},
		{field: "spec.complianceConfig.minorChannelUpgradeAvailable", accept: compliance, refuse: []string{"", "Warning"}},
		{field: "spec.statusConfig.catalogSourceUnhealthy", accept: status, refuse: []string{"", "condition"}},
		{field: "spec.statusConfig.deploymentsUnavailable", accept: status, refuse: []string{"", "statusMessageOnly"}},
		{field: "spec.statusConfig.upgradesAvailable", accept: status, refuse: []string{"", "nonCompliant"}},
		{field: "spec.statusConfig.upgradesProgressing", accept: status, refuse: []string{"", "Ignore"}},
		{field: "status.compliant",
			accept: texts(v1beta2.Compliant, v1beta2.NonCompliant, v1beta2.Pending, v1beta2.Terminating),
			refuse: []string{"", "compliant", string(v1beta2.Inapplicable)}},
	}
	c := loadCRD(t)
	covered := map[string]bool{}
	for _, test := range tests {
		covered[test.field] = true
		path := strings.Split(test.field, ".")
		for _, value := range test.accept {
			obj := minimal()
			set(obj, "enforce", "spec", "remediationAction")
			set(obj, value, path...)
			if _, errs := c.Admit(obj); len(errs) > 0 {
				t.Errorf("%s: %q is refused: %v", test.field, value, errs)
			}
		}
		for _, value := range test.refuse {
			obj := minimal()
			set(obj, "enforce", "spec", "remediationAction")
			set(obj, value, path...)
			_, errs := c.Admit(obj)
			if len(errs) != 1 || errs[0].Field != test.field {
				t.Errorf("%s: %q should give one error at this field, gives %v", test.field, value, errs)
			}
		}
		obj := minimal()
		set(obj, nil, path...)
		_, errs := c.Admit(obj)
		if refused := len(errs) > 0; refused != test.require {
			t.Errorf("%s: left out, refused is %t, want %t: %v", test.field, refused, test.require, errs)
		}

		s := *c.Schema
		for _, key := range path {
			s = s.Properties[key]
		}
		var enum []string
		for _, value := range s.ValueValidation.Enum {
			enum = append(enum, value.Object.(string))
		}
		if want := slices.Sorted(slices.Values(test.accept)); !reflect.DeepEqual(slices.Sorted(slices.Values(enum)),
			want) {
			t.Errorf("%s: the schema has %v, the constants are %v", test.field, enum, want)
		}
	}

	// A new enum field has to get a line above.
	var walk func(path string, obj map[string]any)
	walk = func(path string, obj map[string]any) {
		for name, value := range obj {
			property, ok := value.(map[string]any)
			if !ok {
				continue
			}
			if property["enum"] != nil && !covered[path+name] {
				t.Errorf("%s%s has an enum that no case covers", path, name)
			}
			if properties, ok := property["properties"].(map[string]any); ok {
				walk(path+name+".", properties)
			}
		}
	}
	text, err := json.Marshal(c.Version.Schema.OpenAPIV3Schema.Properties)
	if err != nil {
		t.Fatal(err)
	}
	walk("", crdtest.Object(t, text))
}

func TestSchemaRefuses(t *testing.T) {
	many := make([]any, 1001)
	for i := range many {
		many[i] = "etcd.v0.9.4"
	}
	window, freeze := slices.Repeat([]any{map[string]any{"cron": "0 22 * * 6", "duration": "4h"}}, 17),
		slices.Repeat([]any{map[string]any{"start": "a", "end": "b"}}, 65)
	tests := []struct {
		name  string
		path  string
		value any    // nil removes the field
		at    string // where the error is; path if empty
	}{
		{name: "no spec", path: "spec"},
		{name: "no subscription", path: "spec.subscription"},
		{name: "subscription is text", path: "spec.subscription", value: "etcd"},
		{name: "no package", path: "spec.subscription.name"},
		{name: "empty package", path: "spec.subscription.name", value: ""},
		{name: "package is a number", path: "spec.subscription.name", value: int64(1)},
		{name: "operator group without a name", path: "spec.operatorGroup", value: map[string]any{"namespace": "shop"},
			at: "spec.operatorGroup.name"},
		{name: "operator group with an empty name", path: "spec.operatorGroup", value: map[string]any{"name": ""},
			at: "spec.operatorGroup.name"},
		{name: "target is text", path: "spec.operatorGroup", value: map[string]any{"name": "g", "target": "shop"},
			at: "spec.operatorGroup.target"},
		{name: "versions is text", path: "spec.versions", value: "etcd.v0.9.4"},
		{name: "a version is a number", path: "spec.versions", value: []any{int64(1)}, at: "spec.versions[0]"},
		{name: "too many versions", path: "spec.versions", value: many},
		{name: "version range too long", path: "spec.versionRange", value: strings.Repeat(" ", 1024) + "1"},
		{name: "a policy that informs approves plans", path: "spec.planApproval", value: "IfAllowed"},
		{name: "a mustnothave policy approves plans", path: "spec", at: "spec.planApproval",
			value: map[string]any{"remediationAction": "enforce", "complianceType": "mustnothave",
				"upgradeApproval": "Automatic", "planApproval": "IfRequested",
				"subscription": map[string]any{"name": "etcd"}}},
		{name: "consent is text", path: "spec.consent", value: "Hold"},
		{name: "accepted is text", path: "spec.consent.accepted", value: "sha256:aa"},
		{name: "too many accepted", path: "spec.consent.accepted", value: many[:65]},
		{name: "catalog is text", path: "spec.catalog", value: "Hold"},
		{name: "accepted images are text", path: "spec.catalog.accepted", value: "sha256:aa"},
		{name: "too many accepted images", path: "spec.catalog.accepted", value: many[:65]},
		{name: "no package may change", path: "spec.catalog.maxChangedPackages", value: int64(0)},
		{name: "windows are text", path: "spec.approvalWindows", value: "0 22 * * 6"},
		{name: "a window without a duration", path: "spec.approvalWindows",
			value: []any{map[string]any{"cron": "0 22 * * 6"}},
			at:    "spec.approvalWindows[0].duration"},
		{name: "too many windows", path: "spec.approvalWindows", value: window[:17]},
		{name: "a freeze without an end", path: "spec.freezes",
			value: []any{map[string]any{"start": "2026-12-15T00:00:00Z"}}, at: "spec.freezes[0].end"},
		{name: "an age is a number", path: "spec.minimumAge", value: int64(7)},
		{name: "a wait is a number", path: "spec.maximumWait", value: int64(7)},
		{name: "too many urgent versions", path: "spec.urgent", value: many[:65]},
		{name: "exceptions are text", path: "spec.exceptions", value: "bundle/version"},
		{name: "an exception without an end", path: "spec.exceptions", value: []any{without(exception(), "expires")},
			at: "spec.exceptions[0].expires"},
		{name: "an exception without rules", path: "spec.exceptions", value: []any{without(exception(), "rules")},
			at: "spec.exceptions[0].rules"},
		{name: "an exception without versions", path: "spec.exceptions", value: []any{without(exception(), "versions")},
			at: "spec.exceptions[0].versions"},
		{name: "an exception without a reason", path: "spec.exceptions", value: []any{without(exception(), "reason")},
			at: "spec.exceptions[0].reason"},
		{name: "too many exceptions", path: "spec.exceptions", value: slices.Repeat([]any{exception()}, 33)},
		{name: "too many freezes", path: "spec.freezes", value: freeze[:65]},
		{name: "removal behavior is text", path: "spec.removalBehavior", value: "Keep"},
		{name: "two conditions of one type", path: "status.conditions", value: []any{condition(), condition()},
			at: "status.conditions[1]"},
		{name: "condition without a reason", path: "status.conditions", value: []any{without(condition(), "reason")},
			at: "status.conditions[0].reason"},
		{name: "history without a time", path: "status.history", value: []any{map[string]any{"message": "Compliant; "}},
			at: "status.history[0].lastTimestamp"},
	}
	c := loadCRD(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			obj := minimal()
			set(obj, test.value, strings.Split(test.path, ".")...)
			at := test.at
			if at == "" {
				at = test.path
			}
			_, errs := c.Admit(obj)
			if len(errs) != 1 || errs[0].Field != at {
				t.Errorf("should give one error at %s, gives %v", at, errs)
			}
		})
	}
}

func TestSchemaLimitsAreInclusive(t *testing.T) {
	many := make([]any, 1000)
	for i := range many {
		many[i] = "etcd.v0.9.4, etcd.v0.9.2"
	}
	obj := minimal()
	set(obj, many, "spec", "versions")
	set(obj, strings.Repeat(" ", 1019)+"1.2.3", "spec", "versionRange")
	set(obj, many[:64], "spec", "consent", "accepted")
	set(obj, many[:64], "spec", "catalog", "accepted")
	set(obj, slices.Repeat([]any{map[string]any{"cron": "0 22 * * 6", "duration": "4h"}}, 16), "spec",
		"approvalWindows")
	set(obj, slices.Repeat([]any{map[string]any{"start": "a", "end": "b"}}, 64), "spec", "freezes")
	set(obj, many[:64], "spec", "urgent")
	set(obj, slices.Repeat([]any{exception()}, 32), "spec", "exceptions")
	if _, errs := loadCRD(t).Admit(obj); len(errs) > 0 {
		t.Error(errs)
	}
}

func exception() map[string]any {
	return map[string]any{"versions": []any{"a"}, "rules": []any{"bundle/version"}, "reason": "why",
		"expires": "2026-12-15T00:00:00Z"}
}

func condition() map[string]any {
	return map[string]any{"type": "Compliant", "status": "True", "reason": "Compliant", "message": "",
		"lastTransitionTime": "2024-04-09T14:42:11Z"}
}

func without(obj map[string]any, key string) map[string]any {
	delete(obj, key)
	return obj
}

// The earliest dialect, sent as v1beta2: the schema asks for upgradeApproval, and the prohibited field is
// still there for the webhook to answer with the fix.
func TestOldDialectAsV1beta2(t *testing.T) {
	for _, value := range []any{"Automatic", "Manual", "", true, map[string]any{"a": "b"}} {
		obj := minimal()
		set(obj, nil, "spec", "upgradeApproval")
		set(obj, value, "spec", "subscription", "installPlanApproval")
		pruned, errs := loadCRD(t).Admit(obj)
		if len(pruned) > 0 {
			t.Errorf("%v: pruned %v", value, pruned)
		}
		if len(errs) != 1 || errs[0].Field != "spec.upgradeApproval" {
			t.Errorf("%v: should give one error at spec.upgradeApproval, gives %v", value, errs)
		}
		text, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if policy := decode(t, text); policy.Spec.Subscription.InstallPlanApproval == nil {
			t.Errorf("%v: installPlanApproval is lost in the types", value)
		}
	}
}

// Unknown fields anywhere in the spec reach the webhook, which refuses them by path; a typo that vanished
// would be a setting that silently does not apply: a policy with "version" would allow every version.
func TestUnknownFields(t *testing.T) {
	kept := []string{
		"spec.subscription.chanel",
		"spec.subscription.InstallPlanApproval",
		"spec.operatorGroup.targetNamespace",
		"spec.operatorGroup.target.namespace",
		"spec.version",
		"spec.complianceConfig.upgradeAvailable",
		"spec.consent.permission",
		"spec.catalog.images",
		"spec.statusConfig.upgradeAvailable",
		"spec.removalBehavior.installPlan",
	}
	dropped := []string{
		"extra",
		"status.extra",
	}
	c := loadCRD(t)
	for _, field := range append(slices.Clone(kept), dropped...) {
		obj := minimal()
		set(obj, "group", "spec", "operatorGroup", "name")
		set(obj, map[string]any{"deep": []any{"x"}}, strings.Split(field, ".")...)
		pruned, errs := c.Admit(obj)
		if len(errs) > 0 {
			t.Errorf("%s: %v", field, errs)
		}
		var want []string
		if slices.Contains(dropped, field) {
			want = []string{field}
		}
		if !slices.Equal(pruned, want) {
			t.Errorf("%s: pruned %v, want %v", field, pruned, want)
		}
	}
}

// A policy that is distributed with templates has text where the resolved policy has a list or an object.
func TestTemplateText(t *testing.T) {
	const text = `{{ fromConfigMap "ops" "etcd" "settings" | toLiteral }}`
	anyJSON := []string{
		"spec.subscription.config",
		"spec.operatorGroup.targetNamespaces",
		"spec.operatorGroup.selector",
		"spec.operatorGroup.staticProvidedAPIs",
		"spec.operatorGroup.target.namespaces",
		"spec.operatorGroup.target.selector",
	}
	plain := []string{
		"spec.subscription.name", "spec.subscription.namespace", "spec.subscription.channel",
		"spec.subscription.source",
		"spec.subscription.sourceNamespace", "spec.subscription.startingCSV", "spec.operatorGroup.name",
		"spec.operatorGroup.namespace",
		"spec.operatorGroup.serviceAccountName", "spec.operatorGroup.upgradeStrategy",
	}
	c := loadCRD(t)
	check := func(field string, value any) {
		obj := minimal()
		set(obj, "group", "spec", "operatorGroup", "name")
		set(obj, value, strings.Split(field, ".")...)
		if pruned, errs := c.Admit(obj); len(pruned) > 0 || len(errs) > 0 {
			t.Errorf("%s: %v: pruned %v, refused %v", field, value, pruned, errs)
		}
		encoded, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		back, err := json.Marshal(decode(t, encoded))
		if err != nil {
			t.Fatal(err)
		}
		if got := crdtest.Object(t, back); !reflect.DeepEqual(got, obj) {
			t.Errorf("%s: through the types and back:\n got %v\nwant %v", field, got, obj)
		}
	}
	for _, field := range append(plain, anyJSON...) {
		check(field, text)
	}
	for _, field := range anyJSON {
		for _, value := range []any{true, []any{"shop", "bank"},
			map[string]any{"matchLabels": map[string]any{"a": "b"}}, map[string]any{}} {
			check(field, value)
		}
	}
	check("spec.versions", []any{`{{ if eq 1 1 }}etcd.v0.9.4,etcd.v0.9.2{{ end }}`, " "})
}
