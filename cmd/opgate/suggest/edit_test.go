package suggest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/verdict"
)

const head = `apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata:
  name: etcd
  namespace: policies
spec:
  complianceType: mayhave
  upgradeApproval: Automatic
  subscription: {name: etcd, namespace: shop}
`

// next is the upgrade that all files get, newer one with two versions.
var (
	ofEtcd = verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: "policies", Name: "etcd"}

	next = step{namespace: "shop", pkg: "etcd", from: "etcd.v0.9.2", Source: "installplan shop/install-x7",
		Versions: []version{{"etcd.v0.9.4", "0.9.4", "sha256:" + strings.Repeat("a", 64)}},
		reasons: []verdict.Reason{{Rule: bundle.RuleConsent, From: ofEtcd,
			Digest: "sha256:" + strings.Repeat("c", 64), Message: "it changes webhooks"}}}
	newer = step{reasons: []verdict.Reason{{Rule: bundle.RuleVersion, From: ofEtcd}}, namespace: "shop", pkg: "etcd", from: "etcd.v0.9.2", Source: "catalog",
		Versions: []version{{"etcd.v0.9.3", "0.9.3", ""}, {"etcd.v0.9.4", "0.9.4", ""}}}
	suffixed = step{namespace: "shop", pkg: "etcd", from: "etcd.v0.9.2", Source: "catalog",
		Versions: []version{{"etcd.v0.9.4", "0.9.4-next", ""}}}
)

// edited are files with what is inserted between « and »: all other bytes stay. One without is not changed.
var edited = []struct {
	name   string
	text   string
	step   step
	accept bool
}{
	{name: "two versions", step: newer,
		text: head + "  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.3\n    - etcd.v0.9.4»\n"},
	{name: "no line end at the end", text: head + "  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»"},
	{name: "ends of lines that are kept", text: head + "  versions:\n    - |+\n      etcd.v0.9.2\n\n«\n    - etcd.v0.9.4»\n  deletion: Deny\n"},
	{name: "element by an alias", text: strings.Replace(head, "name: etcd\n", "name: etcd\n  annotations: {v: &first etcd.v0.9.2}\n", 1) +
		"  versions:\n    - *first«\n    - etcd.v0.9.4»\n"},
	{name: "several names in a folded text", text: head +
		"  versions:\n    - >-\n      etcd.v0.9.1,\n      etcd.v0.9.2«\n    - etcd.v0.9.4»\n\n  deletion: Deny\n"},
	{name: "names in a plain text of two lines", text: head +
		"  versions:\n    - etcd.v0.9.1,\n      etcd.v0.9.2«\n    - etcd.v0.9.4»\n  deletion: Deny\n"},
	{name: "flow mapping", text: "{apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: etcd},\n" +
		"spec: {versions: [etcd.v0.9.2«, etcd.v0.9.4»], subscription: {namespace: shop, name: etcd}}}\n"},
	{name: "JSON", text: `{"apiVersion": "policy.open-cluster-management.io/v1beta2", "kind": "OperatorPolicy",
 "metadata": {"name": "etcd"}, "spec": {"subscription": {"name": "etcd", "namespace": "shop"},
 "versions": ["etcd.v0.9.2"«, "etcd.v0.9.4"»]}}
`},
	{name: "digests", text: head + "  versions:\n    - etcd.v0.9.2@sha256:" + strings.Repeat("b", 64) + "«\n    - etcd.v0.9.4@sha256:" +
		strings.Repeat("a", 64) + "»\n"},
	{name: "range for two versions", step: newer, text: head + "  versionRange: '>=0.9.2 <0.9.3-0« || 0.9.3 || 0.9.4»'\n"},
	{name: "range for a suffix with an x", step: suffixed, text: head + "  versionRange: '0.9.2« || >=0.9.4-0 <0.9.5-0»'\n"},
	{name: "list and range", text: head + "  versionRange: '0.9.2« || 0.9.4»'\n  versions: [etcd.v0.9.2«, etcd.v0.9.4»]\n"},
	{name: "several documents", text: strings.ReplaceAll(head, "etcd", "vault") + "  versions: [vault.v1]\n---\n" + head +
		"  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»\n---\n# nothing\n---\n" + strings.ReplaceAll(head, "shop", "other") +
		"  versions: [etcd.v0.9.2]\n...\n"},
	{name: "template of a Policy", text: "apiVersion: policy.open-cluster-management.io/v1\nkind: Policy\nmetadata: {name: p, namespace: policies}\n" +
		"spec:\n  policy-templates:\n    - objectDefinition:\n        " + indented(head, "        ") +
		"          versions:\n            - etcd.v0.9.2«\n            - etcd.v0.9.4»\n"},
	{name: "patch of a kustomization", text: "apiVersion: policy.open-cluster-management.io/v1beta2\nkind: OperatorPolicy\n" +
		"metadata: {name: etcd}\nspec:\n  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»\n---\n" + head + "  versions: [etcd.v0.9.1]\n"},
	{name: "patch of a policy in another namespace", text: "apiVersion: policy.open-cluster-management.io/v1beta2\nkind: OperatorPolicy\n" +
		"metadata: {name: etcd, namespace: other}\nspec:\n  versions:\n    - etcd.v0.9.2\n---\n" + head + "  versions: [etcd.v0.9.1«, etcd.v0.9.4»]\n"},
	{name: "first digest of consent", accept: true, text: head + "  consent:\n    «accepted: [sha256:" + strings.Repeat("c", 64) +
		"]\n    »classes: {webhooks: Hold}\n"},
	{name: "first digest of consent in brackets", accept: true, text: head + "  consent: {«accepted: [sha256:" + strings.Repeat("c", 64) +
		"], »classes: {webhooks: Hold}}\n"},
	{name: "consent is left alone", text: head + "  consent: {classes: {webhooks: Hold}}\n"},
	{name: "listed already", text: head + "  versions: ['etcd.v0.9.2, etcd.v0.9.4']\n  versionRange: 0.9.x\n"},
	{name: "every version", text: head + "  versions: []\n"},
	{name: "the version to start with", text: strings.Replace(head, "shop}", "shop, startingCSV: etcd.v0.9.4}", 1) + "  versions: [etcd.v0.9.2]\n"},
	{name: "another namespace", text: strings.ReplaceAll(head, "shop", "other") + "  versions: [etcd.v0.9.2]\n"},
	{name: "forbidden", text: strings.Replace(head, "mayhave", "mustnothave", 1) + "  versions: [etcd.v0.9.2]\n"},
}

func indented(text, by string) string {
	return strings.TrimPrefix(strings.ReplaceAll("\n"+strings.TrimSuffix(text, "\n"), "\n", "\n"+by), "\n"+by) + "\n"
}

var inserted = regexp.MustCompile(`(?s)«(.*?)»`)

// generated returns a file in a random form of YAML, with what is inserted for the next version.
func generated(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	comment := func() string { return pick("", "", " # c", "  # é [a, 'q' \"", "   ", "\t# tab", "\t") }
	between := func(indent string) string { return pick("", "", "\n", indent+"# - etcd.v0.9.4\n", "# x: [\n", "   \n") }
	list := func(indent, key, first, last, added string) string {
		in, quote, other := pick(indent, indent+"  "), pick("", "'", `"`), pick("", "'", `"`)
		first, last, quoted := other+first+other, quote+last+quote, quote+added+quote
		key = indent + pick(key, `"`+key+`"`) + ":"
		switch r.IntN(4) {
		case 0:
			dash := func() string { return in + pick("- ", "-   ", "-\n"+in+"  ") + pick("", "&a ", "!!str ") }
			return key + comment() + "\n" + between(in) + dash() + first + comment() + "\n" + between(in) + dash() + last + comment() +
				"«\n" + in + "- " + quoted + "»\n"
		case 1:
			return key + "\n" + in + "- " + first + "\n" + in + "- " + pick(">-", "|-", ">", "|2") + comment() + "\n" + in + "  " +
				strings.Trim(last, quote) + "«\n" + in + "- " + added + "»\n" + pick("", "\n")
		}
		return key + " [" + pick("", " ", "\n"+in+"  ", "# c\n"+in+"  ") + first + pick(", ", ",", " ,\n"+in+" ", ", # c\n"+in+" ") +
			last + "«, " + quoted + "»" + pick("", " ", ", ", "\n"+in+" ", ",\n"+in+" ", " # c\n"+in+" ") + "]" + comment() + "\n"
	}
	policy := func(namespace string) string {
		fields := []string{"  complianceType: mayhave" + comment() + "\n", "  subscription:\n    name: etcd\n    namespace: " + namespace + "\n"}
		if r.IntN(3) > 0 {
			fields = append(fields, list("  ", "versions", "etcd.v0.9.1", "etcd.v0.9.2", "etcd.v0.9.4"))
		} else {
			fields = append(fields, "  versionRange: "+pick("'<0.9.3« || 0.9.4»'"+comment(), "\">0.9.1 \\\n   <0.9.3« || 0.9.4»\"",
				">-"+comment()+"\n    >0.9.1\n    <0.9.3« || 0.9.4»", "|-\n    0.9.2« || 0.9.4»", "0.9.2« || 0.9.4»"+comment())+"\n")
		}
		if r.IntN(2) == 0 {
			fields = append(fields, "  consent:"+comment()+"\n    permissions: Hold\n"+list("    ", "accepted",
				"sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64), "sha256:"+strings.Repeat("c", 64)))
		}
		r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		return "apiVersion: policy.open-cluster-management.io/v1beta2" + comment() + "\nkind: OperatorPolicy\nmetadata: {name: etcd}\n" +
			between("") + "spec:" + comment() + "\n" + strings.Join(fields, between("  "))
	}
	text := pick("", "\ufeff") + pick("", "# Größe 日本\n")
	switch r.IntN(4) {
	case 0:
		return text + "apiVersion: v1\nkind: List\nitems:\n- " + indented(policy("shop"), "  ")
	case 1:
		text += inserted.ReplaceAllString(policy("other"), "") + pick("---\n", "--- # c\n", "...\n---\n")
	}
	return text + policy("shop")
}

// TestEdits edits files, each also with the line ends of Windows: nothing but the insertion differs.
func TestEdits(t *testing.T) {
	for seed := range uint64(300) {
		c := edited[0]
		c.name, c.text, c.step, c.accept = fmt.Sprintf("seed %d", seed), generated(rand.New(rand.NewPCG(seed, 0))), next, true
		edited = append(edited, c)
	}
	for _, c := range edited {
		if c.step.pkg == "" {
			c.step = next
		}
		for _, lineEnd := range []string{"\n", "\r\n"} {
			text := strings.ReplaceAll(c.text, "\n", lineEnd)
			before, want := inserted.ReplaceAllString(text, ""), inserted.ReplaceAllString(text, "$1")
			name := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(name, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			found, err := suggest([]string{name, name}, []step{c.step}, c.accept)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if got := string(found.files[0].after); got != want || len(found.faults) > 0 {
				t.Errorf("%s: %q, got\n%q\nwant\n%q", c.name, found.faults, got, want)
			}
		}
	}
}

// TestNotInPlace names what is not edited, and edits nothing of it.
func TestNotInPlace(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"Helm", "{{- if .Values.etcd }}\n" + head + "  versions:\n    {{- toYaml .Values.versions | nindent 4 }}\n{{- end }}\n",
			"an OperatorPolicy in a template of another program cannot be edited in place"},
		{"hub template", head + "  versions: ['{{hub fromConfigMap \"\" \"versions\" \"etcd\" hub}}']\n",
			"spec.versions has a template, and cannot be edited in place"},
		{"variable", head + "  versions: ['${ETCD_VERSION}']\n", "spec.versions has a template, and cannot be edited in place"},
		{"generated", "# Code generated by x. DO NOT EDIT.\n" + head + "  versions: [etcd.v0.9.2]\n",
			"an OperatorPolicy in a generated file cannot be edited in place"},
		{"in a text", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  policy: |\n    " + indented(head, "    ") +
			"      versions: [etcd.v0.9.2]\n", "an OperatorPolicy in a text or a JSON patch, on line 5, cannot be edited in place"},
		{"list by an alias", strings.Replace(head, "kind:", "x: &allowed [etcd.v0.9.2]\nkind:", 1) + "  versions: *allowed\n",
			"spec.versions comes from an anchor or has one, and cannot be edited in place"},
		{"list for others", head + "  versions: &allowed [etcd.v0.9.2]\n  urgent: *allowed\n",
			"spec.versions comes from an anchor or has one, and cannot be edited in place"},
		{"merge key", strings.Replace(head, "kind:", "x: &base {versions: [etcd.v0.9.2]}\nkind:", 1) + "  <<: *base\n",
			"spec.versions comes from an anchor or has one, and cannot be edited in place"},
		{"digest not known", head + "  versions: ['etcd.v0.9.2@sha256:" + strings.Repeat("b", 64) + "']\n",
			"spec.versions has names with digests, and that of etcd.v0.9.3 is not known"},
		{"twice", head + "  versions: [etcd.v0.9.2]\n---\n" + head + "  versions: [etcd.v0.9.2]\n",
			"spec.versions of OperatorPolicy etcd is written in "},
		{"JSON patch", "- op: replace\n  path: /spec/versions\n  value: [etcd.v0.9.2]\n", "in a text or a JSON patch, on line 2, cannot"},
		{"no YAML", head + "  versions: [etcd.v0.9.2\n", "an OperatorPolicy in a file that is not YAML cannot be edited"},
		{"other type", head + "  versions: etcd.v0.9.2\n", "on line 1 cannot be read"},
	} {
		name := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := suggest([]string{name}, []step{newer}, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(found.faults) != 1 || !strings.Contains(found.faults[0], c.want) {
			t.Errorf("%s: got %q, want %q", c.name, found.faults, c.want)
		}
		if string(found.files[0].after) != c.text {
			t.Errorf("%s: it is edited", c.name)
		}
	}
}
