package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// policy allows a version of etcd in namespace shop.
func policy(version, action string) *operatorpolicy.Policy {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name = "policies", "etcd"
	op.Spec = policyv1beta2.OperatorPolicySpec{
		RemediationAction: policyv1beta2.RemediationAction(action),
		ComplianceType:    policyv1beta2.MustHave,
		UpgradeApproval:   policyv1beta2.UpgradeApprovalAutomatic,
		Subscription:      policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop"},
		Versions:          []string{version},
	}
	return rules.NewOperatorPolicy(op)
}

// namespaceWith has n installed operators of package etcd.
func namespaceWith(t *testing.T, n int, policies ...*operatorpolicy.Policy) *state.Namespace {
	t.Helper()
	in := state.NamespaceContents{Policies: policies, Exists: true}
	for i := range n {
		csv, err := olm.Decode[olm.CSV](fmt.Appendf(nil, `{"metadata":{"name":"etcd.v1.0.%[1]d","namespace":"shop","annotations":{
			"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.%[1]d\"}}]}"}},"spec":{}}`, i))
		if err != nil {
			t.Fatal(err)
		}
		in.CSVs = append(in.CSVs, state.Installed{Bundle: csv.StatedBundle(), UID: csv.Metadata.UID})
	}
	return state.NewNamespace("shop", in)
}

func TestResults(t *testing.T) {
	for name, c := range map[string]struct {
		policies []*operatorpolicy.Policy
		want     string
	}{
		"listed": {[]*operatorpolicy.Policy{policy("etcd.v1.0.0", "enforce")},
			"pass OperatorPolicy policies/etcd  allowed"},
		"not listed": {[]*operatorpolicy.Policy{policy("etcd.v2.0.0", "enforce")},
			"fail OperatorPolicy policies/etcd bundle/version etcd.v1.0.0 is not allowed"},
		"informs": {[]*operatorpolicy.Policy{policy("etcd.v2.0.0", "inform")},
			"warn OperatorPolicy policies/etcd bundle/version etcd.v1.0.0 is not allowed"},
		"ungoverned": {nil, "skip none  no enforcing OperatorPolicy"},
	} {
		r := reportOf(namespaceWith(t, 1, c.policies...), time.Time{})
		if r == nil || len(r.Results) != 1 || r.Configuration != nil {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		got := r.Results[0]
		if text := strings.Join([]string{string(got.Result), got.Policy, got.Rule, got.Description},
			" "); !strings.HasPrefix(text, c.want) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
		if s := got.Subjects[0]; s.Kind != "ClusterServiceVersion" || s.APIVersion != "operators.coreos.com/v1alpha1" ||
			s.Namespace != "shop" || s.Name != "etcd.v1.0.0" {
			t.Errorf("%s: %+v", name, s)
		}
		if total := r.Summary.Pass + r.Summary.Fail + r.Summary.Warn + r.Summary.Skip; total != 1 ||
			(got.Properties[PropertyDecision] != "") != (got.Result == fail) {
			t.Errorf("%s: %+v %+v", name, r.Summary, got)
		}
	}
	if r := reportOf(namespaceWith(t, 0, policy("etcd.v1.0.0", "enforce")), time.Time{}); r != nil {
		t.Errorf("nothing is installed: %+v", r)
	}
}

// TestManyResults bounds the Report of a namespace with more operators than it lists: the refused one comes first, and
// all are counted.
func TestManyResults(t *testing.T) {
	const installed = 10_000
	refused := policy("etcd.v1.0.9999", "enforce")
	r := reportOf(namespaceWith(t, installed, refused), time.Time{})
	if len(r.Results) != maxResults || r.Summary.Fail != installed-1 ||
		r.Summary.Pass != 1 {
		t.Errorf("%d results, %+v", len(r.Results), r.Summary)
	}
	if r.Results[0].Result != fail || r.Configuration.Limits.MaxResults != maxResults {
		t.Errorf("%+v", r.Results[0])
	}
	content, err := json.Marshal(r)
	if err != nil || len(content) > 1<<20 {
		t.Errorf("%d bytes: %v", len(content), err)
	}
}

// TestStamp keeps the time of what was so before.
func TestStamp(t *testing.T) {
	before := reportOf(namespaceWith(t, 2, policy("etcd.v1.0.0", "enforce")), time.Time{})
	stamp(before, &reports.Report{}, time.Unix(100, 0))
	after := reportOf(namespaceWith(t, 3, policy("etcd.v1.0.0", "enforce")), time.Time{})
	stamp(after, before, time.Unix(200, 0))
	since := map[string]metav1.Timestamp{}
	for _, result := range after.Results {
		since[result.Subjects[0].Name] = result.Timestamp
	}
	for name, seconds := range map[string]int64{"etcd.v1.0.0": 100, "etcd.v1.0.1": 100, "etcd.v1.0.2": 200} {
		if since[name].Seconds != seconds {
			t.Errorf("%s since %d, want %d", name, since[name].Seconds, seconds)
		}
	}
}
