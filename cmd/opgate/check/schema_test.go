package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// list is a YAML list of as many texts.
func list(n int, text string) string {
	return "[" + strings.Repeat(text+", ", n-1) + text + "]"
}

// TestN3CheckValidatesTheSchema has what the definition of a kind refuses, so that an API server refuses it before it
// asks the gate. Each is refused with the file and the line of the object, and the field.
func TestN3CheckValidatesTheSchema(t *testing.T) {
	const policy = `apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: etcd, namespace: policies}
spec:
  complianceType: musthave
  upgradeApproval: Automatic
  subscription: {name: etcd, namespace: shop}
`
	const earlier = `apiVersion: policy.open-cluster-management.io/v1beta1
kind: OperatorPolicy
metadata: {name: etcd, namespace: policies}
spec:
  complianceType: musthave
  upgradeApproval: Automatic
  subscription: {name: etcd, namespace: shop}
`
	const ordered = `apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: app, namespace: shop}
spec:
  disabled: false
`
	const template = `  policy-templates:
  - objectDefinition: {apiVersion: v1, kind: ConfigMap, metadata: {name: app}}
`
	const set = `apiVersion: policy.open-cluster-management.io/v1beta1
kind: PolicySet
metadata: {name: base, namespace: shop}
spec:
`
	const constraint = `apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: curated}
spec:
`
	ranges := strings.Repeat(">=1.0.0 || ", 8_000) + ">=1.0.0"
	for _, tc := range []struct {
		name, text string
		// field is what the refusal names; empty if there is none.
		field string
		// line is that of the object, 3 if it is 0.
		line int
	}{
		{name: "control: an OperatorPolicy", text: policy},
		{name: "control: an OperatorPolicy of v1beta1", text: earlier},
		{name: "control: a Policy", text: ordered + template},
		{name: "control: a PolicySet", text: set + "  policies: []\n"},
		{name: "control: a Constraint", text: constraint + "  properties: '[]'\n"},
		{name: "control: the longest range", text: policy + "  versionRange: '" + strings.Repeat(" ", 1017) +
			">=1.0.0'\n"},
		{name: "a range of 8,000 alternatives", text: policy + "  versionRange: '" + ranges + "'\n",
			field: "spec.versionRange"},
		{name: "a severity that does not exist", text: policy + "  severity: grave\n", field: "spec.severity"},
		{name: "too many versions", text: policy + "  versions: " + list(1_001, "etcd.v1") + "\n", field: "spec.versions"},
		{name: "an entry that is too long", text: policy + "  versions: ['" + strings.Repeat("a,", 32_769) + "']\n",
			field: "spec.versions[0]"},
		{name: "too many versions in v1beta1", text: earlier + "  versions: " + list(1_001, "etcd.v1") + "\n",
			field: "spec.versions"},
		{name: "a setting that does not exist", text: policy + "  complianceConfig: {upgradesAvailable: Never}\n",
			field: "spec.complianceConfig.upgradesAvailable"},
		{name: "too many dependencies", text: ordered + template + "  dependencies: " +
			list(501, "{kind: Policy, name: db, compliance: Compliant}") + "\n",
			field: "spec.dependencies"},
		{name: "a kind that is too long", text: ordered + template + "  dependencies: [{kind: " +
			strings.Repeat("A", 64) + ", name: db, compliance: Compliant}]\n",
			field: "spec.dependencies[0].kind"},
		{name: "a rule of the schema", text: ordered + template +
			"  dependencies: [{kind: ConfigurationPolicy, name: db, namespace: other, compliance: Compliant}]\n",
			field: "spec.dependencies[0].namespace"},
		{name: "too many members", text: set + "  policies: " + list(1_001, "a") + "\n", field: "spec.policies"},
		{name: "a member without a name", text: set + "  policies: [a, '']\n", field: "spec.policies[1]"},
		{name: "no members", text: set + "  description: none\n", field: "spec.policies"},
		{name: "constraints that are too long", text: constraint + "  constraints: '[" + strings.Repeat(" ", 1<<20) +
			"]'\n", field: "spec.constraints"},
		{name: "an OperatorPolicy in a Policy", text: ordered + "  policy-templates:\n  - objectDefinition:\n" +
			"      " + strings.ReplaceAll(strings.TrimSpace(policy), "\n", "\n      ") + "\n        severity: grave\n",
			field: "spec.severity", line: 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "manifests.yaml")
			if err := os.WriteFile(file, []byte("# a comment\n---\n"+tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, problems bytes.Buffer
			cmd := Command(time.Now)
			cmd.SetArgs([]string{"-f", file, "-o", "json"})
			cmd.SetOut(&out)
			cmd.SetErr(&problems)
			err := cmd.Execute()
			if refused := err != nil; refused != (tc.field != "") {
				t.Fatalf("refused: %t (%v)\n%s%s", refused, err, problems.String(), out.String())
			}
			if tc.field != "" {
				checkRefused(t, out.Bytes(), tc.field, cmp.Or(tc.line, 3))
			}
		})
	}
}

// TestDefinitionsOfOLM has what the definitions of OLM's kinds refuse beyond unknown fields, wrong types and fields
// that are missing: the input cannot be used, and the field and its line are named.
func TestDefinitionsOfOLM(t *testing.T) {
	const source = `apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: team, namespace: shop}
spec:
  sourceType: grpc
  image: registry.example/catalog:v1
  grpcPodConfig:
    securityContextConfig: `
	const group = `apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: shop, namespace: shop}
spec:
  upgradeStrategy: `
	const subscription = `apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: etcd, namespace: shop}
spec:
  name: etcd
  source: team
  sourceNamespace: shop
  config:
    resources:
      limits:
        memory: `
	for _, tc := range []struct{ name, text, problem string }{
		{name: "control: a security context", text: source + "restricted"},
		{name: "control: an upgrade strategy", text: group + "Default"},
		{name: "control: a quantity", text: subscription + "1Gi"},
		{name: "a security context that does not exist", text: source + "<security_mode>",
			problem: `line 8: spec.grpcPodConfig.securityContextConfig: Unsupported value: "<security_mode>": supported values: "legacy", "restricted"`},
		{name: "an upgrade strategy that does not exist", text: group + "Fast",
			problem: `line 5: spec.upgradeStrategy: Unsupported value: "Fast": supported values: "Default", "TechPreviewUnsafeFailForward"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "manifests.yaml")
			if err := os.WriteFile(file, []byte(tc.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var problems bytes.Buffer
			cmd := Command(time.Now)
			cmd.SetArgs([]string{"-f", file})
			cmd.SetOut(&problems)
			cmd.SetErr(io.Discard)
			err := cmd.Execute()
			if refused := err != nil; refused != (tc.problem != "") ||
				!strings.Contains(problems.String(), tc.problem) {
				t.Errorf("refused: %t (%v), want %q:\n%s", refused, err, tc.problem, problems.String())
			}
		})
	}
}

// checkRefused checks that one object in the output is refused in one field.
func checkRefused(t *testing.T, output []byte, field string, line int) {
	t.Helper()
	var found document
	if err := json.Unmarshal(output, &found); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	refused := 0
	for _, r := range found.Items {
		if r.Decision != "Deny" {
			continue
		}
		refused++
		if len(r.Reasons) == 0 || !strings.HasPrefix(r.Reasons[0].Message, field+": ") ||
			len(r.Reasons[0].Message) > 1_000 ||
			filepath.Base(r.File) != "manifests.yaml" || r.Line != line {
			t.Errorf("%s:%d: %.2000q, want %s in line %d", r.File, r.Line, r.Reasons, field, line)
		}
	}
	if refused != 1 {
		t.Errorf("%d objects are refused:\n%.2000s", refused, output)
	}
}
