package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/manifests/crd"
)

// whole is a policy with every structure that a spec may have.
const whole = `{"complianceType":"musthave","upgradeApproval":"None","remediationAction":"enforce",
	"subscription":{"name":"etcd","namespace":"shop"},"operatorGroup":{"name":"group","target":{}},
	"versions":["etcd.v1"],"urgent":["etcd.v1"],"consent":{},"catalog":{},
	"approvalWindows":[{"cron":"0 22 * * 6","duration":"4h"}],
	"freezes":[{"start":"2026-12-15T00:00:00Z","end":"2026-12-16T00:00:00Z"}],
	"exceptions":[{"versions":["etcd.v1"],"rules":["bundle/version"],"reason":"why","expires":"2026-12-15T00:00:00Z"}],
	"complianceConfig":{},"statusConfig":{},"removalBehavior":{}}`

// TestSchemaReadsASpecOnce reads a policy again, as with each status, and one that differs.
func TestSchemaReadsASpecOnce(t *testing.T) {
	op, n := operatorPolicy("etcd", nil), 0
	if err := json.Unmarshal([]byte(whole), &op.Spec); err != nil {
		t.Fatal(err)
	}
	read := func() { NewOperatorPolicy(op) }
	again := testing.AllocsPerRun(20, read)
	other := testing.AllocsPerRun(20, func() {
		n++
		op.Spec.Subscription.Channel = fmt.Sprint(n)
		read()
	})
	if again > other/2 {
		t.Errorf("reading a policy again takes %v allocations, another one %v", again, other)
	}
}

// TestWhatTheSchemaRefusesIsAFault stores, for each keyword and each rule in CEL of the schema, a value that it does
// not admit, as an earlier release or another program may have. The policy is not valid at that field, and what it
// governs is held unless only the loop reads the field.
func TestWhatTheSchemaRefusesIsAFault(t *testing.T) {
	raw, err := crd.Definitions.ReadFile("policy.open-cluster-management.io_operatorpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(definition.Spec.Versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == policyv1beta2.Version })
	tried := 0
	check := func(path []string, value any, keyword string) {
		tried++
		var content any
		if err := json.Unmarshal([]byte(whole), &content); err != nil {
			t.Fatal(err)
		}
		into := content
		for _, step := range path[:len(path)-1] {
			if list, ok := into.([]any); ok {
				into = list[0]
			} else {
				into = into.(map[string]any)[step]
			}
		}
		if list, ok := into.([]any); ok {
			list[0] = value
		} else if fields := into.(map[string]any); value == nil {
			delete(fields, path[len(path)-1])
		} else {
			fields[path[len(path)-1]] = value
		}
		encoded, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		op := operatorPolicy("etcd", nil)
		op.Spec = policyv1beta2.OperatorPolicySpec{}
		if err := json.Unmarshal(encoded, &op.Spec); err != nil {
			t.Fatalf("%s at %v: %v", keyword, path, err)
		}
		p, field := NewOperatorPolicy(op), strings.ReplaceAll("spec."+strings.Join(path, "."), ".[0]", "[0]")
		found := ""
		for _, err := range p.Invalid {
			if strings.HasPrefix(err.Field, field) {
				found = err.Field
			}
		}
		reported := slices.ContainsFunc([]string{"severity", "operatorGroup", "removalBehavior", "deletion",
			"planApproval", "maximumWait", "complianceConfig", "statusConfig", "exceptions"},
			func(f string) bool { return f == path[0] })
		switch {
		case found == "":
			t.Errorf("%s at %s is no fault: %v", keyword, field, p.Invalid)
		case !reported && !strings.Contains(p.Unreadable(), found+" is not valid"):
			t.Errorf("%s at %s does not hold: %q", keyword, field, p.Unreadable())
		}
	}
	var walk func(path []string, s *apiextensionsv1.JSONSchemaProps)
	walk = func(path []string, s *apiextensionsv1.JSONSchemaProps) {
		path = slices.Clip(path)
		if len(s.Enum) > 0 {
			check(path, "none of these", "enum")
		}
		if s.MaxLength != nil {
			check(path, strings.Repeat("1", int(*s.MaxLength)+1), "maxLength")
		}
		if s.MinLength != nil {
			check(path, "", "minLength")
		}
		if s.MinItems != nil {
			check(path, []any{}, "minItems")
		}
		if s.MaxItems != nil {
			item := json.RawMessage(`"etcd.v1"`)
			if s.Items.Schema.Type == "object" {
				item = json.RawMessage(`{}`)
			}
			check(path, slices.Repeat([]any{item}, int(*s.MaxItems)+1), "maxItems")
		}
		for _, rule := range s.XValidations {
			if rule.FieldPath == "" { // the others are about two fields
				check(path, strings.Repeat(" ", 254), rule.Rule)
			}
		}
		if s.Minimum != nil {
			check(path, *s.Minimum-2, "minimum")
		}
		if s.Maximum != nil {
			check(path, *s.Maximum+1, "maximum")
		}
		for _, name := range s.Required {
			if property := s.Properties[name]; property.Type != "object" {
				check(append(path, name), nil, "required")
			}
		}
		for name, property := range s.Properties {
			walk(append(path, name), &property)
		}
		if s.Items != nil {
			walk(append(path, "[0]"), s.Items.Schema)
		}
	}
	spec := definition.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
	walk(nil, &spec)
	if p := NewOperatorPolicy(decodedPolicy(t, fmt.Sprintf(`{"metadata":{"name":"p"},"spec":%s}`, whole))); len(p.Invalid) > 0 {
		t.Errorf("the policy itself is not valid: %v", p.Invalid)
	}
	if tried < 70 {
		t.Errorf("%d values were tried, want at least 70", tried)
	}
}

func decodedPolicy(t *testing.T, raw string) *policyv1beta2.OperatorPolicy {
	t.Helper()
	op, strict, err := DecodeOperatorPolicy(bytes.TrimSpace([]byte(raw)))
	if err != nil || len(strict) > 0 {
		t.Fatal(err, strict)
	}
	return op
}
