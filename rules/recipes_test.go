package rules

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// offered is an etcd operator to install in namespace shop.
type offered struct {
	version string
	catalog string
	// properties are those of its bundle besides olm.package, with a leading comma.
	properties string
	// spec is that of its ClusterServiceVersion, as JSON; if empty, the bundle is an image. Annotations are those of
	// the object.
	spec, annotations string
	// config is spec.config of the Subscription, as JSON; empty for none.
	config string
	// edit changes the Constraints before judging.
	edit func(*constraintv1.ConstraintSpec)
}

// recipes are, for each recipe of docs/constraints.md, what it refuses and what it allows.
var recipes = map[string]struct {
	labels           map[string]string
	subscribes       bool
	refused, allowed []offered
}{
	"Certified only": {
		refused: []offered{{}, {properties: `,{"type":"olm.label","value":{"label":"certified"}}`}},
		allowed: []offered{{properties: `,{"type":"certified","value":null}`}},
	},
	"Minimum Kubernetes": {
		refused: []offered{
			{properties: `,{"type":"olm.k8sversion","value":{"version":"1.99"}}`},
			{properties: `,{"type":"olm.k8sversion","value":{"version":"1.24.9"}}`},
			{},
		},
		allowed: []offered{{properties: `,{"type":"olm.k8sversion","value":{"version":"1.30"}}`}},
	},
	"Curated catalog for tenants": {
		labels: map[string]string{"tenant": "a"}, subscribes: true,
		refused: []offered{{}, {catalog: "community"}},
		allowed: []offered{{catalog: "curated"}},
	},
	"No cluster-admin bundles": {
		refused: []offered{{spec: permissions(`"*"`)},
			{spec: strings.Replace(permissions(`"*"`), "clusterPermissions", "permissions", 1)}},
		allowed: []offered{{spec: permissions(`"apps"`)}, {spec: `{}`}},
	},
	"No webhooks on our group": {
		refused: []offered{{spec: hooks("policy.open-cluster-management.io")}, {spec: hooks("*")}},
		allowed: []offered{{spec: hooks("etcd.database.coreos.com")},
			{spec: `{"webhookdefinitions":[{"type":"ConversionWebhook"}]}`}},
	},
	"One version line across namespaces": {
		refused: []offered{{version: "0.10.0"}, {version: "0.10.0-rc.1"}, {version: "0.8.9"}},
		allowed: []offered{{version: "0.9.0"}, {version: "0.9.4"}},
	},
	"Deny a CVE range": {
		refused: []offered{{version: "0.9.2"}, {version: "0.9.0"}},
		allowed: []offered{{version: "0.9.4"}, {version: "0.8.0"}},
	},
	"Maintenance freeze by property": {
		refused: []offered{{}},
		allowed: []offered{{edit: func(s *constraintv1.ConstraintSpec) {
			s.Offers = []constraintv1.ConstraintOffer{offering("acme.freeze", "false")}
		}}},
	},
	"Tenant operators": {
		labels: map[string]string{"tenant": "a"},
		refused: []offered{
			{version: "0.9.2", spec: `{}`},
			{version: "0.9.2"},
			{spec: `{}`, properties: `,{"type":"olm.package.required","value":{"packageName":"vault","versionRange":">=1.0.0"}}`},
			{spec: `{}`, properties: `,{"type":"olm.gvk.required","value":{"group":"vault.example.com","version":"v1","kind":"Vault"}}`},
			{spec: `{}`, properties: `,{"type":"olm.constraint","value":{"cel":{"rule":"true"}}}`},
			{spec: converts("etcdclusters.etcd.database.coreos.com")},
			{spec: `{"webhookdefinitions":[{"type":"ConversionWebhook"}]}`},
		},
		allowed: []offered{{spec: `{}`}, {spec: hooks("etcd.database.coreos.com")}},
	},
	"Token authentication waits": {
		refused: []offered{
			{spec: `{}`, annotations: `"features.operators.openshift.io/token-auth-aws":"true"`},
			{spec: `{}`, annotations: `"features.operators.openshift.io/token-auth-aws":"false","features.operators.openshift.io/token-auth-gcp":"true"`},
			{spec: `{}`, annotations: `"features.operators.openshift.io/token-auth-azure":"` +
				strings.Repeat("x", 2000) + `"`},
		},
		allowed: []offered{
			{spec: `{}`, version: "0.9.2", annotations: `"features.operators.openshift.io/token-auth-aws":"true"`},
			{spec: `{}`, annotations: `"features.operators.openshift.io/token-auth-aws":"false"`},
			{spec: `{}`, annotations: `"alm-examples":"` + strings.Repeat("x", 2000) + `"`},
			{spec: `{}`},
		},
	},
	"Images by digest from our registries": {
		refused: []offered{{spec: runs("quay.io/coreos/etcd:v3")}, {spec: runs("$(REGISTRY)/etcd:v3")},
			{spec: runs(pinned("quay.io/coreos/etcd")), config: runsInstead("quay.io/coreos/etcd:v3")},
			{spec: runs(pinned("docker.io/library/etcd"))}, {spec: runs(pinned("etcd"))},
			{spec: runs(pinned("quay.io.example.com/etcd"))}, {}},
		allowed: []offered{{spec: runs(pinned("quay.io/coreos/etcd"))},
			{spec: runs(pinned("mirror.example.com:5000/operators/etcd"))}},
	},
	"Tenants set resources only": {
		labels: map[string]string{"tenant": "a"}, subscribes: true,
		refused: []offered{{config: `{"env":[{"name":"A","value":"b"}],"resources":{"limits":{"memory":"1Gi"}}}`},
			{config: `{"annotations":{"a":"b"}}`},
			{config: `{"unknown":1}`}},
		allowed: []offered{{config: `{"resources":{"limits":{"memory":"1Gi"}}}`}, {}},
	},
	"GVK ban": {
		refused: []offered{{properties: gvk("etcd.database.coreos.com", "v1beta2")},
			{properties: gvk("etcd.database.coreos.com", "v1")}},
		allowed: []offered{{properties: gvk("etcd.example.com", "v1beta2")}, {}},
	},
}

// runs is the spec of a ClusterServiceVersion whose container has an image.
func runs(image string) string {
	return `{"install":{"spec":{"deployments":[{"spec":{"template":{"spec":{"containers":[{"name":"etcd","image":"` +
		image + `"}]}}}}]}}}`
}

// runsInstead is the config of a Subscription that exchanges an image.
func runsInstead(image string) string {
	return `{"env":[{"name":"RELATED_IMAGE_ETCD","value":"` + image + `"}]}`
}

func pinned(image string) string { return image + "@sha256:" + strings.Repeat("0f", 32) }

func converts(definition string) string {
	return `{"webhookdefinitions":[{"type":"ConversionWebhook","conversionCRDs":["` + definition + `"]}]}`
}

func permissions(groups string) string {
	return `{"install":{"spec":{"clusterPermissions":[{"rules":[{"apiGroups":[` + groups +
		`],"resources":["*"],"verbs":["*"]}]}]}}}`
}

func hooks(group string) string {
	return `{"webhookdefinitions":[{"type":"ValidatingAdmissionWebhook","rules":[{"apiGroups":["` + group +
		`"],"resources":["*"]}]}]}`
}

func gvk(group, version string) string {
	return `,{"type":"olm.gvk","value":{"group":"` + group + `","version":"` + version + `","kind":"EtcdCluster"}}`
}

func offering(kind, value string) constraintv1.ConstraintOffer {
	return constraintv1.ConstraintOffer{Type: kind, Value: apiextensionsv1.JSON{Raw: []byte(value)}}
}

// under returns the verdict of some Constraints on it.
func (o offered) under(t *testing.T, objects []*constraintv1.Constraint, labels map[string]string,
	subscribes bool) verdict.Verdict {
	t.Helper()
	var definitions []*constraint.Definition
	for _, c := range objects {
		c := c.DeepCopy()
		if o.edit != nil {
			o.edit(&c.Spec)
		}
		definitions = append(definitions, NewDefinition(c, nil))
	}
	if o.version == "" {
		o.version = "0.9.4"
	}
	if o.catalog == "" {
		o.catalog = "operatorhubio-catalog"
	}
	all, err := olm.Decode[olm.OperatorGroup]([]byte(`{"spec":{},"status":{"namespaces":[""]}}`))
	if err != nil {
		t.Fatal(err)
	}
	sub := &olm.Subscription{
		Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd"},
		Spec:     olm.SubscriptionSpec{Package: "etcd", Channel: "stable", Source: o.catalog, SourceNamespace: "olm"},
	}
	var stored []*olm.Subscription
	if o.config != "" {
		if err := sub.Spec.Config.UnmarshalJSON([]byte(o.config)); err != nil {
			t.Fatal(err)
		}
		if !subscribes {
			stored = append(stored, sub)
		}
	}
	ns := state.NewNamespace("shop", state.NamespaceContents{Subscriptions: stored, Exists: true, Labels: labels,
		Facts: aroundKubernetes, Constraints: under(definitions...), Groups: []*olm.OperatorGroup{all}})
	if subscribes {
		return JudgeSubscription(SubscriptionInput{Namespace: ns, Mode: MutateApproval, New: sub})
	}
	name := "etcdoperator.v" + o.version
	var steps []olm.Step
	if o.spec != "" {
		csv, err := olm.Decode[olm.CSV]([]byte(`{"metadata":{"annotations":{` + o.annotations + `}},"spec":` + o.spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, olm.Step{Resource: olm.StepResource{Kind: "ClusterServiceVersion", Name: name,
			Manifest: olm.Manifest{Spec: &csv.Spec}}})
	}
	return JudgePlan(PlanInput{Namespace: ns, Plan: &olm.InstallPlan{
		Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-x7"},
		Spec:     olm.InstallPlanSpec{CSVNames: []string{name}, Approval: olm.ApprovalManual},
		Status: olm.InstallPlanStatus{Phase: olm.PhaseRequiresApproval, Steps: steps,
			BundleLookups: []olm.BundleLookup{{
				Identifier: name, Catalog: olm.Catalog{Namespace: "olm", Name: o.catalog},
				Properties: `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"` + o.version +
					`"}}` + o.properties + `]}`,
			}}},
	}})
}

var fenced = regexp.MustCompile("(?s)```(yaml|text)\n(.*?)```")

// TestRecipes keeps docs/constraints.md consistent with Opgate: every recipe is admitted without warnings, refuses what
// it should, with the message that the document shows if it shows one, and allows the rest.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../docs/constraints.md")
	if err != nil {
		t.Fatal(err)
	}
	_, all, found := strings.Cut(string(text), "\n# Recipes\n")
	if !found {
		t.Fatal("the document has no recipes")
	}
	var titles []string
	for _, section := range strings.Split(all, "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		titles = append(titles, title)
		t.Run(title, func(t *testing.T) {
			r, ok := recipes[title]
			if !ok {
				t.Fatal("no test has something for it to judge")
			}
			var objects []*constraintv1.Constraint
			refusal := ""
			for _, block := range fenced.FindAllStringSubmatch(section, -1) {
				if block[1] == "text" {
					refusal = strings.TrimSpace(block[2])
					continue
				}
				for _, document := range strings.Split(block[2], "\n---\n") {
					objects = append(objects, admitted(t, document, objects...))
				}
			}
			for i, o := range r.refused {
				switch v := o.under(t, objects, r.labels, r.subscribes); {
				case v.Decision == verdict.Allow:
					t.Errorf("%+v is not refused", o)
				case i == 0 && refusal != "" && v.Refusal() != refusal:
					t.Errorf("it is refused with\n%s\nand the document says\n%s", v.Refusal(), refusal)
				}
			}
			for _, o := range r.allowed {
				if v := o.under(t, objects, r.labels, r.subscribes); v.Decision != verdict.Allow ||
					len(v.Warnings) > 0 {
					t.Errorf("%+v is refused or warned of: %s %q", o, v.Refusal(), v.WarningTexts())
				}
			}
			if r.labels != nil {
				if v := r.refused[0].under(t, objects, nil, r.subscribes); v.Decision != verdict.Allow ||
					len(v.Changes) > 0 {
					t.Errorf("it binds other namespaces: %+v", v)
				}
			}
		})
	}
	if len(titles) != len(recipes) {
		t.Errorf("the document has %d recipes (%v) and the test %d", len(titles), titles, len(recipes))
	}
}

// TestConstraintExamples checks that every other Constraint of the document is admitted.
func TestConstraintExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/constraints.md")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "\n# Recipes\n")
	// The properties of an example are read by a rule that it does not show.
	readsCluster := constraintv1.ConstraintSpec{Rules: []constraintv1.ConstraintRule{{Expression: "cluster.properties.size() > 0"}}}
	admittedOnes := []*constraintv1.Constraint{{Spec: readsCluster}}
	for _, block := range fenced.FindAllStringSubmatch(before, -1) {
		if block[1] == "yaml" && strings.Contains(block[2], "kind: Constraint\n") {
			admitted(t, block[2], admittedOnes...)
			admittedOnes = append(admittedOnes, &constraintv1.Constraint{Spec: readsCluster})
		}
	}
	if len(admittedOnes) < 3 {
		t.Errorf("%d examples, want at least 2", len(admittedOnes)-1)
	}
}

// TestCostlyRule checks that the refusal of three loops is the one in the document.
func TestCostlyRule(t *testing.T) {
	text, err := os.ReadFile("../docs/constraints.md")
	if err != nil {
		t.Fatal(err)
	}
	c := &constraintv1.Constraint{}
	c.Name = "three-loops"
	c.Spec.Rules = []constraintv1.ConstraintRule{{
		Expression: "properties.all(a, properties.all(b, properties.all(c, a.type + b.type + c.type != 'x')))",
	}}
	if v := JudgeConstraint(ConstraintInput{Constraint: c, Constraints: under()}); !strings.Contains(string(text),
		"\n"+v.Refusal()+"\n") {
		t.Errorf("the document does not have\n%s", v.Refusal())
	}
}

// admitted decodes a Constraint and checks that it is admitted without warnings beside others.
func admitted(t *testing.T, document string, others ...*constraintv1.Constraint) *constraintv1.Constraint {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	c, strict, err := DecodeConstraint(raw)
	if err != nil {
		t.Fatal(err)
	}
	var definitions []*constraint.Definition
	for _, other := range others {
		definitions = append(definitions, NewDefinition(other, nil))
	}
	v := JudgeConstraint(ConstraintInput{Constraint: c, Strict: strict, Constraints: under(definitions...),
		Namespaces: slices.Values([]*state.Namespace{state.NewNamespace("shop", state.NamespaceContents{})})})
	if v.Decision != verdict.Allow || len(v.Warnings) > 0 {
		t.Errorf("%s is not admitted as it is: %s %q", c.Name, v.Refusal(), v.WarningTexts())
	}
	return c
}
