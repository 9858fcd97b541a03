package rules

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// sourceWrite is a write of a CatalogSource, or of an OperatorGroup, in namespace shop.
type sourceWrite struct {
	kind, user string
	// spec is that of the object, old of the stored one, "" on create.
	spec, old string
}

const digest0 = "sha256:0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"

// sourceExamples are, for each example of docs/sources.md, what it refuses in a namespace with label tenant, and what
// it allows there.
var sourceExamples = map[string]struct{ refused, allowed []sourceWrite }{
	"Tenants may not create CatalogSources": {
		refused: []sourceWrite{
			{kind: olm.KindCatalogSource, spec: `{sourceType: internal, configMap: bundles}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: a}`, old: `{sourceType: grpc, image: b}`},
		},
		allowed: []sourceWrite{
			{kind: olm.KindOperatorGroup, spec: `{targetNamespaces: [shop]}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: b}`, old: `{sourceType: grpc, image: b}`},
		},
	},
	"Images by digest from one registry only": {
		refused: []sourceWrite{
			{kind: olm.KindCatalogSource, spec: `{sourceType: internal, configMap: bundles}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example/catalog:v1"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example:5000/catalog@` + digest0 +
				`"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example.evil.example/catalog@` +
				digest0 + `"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "evil.example/registry.example/catalog@` +
				digest0 + `"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example@` + digest0 + `"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example/catalog@` + digest0 +
				`0"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example/catalog@` + digest0 +
				`\n"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example/a@` + digest0 + `@` +
				digest0 + `"}`},
			{kind: olm.KindCatalogSource,
				spec: `{sourceType: grpc, address: "registry.example:50051", image: "registry.example/catalog@` +
					digest0 + `"}`},
		},
		allowed: []sourceWrite{
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example/catalog@` + digest0 +
				`"}`},
			{kind: olm.KindCatalogSource, spec: `{sourceType: grpc, image: "registry.example/team/catalog:v1@` +
				digest0 + `"}`},
		},
	},
	"Only the pipeline changes what a catalog offers": {
		refused: []sourceWrite{
			{kind: olm.KindCatalogSource, user: "jane", spec: `{sourceType: internal, configMap: bundles}`},
			{kind: olm.KindCatalogSource, user: "jane", spec: `{sourceType: grpc, image: a}`,
				old: `{sourceType: grpc, image: b}`},
			{kind: olm.KindCatalogSource, user: "jane", spec: `{sourceType: grpc, address: "a:1"}`,
				old: `{sourceType: grpc}`},
		},
		allowed: []sourceWrite{
			{kind: olm.KindCatalogSource, user: "system:serviceaccount:gitops:pipeline",
				spec: `{sourceType: grpc, image: a}`},
			{kind: olm.KindCatalogSource, user: "jane", spec: `{sourceType: grpc, image: a, priority: 7}`,
				old: `{sourceType: grpc, image: a}`},
		},
	},
	"Operators of a tenant are installed as an account of the tenant": {
		refused: []sourceWrite{
			{kind: olm.KindOperatorGroup, spec: `{targetNamespaces: [shop]}`},
			{kind: olm.KindOperatorGroup, spec: `{serviceAccountName: installer}`},
			{kind: olm.KindOperatorGroup,
				spec: `{serviceAccountName: installer, targetNamespaces: [shop, kube-system]}`},
			{kind: olm.KindOperatorGroup, spec: `{serviceAccountName: installer, targetNamespaces: [""]}`},
			{kind: olm.KindOperatorGroup, spec: `{serviceAccountName: installer, selector: {matchLabels: {a: b}}}`},
		},
		allowed: []sourceWrite{{kind: olm.KindOperatorGroup,
			spec: `{serviceAccountName: installer, targetNamespaces: [shop]}`}},
	},
}

// under judges the write as the only one in a namespace with labels.
func (w sourceWrite) under(t *testing.T, objects []*constraintv1.Constraint, labels map[string]string) verdict.Verdict {
	t.Helper()
	var definitions []*constraint.Definition
	for _, c := range objects {
		definitions = append(definitions, NewDefinition(c, nil))
	}
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Labels: labels,
		Constraints: constraint.NewSet(definitions, facts.Cluster{Version: "1.36.3"})})
	if w.kind == olm.KindCatalogSource {
		in := CatalogSourceInput{New: inReview[olm.CatalogSource](t, w.spec), Namespace: ns, User: w.user}
		if w.old != "" {
			in.Old = inReview[olm.CatalogSource](t, w.old)
		}
		return JudgeCatalogSource(in)
	}
	in := OperatorGroupInput{New: inReview[olm.OperatorGroup](t, w.spec), Namespace: ns, User: w.user}
	if w.old != "" {
		in.Old = inReview[olm.OperatorGroup](t, w.old)
	}
	return JudgeOperatorGroup(in)
}

// admittedPolicy wants an OperatorPolicy to be admitted as it is, without warnings.
func admittedPolicy(t *testing.T, document string) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	op, strict, err := DecodeOperatorPolicy(raw)
	if err != nil {
		t.Fatal(err)
	}
	v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: NewOperatorPolicy(op), Strict: strict,
		Namespace: func(string) *state.Namespace { return nil }})
	if v.Decision != verdict.Allow || len(v.Warnings) > 0 {
		t.Errorf("%s/%s is not admitted as it is: %s %q", op.Namespace, op.Name, v.Refusal(), v.WarningTexts())
	}
}

// inReview decodes an object of namespace shop with a spec.
func inReview[T any](t *testing.T, spec string) *T {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte("metadata: {name: private, namespace: shop}\nspec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestSourceExamples keeps docs/sources.md consistent with Opgate: every example is admitted without warnings, refuses
// what it should, with the message that the document shows if it shows one, and allows the rest.
func TestSourceExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	before, all, _ := strings.Cut(string(text), "\n# Examples\n")
	for _, block := range fenced.FindAllStringSubmatch(before, -1) {
		switch {
		case block[1] == "text": // the message of a scenario, as a test of package admission holds rules.md to
			rulesPage, err := os.ReadFile("../docs/rules.md")
			if err != nil || !strings.Contains(string(rulesPage), block[2]) {
				t.Errorf("rules.md does not have the message %s %v", block[2], err)
			}
		case strings.Contains(block[2], "kind: "+verdict.KindOperatorPolicy):
			admittedPolicy(t, block[2])
		default:
			admitted(t, block[2])
		}
	}
	all, _, _ = strings.Cut(all, "\n# ")
	sections := strings.Split(all, "\n## ")[1:]
	if len(sections) != len(sourceExamples) {
		t.Errorf("the document has %d examples and the test %d", len(sections), len(sourceExamples))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		t.Run(title, func(t *testing.T) {
			var objects []*constraintv1.Constraint
			refusal := ""
			for _, block := range fenced.FindAllStringSubmatch(section, -1) {
				if block[1] == "text" {
					refusal = strings.TrimSpace(block[2])
				} else {
					objects = append(objects, admitted(t, block[2]))
				}
			}
			example := sourceExamples[title]
			if len(example.refused) == 0 || len(example.allowed) == 0 {
				t.Fatal("no test has something for it to judge")
			}
			tenant := map[string]string{"tenant": "a"}
			for i, w := range example.refused {
				switch v := w.under(t, objects, tenant); {
				case v.Decision != verdict.Deny:
					t.Errorf("%+v is not refused", w)
				case i == 0 && refusal != "" && v.Refusal() != refusal:
					t.Errorf("it is refused with\n%s\nand the document says\n%s", v.Refusal(), refusal)
				}
			}
			for _, w := range example.allowed {
				if v := w.under(t, objects, tenant); v.Decision != verdict.Allow || len(v.Warnings) > 0 {
					t.Errorf("%+v is refused or warned of: %s %q", w, v.Refusal(), v.WarningTexts())
				}
			}
		})
	}
}

// TestWritesFailClosed holds what Constraints cannot judge: a faulty one, labels that are not known, a text that is too
// long.
func TestWritesFailClosed(t *testing.T) {
	labelled := &constraintv1.Constraint{Spec: constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"on":"catalogSource",` +
		`"rule":"!('tenant' in namespaceObject.metadata.labels) && !source.publisher.contains('x')"}}]`}}
	labelled.Name = "labelled"
	faulty := &constraintv1.Constraint{Spec: constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"on":"catalog","rule":"true"}}]`}}
	faulty.Name = "faulty"
	plain := func(spec string) *olm.CatalogSource { return inReview[olm.CatalogSource](t, spec) }
	for name, test := range map[string]struct {
		constraint *constraintv1.Constraint
		exists     bool
		spec       string
		want       string
	}{
		"a faulty Constraint": {
			constraint: faulty,
			exists:     true,
			spec:       `{sourceType: grpc}`,
			want:       "this CatalogSource is held by Constraint faulty (catalogsource/constraint): spec cannot be judged",
		},
		"unknown labels": {
			constraint: labelled,
			spec:       `{sourceType: grpc}`,
			want:       "the labels of the namespace are not known",
		},
		"a text that is too long": {
			constraint: labelled,
			exists:     true,
			spec:       `{publisher: ` + strings.Repeat("a", 20<<10) + `}`,
			want:       "the value is a text of more than 16384 characters",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := constraint.NewSet([]*constraint.Definition{NewDefinition(test.constraint, nil)},
				facts.Cluster{Version: "1.36.3"})
			v := JudgeCatalogSource(CatalogSourceInput{New: plain(test.spec),
				Namespace: state.NewNamespace("shop", state.NamespaceContents{Exists: test.exists, Constraints: set})})
			if v.Decision != verdict.Hold || !strings.Contains(v.Refusal(), test.want) {
				t.Errorf("%s: %s\nwant it held, with %q", v.Decision, v.Refusal(), test.want)
			}
		})
	}
	closed := make(chan struct{})
	close(closed)
	set := constraint.NewSet([]*constraint.Definition{NewDefinition(labelled, nil)}, facts.Cluster{})
	v := JudgeCatalogSource(CatalogSourceInput{New: plain(`{sourceType: grpc}`), Interrupt: closed,
		Namespace: state.NewNamespace("shop", state.NamespaceContents{Exists: true, Constraints: set})})
	if v.Decision != verdict.Hold {
		t.Errorf("interrupted: %s %s", v.Decision, v.Refusal())
	}
}

// TestO82ImageTemplate judges the image that OLM writes into a CatalogSource for an annotation, besides the one that is
// there (threat O82).
func TestO82ImageTemplate(t *testing.T) {
	c := &constraintv1.Constraint{Spec: constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"on":"catalogSource",` +
		`"rule":"source.image in ['a.example/x:v1', 'a.example/x:v1.36.3'] || source.image == old.image"}}]`}}
	known := facts.Cluster{Version: "1.36.3+k3s1"}
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: &known,
		Constraints: constraint.NewSet([]*constraint.Definition{NewDefinition(c, nil)}, known)})
	const version = ":v{kube_major_version}.{kube_minor_version}.{kube_patch_version}"
	source := func(image, template string) *olm.CatalogSource {
		s := inReview[olm.CatalogSource](t, "{sourceType: grpc, image: '"+image+"'}")
		s.Metadata.Annotations.ImageTemplate = template
		return s
	}
	for _, test := range []struct {
		new, old *olm.CatalogSource
		want     verdict.Decision
	}{
		{new: source("a.example/x:v1", ""), want: verdict.Allow},
		{new: source("a.example/x:v1", "a.example/x"+version), want: verdict.Allow},
		{new: source("a.example/x:v1", "b.example/x"+version), want: verdict.Deny},
		{new: source("a.example/x:v1", "a.example/x:v1{"), want: verdict.Deny}, // OLM writes nothing
		{new: source("b.example/x:v1", "a.example/x"+version), want: verdict.Deny},
		{new: source("b.example/x:v1", ""), old: source("b.example/x:v1", ""), want: verdict.Allow},
		{new: source("b.example/x:v1", "b.example/x:v2"), old: source("b.example/x:v1", ""), want: verdict.Deny},
		{new: source("b.example/x:v2", "b.example/x:v2"), old: source("b.example/x:v1", "b.example/x:v2"), want: verdict.Allow},
	} {
		v := JudgeCatalogSource(CatalogSourceInput{New: test.new, Old: test.old, Namespace: ns})
		if v.Decision != test.want {
			t.Errorf("image %s, template %s: %s: %s, want %s", test.new.Spec.Image, test.new.Metadata.Annotations.ImageTemplate,
				v.Decision, v.Refusal(), test.want)
		}
	}
}
