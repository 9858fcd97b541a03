package templates

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

func raw(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }

func TestNeeded(t *testing.T) {
	disabled := func(op *policyv1beta2.OperatorPolicy, value string) {
		op.Annotations = map[string]string{"policy.open-cluster-management.io/disable-templates": value}
		op.Spec.Versions = []string{"{{ v }}"}
	}
	tests := map[string]struct {
		change func(op *policyv1beta2.OperatorPolicy)
		want   bool
	}{
		"plain text":   {versions("etcd.v1"), false},
		"one brace":    {versions("{ v }"), false},
		"no namespace": {noNamespace, true},
		"versions":     {versions("etcd.v1", "{{ v }}"), true},
		"versionRange": {func(op *policyv1beta2.OperatorPolicy) { op.Spec.VersionRange = "{{ v }}" }, true},
		"name":         {func(op *policyv1beta2.OperatorPolicy) { op.Spec.Subscription.Name = "{{ v }}" }, true},
		"deep in config": {func(op *policyv1beta2.OperatorPolicy) {
			op.Spec.Subscription.Config = raw(`{"env":[{"name":"A","value":"{{ v }}"}]}`)
		}, true},
		"in a key": {func(op *policyv1beta2.OperatorPolicy) {
			op.Spec.Subscription.Config = raw(`{"nodeSelector":{"{{ v }}":"x"}}`)
		}, true},
		"written as escapes": {func(op *policyv1beta2.OperatorPolicy) {
			op.Spec.Subscription.Config = raw(`{"env":[{"value":"\u007b\u007b v }}"}]}`)
		}, true},
		"operatorGroup": {func(op *policyv1beta2.OperatorPolicy) {
			op.Spec.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "g", TargetNamespaces: raw(`"{{ v }}"`)}
		}, true},
		"hub":                    {versions("{{hub v hub}}"), true},
		"templates disabled":     {func(op *policyv1beta2.OperatorPolicy) { disabled(op, "true") }, false},
		"templates not disabled": {func(op *policyv1beta2.OperatorPolicy) { disabled(op, "yes") }, true},
		"disabled but no namespace": {func(op *policyv1beta2.OperatorPolicy) { disabled(op, "true"); noNamespace(op) },
			true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := operatorpolicy.DependsOnCluster(policy(test.change)); got != test.want {
				t.Errorf("DependsOnCluster = %v, want %v", got, test.want)
			}
		})
	}
}

// TestPut passes possible results of templates to put.
func TestPut(t *testing.T) {
	sub := func(change func(s *policyv1beta2.SubscriptionTemplate)) func(op *policyv1beta2.OperatorPolicy) {
		return func(op *policyv1beta2.OperatorPolicy) { change(&op.Spec.Subscription) }
	}
	channel := sub(func(s *policyv1beta2.SubscriptionTemplate) { s.Channel = "{{ v }}" })
	source := sub(func(s *policyv1beta2.SubscriptionTemplate) { s.Source = "{{ v }}" })
	startingCSV := sub(func(s *policyv1beta2.SubscriptionTemplate) { s.StartingCSV = "{{ v }}" })
	config := sub(func(s *policyv1beta2.SubscriptionTemplate) {
		s.Config = raw(`{"env":[{"name":"A","value":"{{ v }}"}],"x":1.0}`)
	})
	keys := sub(func(s *policyv1beta2.SubscriptionTemplate) {
		s.Config = raw(`{"nodeSelector":{"{{ v }}":"x","a":"b"}}`)
	})
	group := func(op *policyv1beta2.OperatorPolicy) {
		op.Spec.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "g", TargetNamespaces: raw(`"{{ v }}"`)}
	}
	versionRange := func(op *policyv1beta2.OperatorPolicy) { op.Spec.VersionRange = "{{ v }}" }
	const noVersion = "spec.versions resolves to no version at all, which would stand for every version"
	const misfit = "does not resolve: a value changes what stands around it, at "

	tests := map[string]struct {
		change   func(op *policyv1beta2.OperatorPolicy)
		resolved string
		problem  string // its prefix
		want     func(op *policyv1beta2.OperatorPolicy)
	}{
		"versions":               {versions("{{ v }}", "b"), `["a, c","b"]`, "", versions("a, c", "b")},
		"one version is blank":   {versions("{{ v }}", "b"), `["","b"]`, "", versions("", "b")},
		"all versions are blank": {versions("{{ v }}"), `[" , ,"]`, noVersion, nil},
		"a version is null":      {versions("{{ v }}"), `[null]`, noVersion, nil},
		"versions is no array": {versions("{{ v }}"), `"a"`, "spec.versions " + misfit + "spec.versions;",
			nil},
		"versions vanish": {versions("{{ v }}"), `null`, "spec.versions " + misfit + "spec.versions;",
			nil},
		"a version is an object": {versions("{{ v }}"), `[{}]`,
			"spec.versions resolves to a value of the wrong type", nil},
		"a version is a number": {versions("{{ v }}"), `[1]`,
			"spec.versions resolves to a value of the wrong type", nil},
		"a version brings another": {versions("{{ v }}"), `["a","evil"]`,
			"spec.versions " + misfit + "spec.versions;", nil},
		"a version changes its neighbour": {versions("{{ v }}", "b"), `["a","evil"]`,
			"spec.versions " + misfit + "spec.versions[1];", nil},

		"range": {versionRange, `">1.0.0 "`, "",
			func(op *policyv1beta2.OperatorPolicy) { op.Spec.VersionRange = ">1.0.0" }},
		"range of nothing": {versionRange, `""`, "spec.versionRange resolves to nothing, which would leave it open",
			nil},
		"range is null": {versionRange, `null`, "spec.versionRange resolves to nothing, which would leave it open",
			nil},
		"range is a number": {versionRange, `1.5`, "spec.versionRange resolves to a value of the wrong type", nil},

		"channel": {channel, `{"name":"etcd","namespace":"shop","channel":"stable\n"}`, "",
			sub(func(s *policyv1beta2.SubscriptionTemplate) { s.Channel = "stable" })},
		"channel of nothing": {channel, `{"name":"etcd","namespace":"shop","channel":" "}`,
			"spec.subscription.channel resolves to nothing, which would leave it open", nil},
		"channel is null": {channel, `{"name":"etcd","namespace":"shop","channel":null}`,
			"spec.subscription.channel resolves to nothing, which would leave it open", nil},
		"channel vanishes": {channel, `{"name":"etcd","namespace":"shop"}`,
			"spec.subscription " + misfit + "spec.subscription;", nil},
		"channel brings a source": {channel, `{"name":"etcd","namespace":"shop","channel":"x","source":"evil"}`,
			"spec.subscription " + misfit + "spec.subscription;", nil},
		"channel changes the namespace": {channel, `{"name":"etcd","namespace":"evil","channel":"x"}`,
			"spec.subscription " + misfit + "spec.subscription.namespace;", nil},
		"channel becomes another field": {channel, `{"name":"etcd","namespace":"shop","source":"evil"}`,
			"spec.subscription " + misfit + "spec.subscription;", nil},
		"source is an object": {source, `{"name":"etcd","namespace":"shop","source":{"a":"b"}}`,
			"spec.subscription resolves to a value of the wrong type", nil},
		"startingCSV of nothing": {startingCSV, `{"name":"etcd","namespace":"shop","startingCSV":""}`, "",
			func(*policyv1beta2.OperatorPolicy) {}},
		"config": {config, `{"name":"etcd","namespace":"shop","config":{"env":[{"name":"A","value":""}],"x":1}}`, "",
			sub(func(s *policyv1beta2.SubscriptionTemplate) {
				s.Config = raw(`{"env":[{"name":"A","value":""}],"x":1}`)
			})},
		"a key": {keys, `{"name":"etcd","namespace":"shop","config":{"nodeSelector":{"k":"x","a":"b"}}}`, "",
			sub(func(s *policyv1beta2.SubscriptionTemplate) {
				s.Config = raw(`{"nodeSelector":{"a":"b","k":"x"}}`)
			})},
		"a key brings another": {keys,
			`{"name":"etcd","namespace":"shop","config":{"nodeSelector":{"k":"x","l":"x","a":"b"}}}`,
			"spec.subscription " + misfit + "spec.subscription.config.nodeSelector;", nil},

		"targets": {group, `{"name":"g","targetNamespaces":["a","b"]}`, "", func(op *policyv1beta2.OperatorPolicy) {
			op.Spec.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "g", TargetNamespaces: raw(`["a","b"]`)}
		}},
		"targets of nothing are all namespaces": {group, `{"name":"g","targetNamespaces":[]}`,
			"spec.operatorGroup.targetNamespaces resolves to nothing, which would leave it open", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			op := policy(test.change)
			parts := templated(op)
			if len(parts) != 1 {
				t.Fatalf("%d parts", len(parts))
			}
			var resolved any
			if err := json.Unmarshal([]byte(test.resolved), &resolved); err != nil {
				t.Fatal(err)
			}
			completed := op.DeepCopy()
			err := parts[0].put(completed, resolved)
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if test.problem == "" && err != nil || !strings.HasPrefix(problem, test.problem) ||
				(err != nil) != (test.problem != "") {
				t.Fatalf("problem %q, want %q", problem, test.problem)
			}
			want := op
			if test.want != nil {
				want = policy(test.want)
			}
			if diff := cmp.Diff(want, completed); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}
