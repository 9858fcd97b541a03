package rules

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// TestI1ValuesAreNotQuoted completes policies with values that are not valid, and looks for them in everything that a
// policy is judged by (threat O47).
func TestI1ValuesAreNotQuoted(t *testing.T) {
	const template, hush = `{{ fromConfigMap "a" "b" "c" }}`, " HUSH "
	text := func(s string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(strconv.Quote(s))} }
	for path, put := range map[string]func(s *spec, value string){
		"spec.versions":                     func(s *spec, value string) { s.Versions = []string{value} },
		"spec.versionRange":                 func(s *spec, value string) { s.VersionRange = value },
		"spec.subscription.name":            func(s *spec, value string) { s.Subscription.Name = value },
		"spec.subscription.namespace":       func(s *spec, value string) { s.Subscription.Namespace = value },
		"spec.subscription.channel":         func(s *spec, value string) { s.Subscription.Channel = value },
		"spec.subscription.source":          func(s *spec, value string) { s.Subscription.Source = value },
		"spec.subscription.sourceNamespace": func(s *spec, value string) { s.Subscription.SourceNamespace = value },
		"spec.subscription.startingCSV":     func(s *spec, value string) { s.Subscription.StartingCSV = value },
		"spec.subscription.config":          func(s *spec, value string) { s.Subscription.Config = text(value) },
		"spec.operatorGroup.name":           func(s *spec, value string) { groupOf(s).Name = value },
		"spec.operatorGroup.namespace":      func(s *spec, value string) { groupOf(s).Namespace = value },
		"spec.operatorGroup.targetNamespaces": func(s *spec,
			value string) {
			groupOf(s).TargetNamespaces = text(value)
		},
		"spec.operatorGroup.selector":           func(s *spec, value string) { groupOf(s).Selector = text(value) },
		"spec.operatorGroup.serviceAccountName": func(s *spec, value string) { groupOf(s).ServiceAccountName = value },
	} {
		t.Run(path, func(t *testing.T) {
			written := operatorPolicy("etcd", func(s *spec) { put(s, template) })
			completed := operatorPolicy("etcd", func(s *spec) { put(s, hush) })
			p := NewOperatorPolicy(written).Completed(completed, nil)
			want := path + ": Invalid value: the value of the template at " + path + " is not valid"
			if len(p.Invalid) != 1 || p.Invalid[0].Error() != want {
				t.Errorf("invalid is %q, want %q", p.Invalid, want)
			}
			seen := fmt.Sprintf("%+v %+v %s %v", *p, p.Object.Spec, p.Unreadable(), p.Invalid)
			if c := p.Object.Spec.Subscription.Config; c != nil {
				seen += string(c.Raw)
			}
			if g := p.Object.Spec.OperatorGroup; g != nil {
				seen += fmt.Sprintf("%+v", *g)
			}
			if strings.Contains(seen, "HUSH") {
				t.Errorf("the value is kept: %s", seen)
			}
		})
	}
}

// TestCompletedKeepsWrittenErrors checks that errors in what an author has written say what is wrong.
func TestCompletedKeepsWrittenErrors(t *testing.T) {
	written := operatorPolicy("etcd", func(s *spec) { s.VersionRange, s.Subscription.Channel = "newer", `{{ "a" }}` })
	completed := operatorPolicy("etcd", func(s *spec) { s.VersionRange, s.Subscription.Channel = "newer", "a" })
	p := NewOperatorPolicy(written).Completed(completed, nil)
	if len(p.Invalid) != 1 || !strings.Contains(p.Invalid[0].Error(), `"newer"`) || p.Channel != "a" {
		t.Errorf("invalid is %q, channel %q", p.Invalid, p.Channel)
	}
}

func groupOf(s *spec) *policyv1beta2.OperatorGroupTemplate {
	if s.OperatorGroup == nil {
		s.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "group"}
	}
	return s.OperatorGroup
}
