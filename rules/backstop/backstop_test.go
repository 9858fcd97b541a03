package backstop_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	admissionv1 "k8s.io/api/admissionregistration/v1"
)

const (
	olmUser    = "system:serviceaccount:olm:olm-operator-serviceaccount"
	opgateUser = "system:serviceaccount:opgate-system:opgate"
	escalate   = "escalate clusterroles /"
)

var everything = backstop.Features{ValidatingAdmissionPolicy: true, MutatingAdmissionPolicy: true, Semver: true}

type spec = policyv1beta2.OperatorPolicySpec

// policy returns an enforcing policy in namespace policies; edit changes it further.
func policy(name, namespace, pkg string, edit func(*spec)) *operatorpolicy.Policy {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name = "policies", name
	op.Spec = spec{RemediationAction: policyv1beta2.Enforce, ComplianceType: policyv1beta2.MustHave,
		UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
		Subscription:    policyv1beta2.SubscriptionTemplate{Name: pkg, Namespace: namespace}}
	if edit != nil {
		edit(&op.Spec)
	}
	return rules.NewOperatorPolicy(op)
}

func versions(names ...string) func(*spec) { return func(s *spec) { s.Versions = names } }

func compile(in backstop.Input) *parts {
	if in.OLM == nil {
		in.OLM, in.Opgate = []string{olmUser}, opgateUser
	}
	o := &parts{Objects: backstop.Compile(in)}
	for i := 0; i < len(o.All); i += 2 {
		validating, _ := o.All[i].(*admissionv1.ValidatingAdmissionPolicy)
		binding, _ := o.All[i+1].(*admissionv1.ValidatingAdmissionPolicyBinding)
		switch {
		case validating == nil:
			o.Mutating = o.All[i].(*admissionv1.MutatingAdmissionPolicy)
		case validating.Name == backstop.Name:
			o.Validating, o.ValidatingBinding = validating, binding
		case validating.Name == backstop.UnpackedName:
			o.Unpacked, o.UnpackedBinding = validating, binding
		case validating.Name == backstop.DeletionName:
			o.Deletion, o.DeletionBinding = validating, binding
		default:
			o.Evidence, o.EvidenceBinding = validating, binding
		}
	}
	return o
}

// parts are the objects by name.
type parts struct {
	backstop.Objects
	Mutating                                                             *admissionv1.MutatingAdmissionPolicy
	Validating, Unpacked, Deletion, Evidence                             *admissionv1.ValidatingAdmissionPolicy
	ValidatingBinding, UnpackedBinding, DeletionBinding, EvidenceBinding *admissionv1.ValidatingAdmissionPolicyBinding
}

// under compiles for policies, with all features.
func under(t testing.TB, policies ...*operatorpolicy.Policy) *apiServer {
	t.Helper()
	return newAPIServer(t, compile(backstop.Input{Features: everything, Policies: policies}))
}

// TestOverride: it needs the right on each policy that refuses, and the API server records it.
func TestOverride(t *testing.T) {
	policies := make([]*operatorpolicy.Policy, 9)
	rights := make([]string, 9)
	for i := range policies {
		policies[i] = policy(fmt.Sprintf("p%d", i), "shop", "etcd", versions("etcd.v1"))
		rights[i] = fmt.Sprintf("override operatorpolicies policies/p%d", i)
	}
	for name, c := range map[string]struct {
		policies []*operatorpolicy.Policy
		rights   []string
		refused  bool
	}{
		"no right":          {policies[:1], nil, true},
		"another right":     {policies[:1], rights[1:2], true},
		"the right":         {policies[:1], rights[:1], false},
		"one of two":        {policies[:2], rights[:1], true},
		"eight of eight":    {policies[:8], rights[:8], false},
		"seven of eight":    {policies[:8], rights[:7], true},
		"more than checked": {policies, rights, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := approval("shop", "etcd.v2")
			w.object.(object)["metadata"].(object)["annotations"] = object{metakey.OverrideReason: "incident 7"}
			w.rights = c.rights
			got := under(t, c.policies...).judge(t, w)
			if len(got.failed) > 0 || c.refused != (len(got.refused) > 0) {
				t.Errorf("%+v, want a refusal: %t", got, c.refused)
			}
			if want := "override of policies/p0"; !strings.HasPrefix(got.audit, want) ||
				!strings.HasSuffix(got.audit, `with reason "incident 7"`) {
				t.Errorf("the audit annotation is %q, want %q and the reason", got.audit, want)
			}
		})
	}
}

// TestOverrideEnd: the end of an override stays as it was approved, except that it is ended now.
func TestOverrideEnd(t *testing.T) {
	s := under(t, policy("etcd", "shop", "etcd", versions("etcd.v1")))
	const end, later = "2026-12-01T00:00:00Z", "2126-12-01T00:00:00Z"
	for name, c := range map[string]struct {
		old, expires object
		refused      bool
	}{
		"unchanged": {object{metakey.OverrideExpires: end}, object{metakey.OverrideExpires: end},
			false},
		"prolonged": {object{metakey.OverrideExpires: end}, object{metakey.OverrideExpires: later},
			true},
		"removed": {object{metakey.OverrideExpires: end}, object{}, true},
		"open again": {object{metakey.OverrideExpires: "ended " + end},
			object{metakey.OverrideExpires: end}, true},
		"ended": {object{metakey.OverrideExpires: end},
			object{metakey.OverrideExpires: "ended " + end}, false},
		"ended later": {object{metakey.OverrideExpires: end},
			object{metakey.OverrideExpires: "ended " + later}, true},
		"ended now": {object{metakey.OverrideExpires: end}, object{metakey.OverrideExpires: "ended"},
			false},
		"added": {object{}, object{metakey.OverrideExpires: later}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := approval("shop", "etcd.v2")
			plan := w.object.(object)
			c.old[metakey.OverrideReason], c.expires[metakey.OverrideReason] = "incident 7",
				"incident 7"
			plan["metadata"].(object)["annotations"] = c.old
			old := clone(t, plan)
			plan["metadata"].(object)["annotations"] = c.expires
			w.object, w.old = plan, old
			got := s.judge(t, w)
			if len(got.failed) > 0 || c.refused != (len(got.refused) > 0) {
				t.Errorf("%+v, want a refusal: %t", got, c.refused)
			}
		})
	}
}

// TestSubscriptions are stored Manual where a policy must judge each plan.
func TestSubscriptions(t *testing.T) {
	policies := []*operatorpolicy.Policy{policy("etcd", "shop", "etcd", versions("etcd.v1")),
		policy("vault", "shop", "vault", nil), policy("vault", "free", "vault", nil),
		policy("grafana", "shop", "grafana", func(s *spec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone })}
	for _, mode := range []rules.ApprovalMode{rules.MutateApproval, rules.DenyApproval} {
		s := newAPIServer(t, compile(backstop.Input{Features: everything, Policies: policies, ApprovalMode: mode}))
		for _, c := range []struct{ namespace, pkg, user, want string }{
			{"shop", "etcd", "alice", olm.ApprovalManual},
			{"shop", "grafana", "alice", olm.ApprovalManual},
			{"shop", "vault", "alice", olm.ApprovalManual},
			{"shop", "prometheus", "alice", olm.ApprovalManual},
			{"shop", "prometheus", olmUser, olm.ApprovalManual},
			{"shop", "prometheus", opgateUser, olm.ApprovalAutomatic},
			{"free", "vault", "alice", olm.ApprovalAutomatic},
			{"free", "prometheus", "alice", olm.ApprovalAutomatic},
			{"other", "etcd", "alice", olm.ApprovalAutomatic},
			{"shop", "etcd", olmUser, olm.ApprovalManual},
		} {
			want, refused := c.want, false
			if mode == rules.DenyApproval && c.user != olmUser && want == olm.ApprovalManual {
				want, refused = olm.ApprovalAutomatic, true
			}
			w := write{resource: "subscriptions", user: c.user, rights: []string{escalate},
				object: object{"apiVersion": "operators.coreos.com/v1alpha1",
					"kind": "Subscription", "metadata": object{"namespace": c.namespace, "name": "sub"},
					"spec": object{"name": c.pkg, "installPlanApproval": olm.ApprovalAutomatic}}}
			if got := s.mutate(t, w); got != want {
				t.Errorf("mode %s: %+v is stored %s, want %s", mode, c, got, want)
			}
			if got := s.judge(t, w); refused && len(got.refused) != 1 || len(got.failed) > 0 {
				t.Errorf("mode %s: %+v: %+v, want a refusal: %t", mode, c, got, refused)
			}
		}
	}
}

// TestHostile: names that no API server stores, and policies that contradict each other, neither break an expression
// nor open it.
func TestHostile(t *testing.T) {
	s := under(t, policy("a'b\\\n c/d", "shop", "etcd", versions("etcd.v1")),
		policy("etcd", "shop", "etcd", versions("x' || true || '", "etcd.v2")),
		policy("forbidden", "shop", "etcd", func(s *spec) { s.ComplianceType = policyv1beta2.MustNotHave }),
		policy("next", "shop'\n{{'", "etcd", versions("etcd.v1")),
		policy("last", "shop", "et\nshop etcd n x/y *", versions("etcd.v1")))
	for _, csv := range []string{"etcd.v1", "etcd.v2", "", "=", "etcd", "a0", "policies/etcd", "*", "' || true || '",
		"\n", strings.Repeat("x", 5000)} {
		got := s.judge(t, approval("shop", csv))
		if len(got.failed) > 0 || len(got.refused) != 1 || len(got.refused[0]) > 5<<10 {
			t.Errorf("%q: %+v, want one refusal", csv, got)
		}
	}
}

// TestAccounts: what a ServiceAccount writes as which OLM may write steps is left to the gate, and what any other user
// writes is not.
func TestAccounts(t *testing.T) {
	policies := []*operatorpolicy.Policy{policy("etcd", "shop", "etcd", versions("etcd.v1"))}
	w := write{resource: "clusterserviceversions", object: object{"apiVersion": "operators.coreos.com/v1alpha1",
		"kind": "ClusterServiceVersion",
		"metadata": object{"namespace": "shop", "name": "etcd.v2", "annotations": object{
			metakey.Properties: `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"2.0.0"}}]}`}}, "spec": object{}}}
	for _, c := range []struct {
		accounts map[string][]string
		user     string
		refused  bool
	}{
		{nil, "alice", true},
		{nil, "system:serviceaccount:shop:any", false},
		{nil, "system:serviceaccount:other:any", true},
		{nil, opgateUser, false},
		{map[string][]string{}, "system:serviceaccount:shop:any", true},
		{map[string][]string{"shop": {"installer"}, "other": {"any"}}, "system:serviceaccount:shop:any", true},
		{map[string][]string{"shop": {"installer"}, "other": {"any"}}, "system:serviceaccount:shop:installer", false},
	} {
		w.user = c.user
		s := newAPIServer(t, compile(backstop.Input{Features: everything, Policies: policies, Accounts: c.accounts}))
		if got := s.judge(t, w); len(got.failed) > 0 || c.refused != (len(got.refused) == 1) {
			t.Errorf("%s with accounts %v: %+v, want a refusal: %t", c.user, c.accounts, got, c.refused)
		}
	}
}

// TestD1CSVsThatHideTheirPackage: a user who writes a ClusterServiceVersion cannot get past the API server by the form
// of its properties, and the gate refuses each of these writes as well.
func TestD1CSVsThatHideTheirPackage(t *testing.T) {
	policies := []*operatorpolicy.Policy{policy("etcd", "shop", "etcd", versions("etcd.v0.9.2"))}
	s := under(t, policies...)
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Policies: policies})
	named := func(pkg string) string {
		return `{"properties":[{"type":"olm.package","value":{"packageName":"` + pkg + `","version":"0.9.4"}}]}`
	}
	csv := func(namespace, name, properties string) object {
		return object{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
			"metadata": object{"namespace": namespace,
				"name": name, "annotations": object{metakey.Properties: properties}}, "spec": object{}}
	}
	attack := func(t *testing.T, w write, refused bool) {
		t.Helper()
		w.resource = "clusterserviceversions"
		got := s.judge(t, w)
		if len(got.failed) > 0 || refused != (len(got.refused) == 1) {
			t.Errorf("%s writes %s: %+v, want a refusal: %t", w.user, compact(w.object), got, refused)
		}
		in := rules.CSVInput{New: csvOf(t, w.object.(object)), Namespace: ns, User: w.user, ByOLM: w.user == olmUser,
			ByOpgate: w.user == opgateUser}
		if w.old != nil {
			in.Old = csvOf(t, w.old.(object))
		}
		if gate := rules.JudgeCSV(in); refused && gate.Decision == verdict.Allow {
			t.Errorf("the gate admits %s", compact(w.object))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(hide)) {
		t.Run(name, func(t *testing.T) {
			hidden := hide[name](named("etcd"))
			attack(t, write{user: "alice", object: csv("shop", "etcd.v0.9.4", hidden)}, true)
			attack(t, write{user: "alice", object: csv("shop", "etcd.v0.9.2", hidden)}, true)
			// One that is described otherwise cannot become one that is not described, and a copy cannot become an
			// operator.
			attack(t, write{user: "alice", object: csv("shop", "etcd.v0.9.4", hidden),
				old: csv("shop", "etcd.v0.9.4", named("foreign"))}, true)
			copied := csv("shop", "etcd.v0.9.4", hidden)
			copied["metadata"].(object)["labels"] = object{metakey.CopiedFrom: "elsewhere"}
			attack(t, write{user: "alice", object: csv("shop", "etcd.v0.9.4", hidden), old: copied}, true)
			// Controls: OLM, Opgate, accounts that write steps, a namespace that is not governed, an update of what was
			// there before.
			attack(t, write{user: olmUser, rights: []string{escalate}, object: csv("shop", "etcd.v0.9.4", hidden)},
				false)
			attack(t, write{user: opgateUser, object: csv("shop", "etcd.v0.9.4", hidden)}, false)
			attack(t, write{user: "system:serviceaccount:shop:installer", object: csv("shop", "etcd.v0.9.4", hidden)},
				false)
			attack(t, write{user: "alice", object: csv("elsewhere", "etcd.v0.9.4", hidden)}, false)
			old := csv("shop", "etcd.v0.9.4", hidden)
			old["metadata"].(object)["labels"] = object{"a": "b"}
			attack(t, write{user: "alice", object: csv("shop", "etcd.v0.9.4", hidden), old: old}, false)
		})
	}
	t.Run("as OLM writes it", func(t *testing.T) {
		attack(t, write{user: "alice", object: csv("shop", "etcd.v0.9.4", named("etcd"))}, true)
		attack(t, write{user: "alice", object: csv("shop", "etcd.v0.9.2", named("etcd"))}, false)
		attack(t, write{user: "alice", object: csv("shop", "foreign.v1", named("foreign"))}, false)
	})
}

// TestReleases: the expressions compile on every release of Kubernetes that has the features.
func TestReleases(t *testing.T) {
	policies := []*operatorpolicy.Policy{policy("etcd", "shop", "etcd",
		func(s *spec) { s.Versions, s.VersionRange = []string{"etcd.v1"}, ">=1.0.0" })}
	plain := backstop.Features{ValidatingAdmissionPolicy: true}
	for release, features := range map[string]backstop.Features{
		"1.30": plain,
		"1.33": {ValidatingAdmissionPolicy: true, Semver: true},
		"1.36": everything,
		"1.37": everything,
	} {
		for _, accounts := range []map[string][]string{nil, {"shop": {"installer"}}} {
			o := compile(backstop.Input{Features: features, Policies: policies, Accounts: accounts})
			wantCompiles(t, o, release)
			wantCompiles(t, &parts{Validating: o.Unpacked}, release)
		}
	}
	if o := compile(backstop.Input{Policies: policies}); len(o.All) != 0 {
		t.Errorf("%d objects for an API server without the features", len(o.All))
	}
	if o := compile(backstop.Input{Policies: policies, Features: everything, Audit: true}); o.Mutating != nil ||
		slices.Contains(o.ValidatingBinding.Spec.ValidationActions, "Deny") ||
		slices.Contains(o.UnpackedBinding.Spec.ValidationActions, "Deny") {
		t.Error("an audit changes or refuses something")
	}
}

// TestBudget: a plan as large as etcd stores is judged within the API server's limits of cost, or held.
func TestBudget(t *testing.T) {
	s := under(t, policy("etcd", "shop", "etcd",
		func(s *spec) { s.Versions, s.VersionRange = []string{"etcd.v1"}, ">=1.0.0" }))
	const size = 1_400_000
	properties := `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}}]}`
	for name, edit := range map[string]func(status object){
		"one manifest": func(status object) { status["plan"] = []any{largeStep("etcd.v2", properties, size)} },
		"a manifest without properties": func(status object) {
			status["plan"] = []any{object{"resolving": "x",
				"resource": object{"kind": "ClusterServiceVersion", "name": "x",
					"manifest": strings.Repeat("x", size)}}}
		},
		"properties": func(status object) {
			status["bundleLookups"] = []any{object{"identifier": "etcd.v2",
				"properties": strings.Repeat(`{"type":"olm.gvk"},`, size/20) + properties}}
		},
		"many steps": func(status object) {
			status["plan"] = slices.Repeat(
				[]any{object{"resource": object{"kind": "Role", "manifest": "{}"}, "status": "Unknown"}}, 10_000)
		},
		"many lookups": func(status object) {
			status["bundleLookups"] = slices.Repeat([]any{object{"identifier": "etcd.v2", "properties": properties}},
				1000)
		},
		"too many lookups": func(status object) {
			status["bundleLookups"] = slices.Repeat(
				[]any{object{"identifier": "x.v2", "properties": strings.ReplaceAll(properties, "etcd", "x")}}, 1001)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := approval("shop", "etcd.v2")
			edit(w.old.(object)["status"].(object))
			w.object.(object)["status"] = w.old.(object)["status"]
			if got := s.judge(t, w); len(got.failed) > 0 || len(got.refused) == 0 && name != "many steps" &&
				name != "a manifest without properties" {
				t.Errorf("%.3000v", got)
			}
		})
	}
}

func largeStep(name, properties string, size int) object {
	manifest := ordered{{"kind", "ClusterServiceVersion"}, {"metadata", ordered{{"name", name},
		{"annotations", ordered{{"operatorframework.io/properties", properties}}}}}, {"spec",
		object{"description": strings.Repeat("x", size)}}}
	return object{"resolving": name, "resource": object{"kind": "ClusterServiceVersion", "name": name,
		"manifest": compact(manifest)}}
}

// TestStepManifests checks where the package of a step is read in its manifest.
func TestStepManifests(t *testing.T) {
	s := newAPIServer(t, compile(backstop.Input{Features: everything,
		Policies: []*operatorpolicy.Policy{policy("etcd", "shop", "etcd", versions("etcd.v1"))}}))
	const compactly = `{"metadata":{"annotations":{"operatorframework.io/properties":` +
		`"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"2.0.0\"}}]}"}}}`
	for name, c := range map[string]struct {
		manifest string
		held     bool
	}{
		"compact": {compactly, true},
		"other":   {`{"metadata":{}}`, false},
		"none":    {"", false},
		"white space": {`{"metadata": {"annotations": {"operatorframework.io/properties": "{\"properties\": []}"}}}`,
			false},
		"elsewhere": {`{"metadata":{"annotations":{"operatorframework.io/properties":"{}","x":` +
			`"{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\"}}"}}}`, false},
	} {
		w := approval("shop", "etcd.v2")
		w.old.(object)["status"] = object{"phase": olm.PhaseRequiresApproval,
			"plan": []any{object{"resolving": "etcd.v2", "status": "Unknown",
				"resource": object{"kind": "ClusterServiceVersion", "name": "etcd.v2", "manifest": c.manifest}}}}
		w.object.(object)["status"] = w.old.(object)["status"]
		if refused := s.judge(t, w).refused; c.held != (len(refused) > 0) {
			t.Errorf("%s: the API server says %q, want held %t", name, refused, c.held)
		}
	}
}
