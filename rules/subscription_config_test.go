package rules

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// configured returns a Subscription to a package with a spec.config.
func configured(t *testing.T, pkg, config string) *olm.Subscription {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "etcd"},
		"spec": map[string]any{"name": pkg, "source": "c", "sourceNamespace": "olm", "installPlanApproval": "Manual",
			"config": json.RawMessage(config)}})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := olm.Decode[olm.Subscription](raw)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// TestO60Config writes configs that exchange what an operator runs, in ways that scenarios cannot, since the API server
// would prune or complete them first.
func TestO60Config(t *testing.T) {
	const (
		image = `{"env":[{"name":"RELATED_IMAGE_A","value":"evil/a"}]}`
		plain = `{"env":[{"name":"HTTPS_PROXY","value":"http://proxy"}]}`
		fixed = `{"resources":{"limits":{"memory":"1Gi"}}}`
	)
	several := `{"env":[{"name":"RELATED_IMAGE_A","value":"good/a"},{"name":"RELATED_IMAGE_A","value":"evil/a"}]}`
	for _, c := range []struct {
		name string
		// policy is spec.subscription.config of the policy, empty for none.
		policy string
		// old is the config that is stored, empty on create.
		old string
		// oldPackage is that of the stored Subscription; empty for etcd.
		oldPackage string
		config     string
		byOLM      bool
		// want is a part of the refusal; empty if the write is allowed.
		want string
	}{
		{name: "an image", config: image, want: "env[RELATED_IMAGE_A]"},
		{name: "an image under a policy with an empty config", policy: `{}`, config: image,
			want: "env[RELATED_IMAGE_A]"},
		{name: "an image from a ConfigMap",
			config: `{"env":[{"name":"RELATED_IMAGE_A","valueFrom":{"configMapKeyRef":{"name":"c","key":"k"}}}]}`,
			want:   "env[RELATED_IMAGE_A]"},
		{name: "another variable", config: plain},
		{name: "lists that are empty", config: `{"volumes":[],"envFrom":[],"volumeMounts":null}`},
		{name: "no config", config: `null`},
		{name: "a mount alone, of a volume that the operator has, after a field that is written twice",
			config: `{"affinity":{"a":1,"a":2},"volumeMounts":[{"name":"a","mountPath":"/bin"}]}`, want: "volumeMounts"},
		{name: "an image that is stored", old: image, config: image},
		{name: "an image that is stored, with another field", old: image,
			config: `{"env":[{"name":"RELATED_IMAGE_A","value":"evil/a"}],"tolerations":[{}]}`},
		{name: "an image that is removed", old: image, config: `{}`},
		{name: "another image than is stored", old: `{"env":[{"name":"RELATED_IMAGE_A","value":"good/a"}]}`,
			config: image, want: "env[RELATED_IMAGE_A]"},
		{name: "the last of two values is removed", old: several,
			config: `{"env":[{"name":"RELATED_IMAGE_A","value":"good/a"}]}`, want: "env[RELATED_IMAGE_A]"},
		{name: "a config that was written for another package", old: image, oldPackage: "other", config: image,
			want: "env[RELATED_IMAGE_A]"},
		{name: "a field that is not known", config: `{"initContainers":[{"image":"evil"}]}`,
			want: `cannot be read: unknown field "initContainers"`},
		{name: "a field in another case", config: `{"Volumes":[{"name":"a"}]}`,
			want: `cannot be read: unknown field "Volumes"`},
		{name: "the same field twice", config: `{"volumes":[{"name":"a"}],"volumes":[]}`,
			want: "cannot be read: duplicate field"},
		{name: "a field that is not known in what changes no image", config: `{"affinity":{"a":1}}`},
		{name: "the same where the policy sets a config", policy: fixed, config: `{"affinity":{"a":1}}`,
			want: `cannot be read: unknown field "affinity.a"`},
		{name: "a value of another type", config: `{"env":"RELATED_IMAGE_A"}`, want: "cannot be read"},
		{name: "more values than are read", config: `{"env":[` + strings.Repeat(`{"name":"A"},`, 3000) +
			`{"name":"A"}]}`, want: "more than the 2048 values"},
		{name: "a text longer than is read", config: `{"annotations":{"a":"` + strings.Repeat("x", 20<<10) + `"}}`,
			want: "16384 bytes"},
		{name: "what cannot be read is stored already", old: `{"a":1}`, config: `{"a":1}`},
		{name: "what cannot be read is exchanged for the like", old: `{"a":1}`, config: `{"a":2}`,
			want: "cannot be read"},
		{name: "the policy's config", policy: fixed, config: `{"resources":{"limits":{"memory":"1024Mi"}}}`},
		{name: "the policy's config and more", policy: fixed,
			config: `{"resources":{"limits":{"memory":"1Gi"}},"nodeSelector":{"a":"b"}}`,
			want:   "spec.config with nodeSelector, resources is not allowed"},
		{name: "no config beside the policy's", policy: fixed, config: `{}`, want: "leaving out spec.config"},
		{name: "no config by OLM, for a dependency", policy: fixed, config: `{}`, byOLM: true},
		{name: "another config that is stored", policy: fixed, old: plain, config: plain},
		{name: "a policy with a template",
			policy: `{"env":[{"name":"A","value":"{{ fromConfigMap \"a\" \"b\" \"c\" }}"}]}`, config: fixed,
			want: "waits until spec.subscription.config of the policy can be read"},
		{name: "a policy that cannot be read", policy: `{"unknown":1}`, config: fixed,
			want: "waits until spec.subscription.config of the policy can be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := &policyv1beta2.OperatorPolicy{}
			op.Namespace, op.Name = "policies", "etcd"
			op.Spec = policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
				ComplianceType:  policyv1beta2.MayHave,
				UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
				Subscription: policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop", Source: "c",
					SourceNamespace: "olm"}}
			if c.policy != "" {
				op.Spec.Subscription.Config = &apiextensionsv1.JSON{Raw: []byte(c.policy)}
			}
			in := SubscriptionInput{New: configured(t, "etcd", c.config), ByOLM: c.byOLM}
			if c.old != "" {
				pkg := "etcd"
				if c.oldPackage != "" {
					pkg = c.oldPackage
				}
				in.Old = configured(t, pkg, c.old)
				in.New.Spec.Channel = "other" // so that something is judged
			}
			f := foreignConfig(&in, NewOperatorPolicy(op))
			if got := fmt.Sprint(f.What, ": ", f.Accepted); c.want == "" && !f.Silent() || c.want != "" &&
				!strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}

// TestO60ConfigOfInstalled changes the config of an operator that is installed, which no plan follows, under a
// Constraint on its images.
func TestO60ConfigOfInstalled(t *testing.T) {
	pins := ruleOf("pinned", `images.all(i, i.digest != '')`, "by digest", constraint.Require)
	for name, c := range map[string]struct {
		// runs is the image that is installed, old and config are those of the Subscription; old is empty on create.
		runs, old, config string
		want              verdict.Decision
	}{
		"an image by tag": {runs: pinned("quay.io/a"), old: `{}`,
			config: runsInstead("quay.io/a:v1"), want: verdict.Deny},
		"an image by digest": {runs: pinned("quay.io/a"), old: `{}`, config: runsInstead(pinned("quay.io/b"))},
		"an image by tag, in a new Subscription": {runs: pinned("quay.io/a"), config: runsInstead("quay.io/a:v1"),
			want: verdict.Deny},
		"a violation that existed covers no other": {runs: "quay.io/a:v1", old: `{}`,
			config: runsInstead("quay.io/b:v1"),
			want:   verdict.Deny},
		"a violation that existed, and no image": {runs: "quay.io/a:v1", old: `{}`, config: `{"resources":{}}`},
		"a config that cannot be read": {runs: pinned("quay.io/a"), old: `{}`, config: `{"unknown":1}`,
			want: verdict.Hold},
	} {
		t.Run(name, func(t *testing.T) {
			csv, err := olm.Decode[olm.CSV](fmt.Appendf(nil,
				`{"metadata":{"namespace":"shop","name":"etcd.v1","annotations":{%s}},"spec":%s}`,
				`"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.0\"}}]}"`, runs(c.runs)))
			if err != nil {
				t.Fatal(err)
			}
			installed, _ := installedBy(csv)
			in := SubscriptionInput{New: configured(t, "etcd", c.config), Mode: DenyApproval}
			if c.old != "" {
				in.Old = configured(t, "etcd", c.old)
			}
			in.Namespace = state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
				Constraints: under(pins), CSVs: []state.Installed{installed}})
			if v := JudgeSubscription(in); v.Decision != c.want {
				t.Errorf("got %v %q, want %v", v.Decision, v.Refusal(), c.want)
			}
		})
	}
}
