package check

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	policyText = `apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: etcd, namespace: policies}
spec:
  remediationAction: enforce
  complianceType: mustnothave
  upgradeApproval: None
  subscription: {name: etcd, namespace: shop}
`
	// forbidden is refused by the policy: an attack hides it.
	forbidden = `apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: etcd, namespace: shop}
spec: {name: etcd, source: s, sourceNamespace: olm}
`
	constraintText = `apiVersion: operators.coreos.com/v2
kind: Constraint
metadata: {name: curated}
spec: {constraints: '[{"type":"olm.constraint","value":{"rule":"catalog.name == \"curated\""}}]'}
`
)

// run is the command on standard input.
func run(data []byte, args ...string) (stdout, stderr string, code int) {
	cmd := Command(time.Now)
	var out, errs bytes.Buffer
	cmd.SetIn(bytes.NewReader(data))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{"-f", "-"}, args...))
	err := cmd.Execute()
	if coded, ok := errors.AsType[*cli.ExitError](err); ok {
		code = coded.ExitCode()
	} else if err != nil {
		code = -1
	}
	return out.String(), errs.String(), code
}

// Whatever the bytes, what stands in them is judged or a problem that concerns operators.
func TestAttacks(t *testing.T) {
	deep := func(open, shut string, n int) string { return strings.Repeat(open, n) + "0" + strings.Repeat(shut, n) }
	tests := []struct {
		name string
		data string
		code int
		// want is part of the output.
		want string
	}{
		{"byte order mark", "\ufeff" + policyText + "---\n" + forbidden, 1, "1 allowed, 0 held, 1 denied"},
		{"byte order mark before JSON", "\ufeff" + `{"apiVersion":"v1","kind":"Subscription","metadata":{}}`, 0,
			"nothing to judge"},
		{"byte order mark in the middle", policyText + "---\n\ufeff" + forbidden, 2, "stdin: document 2, line "},
		{"carriage returns and line feeds", strings.ReplaceAll(policyText+"---\n"+forbidden, "\n", "\r\n"), 1,
			"1 allowed, 0 held, 1 denied"},
		{"carriage returns only", strings.ReplaceAll(policyText+"---\n"+forbidden, "\n", "\r"), 2,
			"there is more after the end of the document"},
		{"a document behind a line separator", policyText + "\u2028---\u2028" + forbidden, 2,
			"there is more after the end of the document"},
		{"a document behind a next-line character", policyText + "\u0085---\u0085" + forbidden, 2,
			"there is more after the end of the document"},
		{"a document behind an end marker", policyText + "...\n" + forbidden, 1, "1 allowed, 0 held, 1 denied"},
		{"a document behind an end marker with a comment", policyText + "... # done\n# nothing more\n" + forbidden, 1,
			"1 allowed, 0 held, 1 denied"},
		{"a document on the line of its marker", policyText +
			"--- {apiVersion: operators.coreos.com/v1alpha1, kind: Subscription, metadata: {name: x, namespace: shop}, spec: {name: etcd, source: s, sourceNamespace: olm}}", 1, "1 allowed, 0 held, 1 denied"},
		{"a document behind a directive", "%YAML 1.1\n---\n" + policyText + "...\n%YAML 1.1\n---\n" + forbidden, 1,
			"1 allowed, 0 held, 1 denied"},
		{"a document behind one in flow style", "{apiVersion: v1, kind: ConfigMap}\n" + forbidden, 2,
			"stdin: document 1, line "},
		{"a document behind one in JSON", `{"apiVersion": "v1", "kind": "ConfigMap"}` + "\n" + forbidden, 2,
			"stdin: document 2, line 2: is not JSON"},
		{"no marker between JSON and JSON",
			`{"apiVersion":"v1","kind":"ConfigMap"}{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription"}`, 2, "stdin: document 2, line 1: metadata.name is missing"},
		{"a marker in a block of text", "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: |\n    ---\n    ...\n", 0,
			"nothing to judge"},
		{"a marker that is none", policyText + "---\n" + forbidden + "---x: 1\n", 2,
			"stdin: document 2, line 14: ---x is not a field"},
		{"a name through an alias", policyText + "---\n" +
			strings.Replace(forbidden, "kind: Subscription", "kind: &k Subscription", 1) + "---\nkind: *k\n", 2,
			"stdin: document 3, line "},
		{"fields through a merge key", policyText +
			"---\napiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: x, namespace: shop, annotations: &a {name: etcd}}\nspec: {<<: *a, source: s, sourceNamespace: olm}\n", 1, "1 allowed, 0 held, 1 denied"},
		{"an alias within what it stands for", "a: &a\n- *a\n", 0, "stdin: document 1, line "},
		{"aliases that explode",
			"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
				"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", 0, "excessive aliasing"},
		{"a binary tag", "apiVersion: v1\nkind: !!binary U3Vic2NyaXB0aW9u\n", 0, "nothing to judge"},
		{"a kind in binary", policyText + "---\n" + strings.Replace(forbidden, "kind: Subscription",
			"kind: !!binary U3Vic2NyaXB0aW9u", 1), 1, "1 allowed, 0 held, 1 denied"},
		{"a tag that makes a number of the name", strings.Replace(forbidden, "name: etcd, namespace",
			"name: !!float 1, namespace", 1), 2, "metadata.name must be of type string, not number"},
		{"the same key in two types", "apiVersion: v1\nkind: ConfigMap\ndata: {1: a, \"1\": b}\n", 0,
			"line 3: data.1 is set twice: remove one"},
		{"a key that is a list", "apiVersion: v1\nkind: ConfigMap\n[a]: b\n", 0, "stdin: document 1, line "},
		{"a key in capitals", strings.Replace(forbidden, "spec:", "Spec:", 1), 2, "Spec is not a field of Subscription"},
		{"bytes that are not UTF-8", policyText + "# \xff\n", 2, "stdin: line 9: is not UTF-8 text"},
		{"UTF-16", "\xff\xfek\x00i\x00n\x00d\x00", 0, "stdin: line 1: is not UTF-8 text"},
		{"UTF-16 without a mark", "k\x00i\x00n\x00d\x00:\x00", 0,
			"stdin: document 1, line 1: is not YAML: control characters are not allowed"},
		{"a NUL behind a document", policyText + "\x00" + forbidden, 2, "control characters are not allowed"},
		{"only white space", " \t\r\n\n", 0, "nothing to judge"},
		{"only a marker", "---", 0, "nothing to judge"},
		{"an unclosed quote", "kind: \"x\n", 0, "stdin: document 1, line "},
		{"10,000 levels of JSON", `{"kind":"ConfigMap","apiVersion":"v1","x":` + deep("[", "]", 9_000) + "}", 0,
			"nothing to judge"},
		{"more than 10,000 levels of JSON", `{"kind":"ConfigMap","apiVersion":"v1","x":` + deep(`{"a":`, "}", 10_001) +
			"}", 0, "stdin: document 1, line 1: is not YAML: it is nested more than 10000 levels deep"},
		{"more than 10,000 levels of JSON, not closed", strings.Repeat(`{"a":`, 100_000), 0,
			"stdin: document 1, line 1: is not YAML: it is nested more than 10000 levels deep"},
		{"more than 10,000 levels of YAML", "x: " + deep("[", "]", 10_001), 0,
			"stdin: document 1, line 1: is not YAML: it is nested more than 10000 levels deep"},
		{"more than 10,000 levels of indentation", strings.Repeat("- ", 10_001) + "0", 0,
			"stdin: document 1, line 1: is not YAML: it is nested more than 10000 levels deep"},
		{"an object of 3 MiB", policyText + "---\n" + strings.Replace(forbidden, "namespace: shop",
			"namespace: shop, annotations: {a: "+strings.Repeat("x", 3<<20)+"}", 1), 1, "1 allowed, 0 held, 1 denied"},
		{"a JSON object of 3 MiB",
			`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":"x"},"spec":{"name":"` + strings.Repeat("x", 3<<20) + `"}}`, 2, "spec.source is missing"},
		{"3 MiB of markers", strings.Repeat("---\n", 3<<18), 0, "nothing to judge"},
		{"a subscription to what a Constraint refuses", constraintText + "---\n" + forbidden, 1,
			"1 allowed, 0 held, 1 denied"},
		{"a Constraint in a list", "apiVersion: v1\nkind: List\nitems:\n- " +
			strings.ReplaceAll(constraintText, "\n", "\n  ") + "\n---\n" + forbidden, 1, "1 allowed, 0 held, 1 denied"},
		{"a Constraint by the kind of its proposal", strings.Replace(constraintText, "Constraint", "constraint", 1), 2,
			"write kind Constraint, apiVersion operators.coreos.com/v1"},
		{"a Constraint with a letter that only looks alike",
			strings.Replace(constraintText, "Constraint", "C\u043enstraint", 1), 2, "must be ASCII"},
		{"a Constraint under another name of its field",
			strings.Replace(constraintText, "constraints:", "Constraints:", 1) + "---\n" + forbidden, 1,
			"0 allowed, 1 held, 1 denied"},
		{"a Constraint that is no JSON", strings.Replace(constraintText, "'[", "'", 1) + "---\n" + forbidden, 1,
			"0 allowed, 1 held, 1 denied"},
		{"a rule that runs for a minute", strings.Replace(constraintText, `catalog.name == \"curated\"`,
			"properties.all(a, properties.all(b, properties.all(c, a != b || b != c)))", 1), 1,
			"costs too much: up to"},
		{"10,000 levels in a Constraint", strings.Replace(constraintText, "'[", "'"+strings.Repeat("[", 10_000), 1), 1,
			"(constraint/size)"},
		{"1 MiB in a Constraint", strings.Replace(constraintText, "'[", "'["+strings.Repeat(" ", 1<<20), 1), 1,
			"(constraint/size)"},
		{"objects in a Namespace", constraintText + "---\n" +
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"},"items":[{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":"etcd","namespace":"shop"},"spec":{"name":"etcd","source":"s","sourceNamespace":"olm"}}]}`, 1, "1 allowed, 0 held, 1 denied"},
		{"labels of a Namespace that are numbers",
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tenant: 1}}\n", 0, "metadata.labels"},
		{"more than is read", strings.Repeat("#", manifests.MaxInput+1), 2,
			"stdin: cannot be read: it is larger than 64 MiB"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, _, code := run([]byte(test.data))
			if code == exitUnusable && !strings.Contains(got, "problem: ") {
				t.Errorf("no problem: %.300s", got)
			}
			if code != test.code || !strings.Contains(got, test.want) {
				t.Errorf("exit code %d, want %d; output wants %q, got\n%.600s", code, test.code, test.want, got)
			}
		})
	}
}

// FuzzJudge judges any objects: each judged one has a whole verdict, which can be printed.
func FuzzJudge(f *testing.F) {
	for _, seed := range []string{
		policyText + "---\n" + forbidden, constraintText + "---\n" + forbidden +
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {a: b}}\n", "a: &a\n- *a\n",
		"{\"items\":[{}]}", "--- |\n x\n...\n%TAG ! a\n---\n", "\ufeff{}\r---\u2028", "<<: *x",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"operators.coreos.com/v1alpha1","kind":"InstallPlan","metadata":{"generateName":"a"},"spec":{"approval":"","approved":false,"clusterServiceVersionNames":["a"]},"status":{"phase":"RequiresApproval","plan":[{"resource":{"kind":"ClusterServiceVersion","manifest":"{}"}}]}}]}`,
		"kind: SubscriptionList\napiVersion: operators.coreos.com/v1alpha1\nitems: [&a {metadata: {name: x}, spec: {name: p, source: s, sourceNamespace: t, sourceNamespace: t}}, *a]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := &options{files: []string{cli.StandardInput}, approvalMode: string(rules.MutateApproval)}
		r, err := o.report(t.Context(), bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range r.judged {
			if j.Name == "" || (j.Decision == verdict.Allow) != (len(j.Reasons) == 0) {
				t.Errorf("half a verdict: %+v", j)
			}
		}
		if err := printText(&strings.Builder{}, r); err != nil {
			t.Error(err)
		}
		if err := printJSON(&strings.Builder{}, r); err != nil {
			t.Error(err)
		}
	})
}
