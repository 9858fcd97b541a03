package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/cmd/opgate/compile"
)

const (
	identity = "--olm-identity=system:serviceaccount:olm:olm-operator-serviceaccount"
	sample   = "../../manifests/samples/bundle-version-deny.yaml"
	head     = "apiVersion: policy.open-cluster-management.io/v1beta2\nkind: OperatorPolicy\n"
	policy   = head + `metadata: {name: etcd, namespace: policies}
spec:
  remediationAction: enforce
  complianceType: musthave
  subscription: {name: etcd, namespace: shop}
  upgradeApproval: Automatic
  versions: [etcd.v1]
`
)

// compiled runs the command and returns what it prints.
func compiled(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := compile.Command(time.Now)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&problems)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), problems.String(), err
}

// TestCompile: every flag changes what is printed.
func TestCompile(t *testing.T) {
	for name, c := range map[string]struct {
		args        []string
		has, hasNot []string
		kinds       int
	}{
		"default": {nil, []string{"kind: MutatingAdmissionPolicy\n", "- Deny", "- opgate-system",
			"shop etcd allow policies/etcd * =etcd.v1", "name: opgate-unpacked", "name: opgate-evidence"}, []string{"status:\n  ", "- Audit"}, 8},
		"audit": {[]string{"--audit"}, []string{"- Audit", "- Warn"},
			[]string{"- Deny", "kind: MutatingAdmissionPolicy"}, 6},
		"older": {[]string{"--mutating=false", "--semver=false"}, []string{"- Deny"},
			[]string{"semver(", "kind: MutatingAdmissionPolicy"}, 6},
		"deny":     {[]string{"--approval-mode=deny"}, []string{"name: generated-by-olm"}, nil, 8},
		"excluded": {[]string{"--excluded-namespace=shop"}, []string{"- shop"}, []string{"shop etcd allow"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			out, problems, err := compiled(t, policy, append(c.args, "-f", "-", identity)...)
			if err != nil || problems != "" {
				t.Fatal(err, problems)
			}
			joined := strings.Join(strings.Fields(out), " ") // the YAML has line breaks in expressions
			for _, text := range c.has {
				if !strings.Contains(out, text) && !strings.Contains(joined, text) {
					t.Errorf("no %q in\n%.3000s", text, out)
				}
			}
			for _, text := range c.hasNot {
				if strings.Contains(out, text) || strings.Contains(joined, text) {
					t.Errorf("%q in\n%.3000s", text, out)
				}
			}
			if n := strings.Count(out, "\nkind: "); n != c.kinds {
				t.Errorf("%d objects, want %d", n, c.kinds)
			}
		})
	}
	first, _, _ := compiled(t, "", "-f", sample, identity)
	if second, _, _ := compiled(t, "", "-f", sample, identity); first == "" || first != second {
		t.Error("the output differs from run to run")
	}
}

// TestCompileKustomization: a kustomization is built, named as an argument or by -f; of several overlays one has to be
// named.
func TestCompileKustomization(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"base/kustomization.yaml": "resources: [etcd.yaml]\n", "base/etcd.yaml": policy,
		"prod/kustomization.yaml": "resources: [../base]\npatches: [{target: {kind: OperatorPolicy}, patch: '- {op: replace, path: /spec/versions/0, value: etcd.v2}'}]\n",
		"dev/kustomization.yaml":  "resources: [../base]\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	byPath, problems, err := compiled(t, "", "prod", identity)
	byFlag, _, _ := compiled(t, "", "-f", "prod", identity)
	if err != nil || problems != "" || byPath != byFlag || !strings.Contains(byPath, "etcd.v2") ||
		strings.Contains(byPath, "etcd.v1") {
		t.Errorf("%v %q\n%.2000s", err, problems, byPath)
	}
	if out, _, err := compiled(t, "", ".", identity); err == nil || out != "" ||
		!strings.Contains(err.Error(), "1 problem in the input") {
		t.Errorf("%v\n%.2000s", err, out)
	}
}

// TestCompileTemplates: a policy that is resolved on the cluster is left to the webhooks, and named.
func TestCompileTemplates(t *testing.T) {
	resolved := strings.Replace(policy, "[etcd.v1]", `['{{ fromConfigMap "a" "b" "c" }}']`, 1)
	out, problems, err := compiled(t, resolved, "-f", "-", identity)
	if err != nil || !strings.Contains(problems, "OperatorPolicy policies/etcd has templates") ||
		!strings.Contains(strings.Join(strings.Fields(out), " "), "shop etcd nothing policies/etcd") {
		t.Errorf("%v %q\n%.2000s", err, problems, out)
	}
}

// TestCompileLeft: a policy that the API server could not evaluate is left to the webhooks, and named.
func TestCompileLeft(t *testing.T) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("etcd.v%d-%s", i, strings.Repeat("x", 100))
	}
	out, problems, err := compiled(t, strings.Replace(policy, "[etcd.v1]", "["+strings.Join(names, ",")+"]", 1), "-f",
		"-", identity)
	if err != nil || !strings.HasPrefix(problems, "OperatorPolicy policies/etcd has lists that are too long") ||
		strings.Contains(out, names[0]) {
		t.Errorf("%v %q\n%.2000s", err, problems, out)
	}
}

// TestCompileBadInput: nothing is printed, and the exit code is 2.
func TestCompileBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"nothing":     {"", []string{identity}, "no input"},
		"no identity": {policy, []string{"-f", "-"}, "--olm-identity is missing"},
		"identity": {policy, []string{"-f", "-", "--olm-identity=admin@example.com"},
			"is not the user name of a service account"},
		"mode": {policy, []string{"-f", "-", identity, "--approval-mode=ignore"},
			`invalid argument "ignore" for "--approval-mode" flag`},
		"namespace":      {policy, []string{"-f", "-", identity, "--excluded-namespace=A"}, `namespace "A"`},
		"argument":       {policy, []string{identity, "x.yaml"}, "x.yaml: cannot be read"},
		"mode alone":     {"", []string{"--static=x", identity}, "--olm-identity is for policies"},
		"flag":           {policy, []string{identity, "--force"}, "unknown flag"},
		"no kind":        {strings.TrimPrefix(policy, head), []string{"-f", "-", identity}, "2 problems in the input"},
		"unknown field":  {policy + "kind: OperatorPolicy\n", []string{"-f", "-", identity}, "1 problem in the input"},
		"not a manifest": {"{", []string{"-f", "-", identity}, "1 problem in the input"},
		"no file":        {"", []string{"-f", "absent.yaml", identity}, "absent.yaml: cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := compiled(t, c.stdin, c.args...)
			if err == nil || out != "" || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v and %d bytes, want %q", err, len(out), c.want)
			}
		})
	}
}

// TestCompileConstraints: a Constraint protects the namespaces of the operators that are among the files.
func TestCompileConstraints(t *testing.T) {
	const keep = `apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: keep}
spec: {deletion: {action: Deny, packages: [etcd]}}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: any, namespace: shop}
spec: {name: etcd, source: hub, sourceNamespace: olm}
`
	out, problems, err := compiled(t, keep, "-f", "-", identity)
	if err != nil || problems != "" {
		t.Fatal(err, problems)
	}
	_, deletions, _ := strings.Cut(strings.Join(strings.Fields(out), " "), "name: opgate-deletion")
	for _, row := range []string{"package:etcd Deny keep 0", "shop Deny keep 0"} {
		if !strings.Contains(deletions, row) {
			t.Errorf("no %q in\n%.3000s", row, deletions)
		}
	}
}
