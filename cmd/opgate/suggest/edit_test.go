package suggest

import (
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
	{name: "block list", text: head + "  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»\n"},
	{name: "block list at the column of its key", text: head + "  versions:\n  - etcd.v0.9.2«\n  - etcd.v0.9.4»\n  deletion: Deny\n"},
	{name: "two versions", step: newer,
		text: head + "  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.3\n    - etcd.v0.9.4»\n"},
	{name: "no line end at the end", text: head + "  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»"},
	{name: "comments and blank lines", text: head +
		"\n  # reviewed\n  versions:\n\n    # first\n    - etcd.v0.9.2   # since May«\n    - etcd.v0.9.4»\n    # - etcd.v0.9.3\n\n  # end\n  deletion: Deny\n\n"},
	{name: "several spaces behind the dash", text: head + "  versions:\n    -   etcd.v0.9.2«\n    - etcd.v0.9.4»\n"},
	{name: "a line for the dash", text: head + "  versions:\n    -\n      etcd.v0.9.2«\n    - etcd.v0.9.4»\n"},
	{name: "single quotes", text: head + "  versions:\n    - 'etcd.v0.9.2'«\n    - 'etcd.v0.9.4'»\n"},
	{name: "double quotes", text: head + "  versions:\n    - \"etcd.v0.9.2\" # \"a\"«\n    - \"etcd.v0.9.4\"»\n"},
	{name: "anchored element", text: head + "  versions:\n    - &first etcd.v0.9.2«\n    - etcd.v0.9.4»\n  urgent: [*first]\n"},
	{name: "element by an alias", text: strings.Replace(head, "name: etcd\n", "name: etcd\n  annotations: {v: &first etcd.v0.9.2}\n", 1) +
		"  versions:\n    - *first«\n    - etcd.v0.9.4»\n"},
	{name: "several names in a folded text", text: head +
		"  versions:\n    - >-\n      etcd.v0.9.1,\n      etcd.v0.9.2«\n    - etcd.v0.9.4»\n\n  deletion: Deny\n"},
	{name: "names in a plain text of two lines", text: head +
		"  versions:\n    - etcd.v0.9.1,\n      etcd.v0.9.2«\n    - etcd.v0.9.4»\n  deletion: Deny\n"},
	{name: "flow list", text: head + "  versions: [etcd.v0.9.2«, etcd.v0.9.4»]\n"},
	{name: "flow list with quotes and spaces", text: head + "  versions: [ 'etcd.v0.9.1', 'etcd.v0.9.2'«, 'etcd.v0.9.4'» ] # all\n"},
	{name: "flow list without spaces", text: head + "  versions: [etcd.v0.9.1,etcd.v0.9.2«, etcd.v0.9.4»]\n"},
	{name: "flow list with a comma at the end", text: head + "  versions: [etcd.v0.9.2«, etcd.v0.9.4»,]\n"},
	{name: "flow list of lines", text: head +
		"  versions: [\n    etcd.v0.9.1,\n    etcd.v0.9.2«, etcd.v0.9.4» # since May\n  ]\n"},
	{name: "flow list of lines with a comma at the end", text: head +
		"  versions: [\n    etcd.v0.9.2«, etcd.v0.9.4», # since May\n  ]\n"},
	{name: "flow list of lines that closes beside", text: head + "  versions: [\n    etcd.v0.9.1,\n    etcd.v0.9.2«, etcd.v0.9.4»]\n"},
	{name: "flow mapping", text: "{apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: etcd},\n" +
		"spec: {versions: [etcd.v0.9.2«, etcd.v0.9.4»], subscription: {namespace: shop, name: etcd}}}\n"},
	{name: "JSON", text: `{"apiVersion": "policy.open-cluster-management.io/v1beta2", "kind": "OperatorPolicy",
 "metadata": {"name": "etcd"}, "spec": {"subscription": {"name": "etcd", "namespace": "shop"},
 "versions": ["etcd.v0.9.2"«, "etcd.v0.9.4"»]}}
`},
	{name: "digests", text: head + "  versions:\n    - etcd.v0.9.2@sha256:" + strings.Repeat("b", 64) + "«\n    - etcd.v0.9.4@sha256:" +
		strings.Repeat("a", 64) + "»\n"},
	{name: "beyond ASCII", text: "# Größe: 日本\n" + head + "  versions: [etcd.v0.9.2«, etcd.v0.9.4»] # für später\n"},
	{name: "range in double quotes", text: head + "  versionRange: \">=0.9.2 <0.9.3« || 0.9.4»\" # z\n"},
	{name: "range in single quotes", text: head + "  versionRange: '>=0.9.2 <0.9.3« || 0.9.4»'\n"},
	{name: "range without quotes", text: head + "  versionRange: 0.9.2« || 0.9.4» # one\n  deletion: Deny\n"},
	{name: "range in a folded text", text: head + "  versionRange: >-\n    >=0.9.2\n    <0.9.3« || 0.9.4»\n\n  deletion: Deny\n"},
	{name: "range in a literal text", text: head + "  versionRange: |-\n    >=0.9.2 <0.9.3« || 0.9.4»\n"},
	{name: "range for two versions", step: newer, text: head + "  versionRange: '>=0.9.2 <0.9.3-0« || 0.9.3 || 0.9.4»'\n"},
	{name: "range for a suffix with an x", step: suffixed, text: head + "  versionRange: '0.9.2« || >=0.9.4-0 <0.9.5-0»'\n"},
	{name: "list and range", text: head + "  versionRange: '0.9.2« || 0.9.4»'\n  versions: [etcd.v0.9.2«, etcd.v0.9.4»]\n"},
	{name: "several documents", text: strings.ReplaceAll(head, "etcd", "vault") + "  versions: [vault.v1]\n---\n" + head +
		"  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»\n---\n# nothing\n---\n" + strings.ReplaceAll(head, "shop", "other") +
		"  versions: [etcd.v0.9.2]\n...\n"},
	{name: "list of objects", text: "apiVersion: v1\nkind: List\nitems:\n- " + indented(head, "  ") +
		"    versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»\n"},
	{name: "template of a Policy", text: "apiVersion: policy.open-cluster-management.io/v1\nkind: Policy\nmetadata: {name: p, namespace: policies}\n" +
		"spec:\n  policy-templates:\n    - objectDefinition:\n        " + indented(head, "        ") +
		"          versions:\n            - etcd.v0.9.2«\n            - etcd.v0.9.4»\n"},
	{name: "patch of a kustomization", text: "apiVersion: policy.open-cluster-management.io/v1beta2\nkind: OperatorPolicy\n" +
		"metadata: {name: etcd}\nspec:\n  versions:\n    - etcd.v0.9.2«\n    - etcd.v0.9.4»\n---\n" + head + "  versions: [etcd.v0.9.1]\n"},
	{name: "digest in a list of consent", accept: true, text: head + "  consent:\n    accepted:\n      - sha256:" + strings.Repeat("b", 64) +
		"«\n      - sha256:" + strings.Repeat("c", 64) + "»\n"},
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

// TestEdits edits files, each also with the line ends of Windows: nothing but the insertion differs.
func TestEdits(t *testing.T) {
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
			found, err := suggest([]string{name}, []step{c.step}, c.accept)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if len(found.faults) > 0 {
				t.Errorf("%s: %q", c.name, found.faults)
			}
			if got := string(found.files[0].after); got != want {
				t.Errorf("%s: got\n%q\nwant\n%q", c.name, got, want)
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
		{"range by a template", head + "  versionRange: '{{ fromConfigMap \"a\" \"b\" \"c\" }}'\n",
			"spec.versionRange has a template, and cannot be edited in place"},
		{"generated", "# Code generated by x. DO NOT EDIT.\n" + head + "  versions: [etcd.v0.9.2]\n",
			"an OperatorPolicy in a generated file cannot be edited in place"},
		{"in a text", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  policy: |\n    " + indented(head, "    ") +
			"      versions: [etcd.v0.9.2]\n", "an OperatorPolicy in a text, on line 5, cannot be edited in place"},
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
		for _, at := range found.files {
			if string(at.after) != c.text {
				t.Errorf("%s: it is edited", c.name)
			}
		}
	}
}
