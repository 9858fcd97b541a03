package rules

import (
	"errors"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestD2JudgedNamespaces shows in which namespaces Subscriptions wait for a policy that is for another package.
func TestD2JudgedNamespaces(t *testing.T) {
	edited := func(edit func(*policyv1beta2.OperatorPolicySpec)) []*operatorpolicy.Policy {
		return []*operatorpolicy.Policy{policyFor("etcd", edit)}
	}
	listed := policyFor("etcd", versions("etcd.v1"))
	forbids := func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MustNotHave }
	holds := func(s *policyv1beta2.OperatorPolicySpec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone }
	incomplete := policyFor("etcd", versions("etcd.v1"))
	incomplete.Incomplete = true
	informing := policyFor("etcd", versions("etcd.v1"))
	informing.Enforced = false
	everything := policyFor("vault", nil)
	for name, c := range map[string]struct {
		policies []*operatorpolicy.Policy
		waits    bool
		keeps    bool // what waits already goes on waiting
	}{
		"no policy":                      {policies: nil},
		"a list of versions":             {policies: []*operatorpolicy.Policy{listed}, waits: true, keeps: true},
		"every version":                  {policies: edited(nil)},
		"every version, of two packages": {policies: append(edited(nil), everything)},
		"a list, and every version": {policies: []*operatorpolicy.Policy{everything, listed}, waits: true,
			keeps: true},
		"one that only informs":              {policies: []*operatorpolicy.Policy{informing}},
		"one that is not completed":          {policies: []*operatorpolicy.Policy{incomplete}, keeps: true},
		"one that forbids":                   {policies: edited(forbids), waits: true, keeps: true},
		"one that does not approve upgrades": {policies: edited(holds), waits: true, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Policies: c.policies,
				Facts: aroundKubernetes})
			automatic, turned := subscriptionTo("foo"), subscriptionTo("foo")
			automatic.Spec.InstallPlanApproval = olm.ApprovalAutomatic
			turned.Metadata.Annotations = olm.Annotations{Present: true, RequestedApproval: olm.ApprovalAutomatic}
			for _, mode := range []ApprovalMode{MutateApproval, DenyApproval} {
				v := JudgeSubscription(SubscriptionInput{New: automatic, Namespace: ns, Mode: mode})
				waits := mode == MutateApproval && len(v.Changes) == 2 || mode == DenyApproval &&
					v.Decision == verdict.Deny
				if waits != c.waits {
					t.Errorf("mode %s: %s, changes %v, want it to wait: %t", mode, v.Decision, v.Changes, c.waits)
				}
			}
			if changes := ApprovalChanges(automatic, ns); (len(changes) == 2) != c.waits {
				t.Errorf("a stored Subscription gets %v, want it to wait: %t", changes, c.waits)
			}
			if changes := ApprovalChanges(turned, ns); (len(changes) == 0) != c.keeps {
				t.Errorf("one that waits gets %v, want it to go on: %t", changes, c.keeps)
			}
			// The package with a policy that allows every version waits as well.
			if mode, _ := ns.Approval(everything); (mode == olm.ApprovalManual) != c.waits {
				t.Errorf("a policy that allows every version wants %s", mode)
			}
		})
	}
}

// TestD2WithoutSpec: a patch of a field in a spec that does not exist would be answered 500 in place of the API
// server's refusal.
func TestD2WithoutSpec(t *testing.T) {
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true,
		Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v1"))}})
	v := JudgeSubscription(SubscriptionInput{New: &olm.Subscription{}, Namespace: ns, Mode: MutateApproval})
	if len(v.Changes) > 0 {
		t.Errorf("it is changed by %v", v.Changes)
	}
}

// TestRequestedApprovalIsKept shows what becomes of installPlanApproval of a stored Subscription to a package with a
// policy: one that only allows or forbids never makes Manual Automatic, and what was asked for is given back.
func TestRequestedApprovalIsKept(t *testing.T) {
	edited := func(compliance policyv1beta2.ComplianceType, names ...string) *operatorpolicy.Policy {
		return policyFor("etcd", func(s *spec) { s.ComplianceType, s.Versions = compliance, names })
	}
	mayhave, musthave, mustnothave := policyv1beta2.MayHave, policyv1beta2.MustHave, policyv1beta2.MustNotHave
	for name, c := range map[string]struct {
		policy       *operatorpolicy.Policy
		have, noted  string
		want, leaves string
	}{
		"an allow-list makes Automatic wait":     {edited(mayhave, "etcd.v1"), "Automatic", "", "Manual", "Automatic"},
		"an allow-list makes what is unset wait": {edited(mayhave, "etcd.v1"), "", "", "Manual", "Automatic"},
		"an allow-list leaves Manual alone":      {edited(mayhave, "etcd.v1"), "Manual", "", "Manual", ""},
		"one of every version does":              {edited(mayhave), "Manual", "", "Manual", ""},
		"it leaves Automatic alone":              {edited(mayhave), "Automatic", "", "Automatic", ""},
		"it gives back Automatic":                {edited(mayhave), "Manual", "Automatic", "Automatic", ""},
		"a forbidden version makes it wait": {edited(mustnothave, "etcd.v1"), "Automatic", "", "Manual",
			"Automatic"},
		"a forbidden version leaves Manual":  {edited(mustnothave, "etcd.v1"), "Manual", "", "Manual", ""},
		"a managed one is its policy's":      {edited(musthave), "Automatic", "Manual", "Automatic", "Manual"},
		"without a policy Automatic is back": {nil, "Manual", "Automatic", "Automatic", ""},
		"without a policy Manual is back":    {nil, "Automatic", "Manual", "Manual", ""},
		"another value is a user's":          {nil, "Manual", "later", "Manual", "later"},
	} {
		t.Run(name, func(t *testing.T) {
			contents := state.NamespaceContents{Exists: true, Facts: aroundKubernetes}
			if c.policy != nil {
				contents.Policies = []*operatorpolicy.Policy{c.policy}
			}
			s := subscriptionTo("etcd")
			s.Spec.InstallPlanApproval = c.have
			s.Metadata.Annotations = olm.Annotations{Present: c.noted != "", RequestedApproval: c.noted}
			contents.Subscriptions = []*olm.Subscription{s}
			ns := state.NewNamespace("shop", contents)
			if have, noted := changed(s, ApprovalChanges(s, ns)); have != c.want || noted != c.leaves {
				t.Errorf("it becomes %q, noted %q, want %q and %q", have, noted, c.want, c.leaves)
			}
			if c.policy == nil || manages(c.policy) || c.noted != "" {
				return
			}
			v := JudgeSubscription(SubscriptionInput{New: s, Namespace: ns, Mode: MutateApproval})
			if have, noted := changed(s, v.Changes); have != c.want || noted != c.leaves {
				t.Errorf("written, it becomes %q, noted %q, want %q and %q", have, noted, c.want, c.leaves)
			}
		})
	}
}

// changed returns installPlanApproval and the note of a Subscription after some changes.
func changed(s *olm.Subscription, changes []verdict.Change) (approval, noted string) {
	approval, noted = s.Spec.InstallPlanApproval, s.Metadata.Annotations.RequestedApproval
	for _, c := range changes {
		switch {
		case c.Path == pathApproval:
			approval = c.Value.(string)
		case c.Remove:
			noted = ""
		case c.Path == pathAnnotations:
			noted = c.Value.(map[string]string)[metakey.RequestedApproval]
		default:
			noted = c.Value.(string)
		}
	}
	return approval, noted
}

// TestManagedApproval shows what is noted when a user writes a Subscription that a musthave policy manages.
func TestManagedApproval(t *testing.T) {
	for name, c := range map[string]struct {
		edit               func(*spec)
		have, noted        string
		want, leaves, says string
	}{
		"Manual is noted": {nil, "Manual", "", "Automatic", "Manual", "changed from \"Manual\" to Automatic"},
		"Manual is noted once": {nil, "Manual", "Manual", "Automatic", "Manual",
			"changed from \"Manual\" to Automatic"},
		"Automatic is given back": {nil, "Manual", "Automatic", "Automatic", "",
			"changed from \"Manual\" to Automatic"},
		"Automatic is noted": {versions("etcd.v1"), "Automatic", "Manual", "Manual", "Automatic",
			"changed from \"Automatic\" to Manual"},
		"what was not written is set": {versions("etcd.v1"), "", "", "Manual", "Automatic",
			"spec.installPlanApproval was set to Manual by " +
				"OperatorPolicy policies/etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := subscriptionTo("etcd")
			s.Spec.InstallPlanApproval = c.have
			s.Metadata.Annotations = olm.Annotations{Present: c.noted != "", RequestedApproval: c.noted}
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", c.edit)}})
			old := *s
			old.Spec.InstallPlanApproval, old.Spec.Channel = "Manual", "before"
			v := JudgeSubscription(SubscriptionInput{New: s, Old: &old, Namespace: ns, Mode: MutateApproval})
			if have, noted := changed(s, v.Changes); have != c.want || noted != c.leaves ||
				!strings.Contains(v.Changes[0].Message, c.says) {
				t.Errorf("it becomes %q, noted %q, want %q and %q: %v", have, noted, c.want, c.leaves, v.WarningTexts())
			}
		})
	}
}

// TestRequestIsUnderstood: the newest evidence of what a user wants counts, and is warned of where it is not the value that
// is stored. TestRequestedApprovalIsHeard of the end-to-end tests writes in each way.
func TestRequestIsUnderstood(t *testing.T) {
	type sub struct{ approval, noted string }
	automatic := sub{"Manual", "Automatic"} // what a user made Automatic
	for name, c := range map[string]struct {
		old, written  sub
		applied       bool
		edit          func(*spec) // of a policy
		leaves, warns string
	}{
		"nothing":                          {automatic, automatic, false, nil, "Automatic", ""},
		"applied":                          {automatic, automatic, true, nil, "", "asks for Manual from now on"},
		"the annotation removed":           {automatic, sub{"Manual", ""}, false, nil, "", "asks for Manual from now on"},
		"the annotation changed":           {automatic, sub{"Manual", "Manual"}, false, nil, "Manual", "asks for Manual from now on"},
		"the annotation set":               {sub{"Manual", ""}, automatic, false, nil, "Automatic", "asks for Automatic from now on"},
		"the value, then":                  {sub{"Automatic", "Automatic"}, automatic, false, nil, "", "asks for Manual from now on"},
		"the annotation beside a value":    {sub{"Automatic", ""}, automatic, false, nil, "Automatic", ""},
		"Automatic":                        {automatic, sub{"Automatic", "Automatic"}, false, nil, "Automatic", ""},
		"Automatic over the annotation":    {sub{"Manual", "Manual"}, sub{"Automatic", "Manual"}, false, nil, "Automatic", ""},
		"the annotation over Automatic":    {automatic, sub{"Automatic", "Manual"}, false, nil, "", ""},
		"applied, which musthave asks not": {automatic, automatic, true, versions("etcd.v1"), "", "does not ask it"},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(s sub) *olm.Subscription {
				o := subscriptionTo("etcd")
				o.Spec.InstallPlanApproval = s.approval
				o.Metadata.Annotations = olm.Annotations{Present: true, RequestedApproval: s.noted}
				return o
			}
			edit := func(s *spec) { s.ComplianceType, s.Versions = policyv1beta2.MayHave, []string{"etcd.v1"} }
			if c.edit != nil {
				edit = c.edit
			}
			in := SubscriptionInput{New: of(c.written), Old: of(c.old), Mode: MutateApproval, AppliesManual: c.applied,
				Namespace: state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
					Policies: []*operatorpolicy.Policy{policyFor("etcd", edit)}})}
			v := verdict.Verdict{Changes: JudgeSubscription(in).Changes}
			NoteRequest(&in, &v)
			have, noted := changed(in.New, v.Changes)
			if have != olm.ApprovalManual || noted != c.leaves {
				t.Errorf("it becomes %q, noted %q, want Manual and %q", have, noted, c.leaves)
			}
			if warned := strings.Join(v.WarningTexts(), "\n"); !strings.Contains(warned, c.warns) ||
				c.warns == "" && strings.Contains(warned, "from now on") {
				t.Errorf("warned is %q, want %q", warned, c.warns)
			}
		})
	}
}

// TestUnreadableMakesManual: a policy that does not decode cannot correct Subscriptions as it would, so that they are
// Manual as those of other packages are; and it is no reason for another policy not to act.
func TestUnreadableMakesManual(t *testing.T) {
	for name, known := range map[string]policyv1beta2.SubscriptionTemplate{
		"another field":                {Name: "etcd", Namespace: "shop"},
		"the package":                  {Namespace: "shop"},
		"the namespace":                {Name: "etcd"},
		"the package or the namespace": {},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &policyv1beta2.OperatorPolicySpec{Subscription: known}
			unreadable := operatorpolicy.Unreadable("policies", "p", spec, errors.New("decode"))
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Policies: []*operatorpolicy.Policy{unreadable},
				Facts: aroundKubernetes})
			s := subscriptionTo("etcd")
			s.Spec.InstallPlanApproval = olm.ApprovalAutomatic
			if changes := ApprovalChanges(s, ns); len(changes) != 2 || changes[0].Value != olm.ApprovalManual {
				t.Errorf("a stored Subscription gets %v", changes)
			}
			ns = ns.WithPolicy(policyFor("etcd", nil))
			if overlap := Overlapping(ns, "etcd"); (len(overlap) > 1) != (known.Name != "" && known.Namespace != "") {
				t.Errorf("%d policies overlap", len(overlap))
			}
		})
	}
}
