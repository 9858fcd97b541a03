package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// recorded returns the contents of a namespace with the record that the leader writes of them.
func recorded(t *testing.T, c state.NamespaceContents) state.NamespaceContents {
	t.Helper()
	c.Record = stored(t, state.NewNamespace("shop", c).NextRecord(false))
	return c
}

// stored returns a record as it is read back.
func stored(t *testing.T, r *state.InstallRecord) *state.InstallRecord {
	t.Helper()
	if r == nil {
		return nil
	}
	decoded, err := state.DecodeInstallRecord(state.RecordName("shop"), r.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if decoded.Encode() != r.Encode() {
		t.Fatalf("%s is read back as %s", r.Encode(), decoded.Encode())
	}
	return decoded
}

// storedEtcd returns etcd 0.9.2 as installed, in an object with a UID.
func storedEtcd(t *testing.T, spec, uid string) state.Installed {
	t.Helper()
	csv := written(t, spec)
	csv.Metadata.UID = uid
	installed, _ := installedBy(csv)
	return installed
}

// installedAs returns what is installed under another name and version.
func installedAs(c state.Installed, name, version string) state.Installed {
	c.Name, c.UID, c.Version = name, name, version
	return c
}

// TestP1PlantedPlan plants, before a policy governs the namespace, a completed plan with contents of the tenant's
// choice (threat O53).
func TestP1PlantedPlan(t *testing.T) {
	planted := installing(t, otherSpec,
		func(p *olm.InstallPlan) { p.Status.Phase, p.Status.Steps[0].Status = olm.PhaseComplete, "Created" })
	contents := state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))},
		Plans: []*olm.InstallPlan{planted}, CSVs: []state.Installed{storedEtcd(t, etcdSpec, "1")}}
	changed := contents
	changed.CSVs = []state.Installed{storedEtcd(t, otherSpec, "1")} // in an outage
	changed.Record = recorded(t, contents).Record
	for _, c := range []struct {
		name     string
		contents state.NamespaceContents
		old, new string
		want     verdict.Decision
	}{
		{name: "attack: the contents of the planted plan", contents: recorded(t, contents), old: etcdSpec,
			new:  otherSpec,
			want: verdict.Deny},
		{name: "attack: before the record is written", contents: contents, old: etcdSpec, new: otherSpec,
			want: verdict.Deny},
		{name: "control: the recorded contents are written back", contents: changed, old: otherSpec, new: etcdSpec,
			want: verdict.Allow},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := JudgeCSV(CSVInput{Old: written(t, c.old), New: written(t, c.new),
				Namespace: state.NewNamespace("shop", c.contents)})
			if v.Decision != c.want || c.want != verdict.Allow && !strings.Contains(v.Refusal(), "(csv/frozen)") {
				t.Errorf("%s: %s, want %s", v.Decision, v.Refusal(), c.want)
			}
		})
	}
	if !state.NewNamespace("shop", changed).Drifted("etcd.v0.9.2") {
		t.Error("a planted plan hides that contents are not those that are recorded")
	}
}

// TestNextRecord: what is recorded, and what ends it.
func TestNextRecord(t *testing.T) {
	policies := []*operatorpolicy.Policy{policyFor("etcd", nil)}
	forbidding := []*operatorpolicy.Policy{policyFor("etcd", func(s *spec) { s.ComplianceType = "mustnothave" })}
	constraints := under(ruleOf("any", `bundle.package != "vault"`, "", constraint.Require))
	old, next := storedEtcd(t, etcdSpec, "1"), storedEtcd(t, otherSpec, "2")
	before := state.NewNamespace("shop", state.NamespaceContents{UID: "a", Policies: policies, CSVs: []state.Installed{old}}).NextRecord(
		false)
	nothing := state.NewNamespace("shop", state.NamespaceContents{UID: "a", Policies: policies}).NextRecord(false)
	const first = "etcd.v0.9.2 1 adopted"
	for _, c := range []struct {
		name       string
		contents   state.NamespaceContents
		unresolved bool
		want       string
	}{
		{name: "nothing is installed", contents: state.NamespaceContents{Policies: policies}, want: " "},
		{name: "nothing governs", contents: state.NamespaceContents{CSVs: []state.Installed{old}}},
		{name: "installed before", contents: state.NamespaceContents{Policies: policies, CSVs: []state.Installed{old}},
			want: first},
		{name: "installed afterwards", contents: state.NamespaceContents{Record: nothing, Policies: policies,
			CSVs: []state.Installed{old}}, want: "etcd.v0.9.2 1"},
		{name: "deleted", contents: state.NamespaceContents{Record: before, Policies: policies}, want: first},
		{name: "installed again", contents: state.NamespaceContents{Record: before, Policies: policies,
			CSVs: []state.Installed{next}}, want: "etcd.v0.9.2 2"},
		{name: "while it is upgraded", contents: state.NamespaceContents{Record: before, Policies: policies,
			CSVs: []state.Installed{old, installedAs(next, "etcd.v0.9.4", "0.9.4")}},
			want: first + ", etcd.v0.9.4 etcd.v0.9.4"},
		{name: "upgraded", contents: state.NamespaceContents{Record: before, Policies: policies,
			CSVs: []state.Installed{installedAs(next, "etcd.v0.9.4", "0.9.4")}},
			want: "etcd.v0.9.4 etcd.v0.9.4"},
		{name: "its package is hidden", contents: state.NamespaceContents{Record: before, Policies: policies,
			CSVs: []state.Installed{{Bundle: olm.Bundle{Name: old.Name, Spec: old.Spec}, UID: old.UID}}},
			want: first},
		{name: "ended by removal", contents: state.NamespaceContents{Record: before, Policies: forbidding}, want: " "},
		{name: "not removed yet", contents: state.NamespaceContents{Record: before, Policies: forbidding,
			CSVs: []state.Installed{old}}, want: first},
		{name: "its Subscription is left", contents: state.NamespaceContents{Record: before, Policies: forbidding,
			Subscriptions: []*olm.Subscription{subscribed("etcd", "etcd.v0.9.2", "")}}, want: first},
		{name: "ended with the policy", contents: state.NamespaceContents{Record: before}},
		{name: "the policy may not be known", contents: state.NamespaceContents{Record: before}, unresolved: true,
			want: first},
		{name: "ended with the namespace", contents: state.NamespaceContents{UID: "b", Record: before, Policies: policies},
			want: " "},
		{name: "a Constraint governs", contents: state.NamespaceContents{Exists: true, Record: before,
			Constraints: constraints}, want: first},
		{name: "a Constraint governs all", contents: state.NamespaceContents{Exists: true, Constraints: constraints,
			CSVs: []state.Installed{old}}, want: first},
		{name: "only a policy freezes contents", contents: state.NamespaceContents{Exists: true, Record: before,
			Constraints: constraints,
			CSVs:        []state.Installed{storedEtcd(t, otherSpec, "1")}}, want: first},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := stored(t, state.NewNamespace("shop", c.contents).NextRecord(c.unresolved))
			var got []string
			for _, o := range r.All() {
				one := o.CSV + " " + o.UID
				if o.Adopted {
					one += " adopted"
				}
				if got = append(got, one); o.Package != "etcd" {
					t.Errorf("it is of package %s", o.Package)
				}
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%q is recorded, want %q", strings.Join(got, ", "), c.want)
			}
		})
	}
}

// TestRecordIsBounded: a flood of operators displaces none that is recorded.
func TestRecordIsBounded(t *testing.T) {
	constraints := under(ruleOf("any", `bundle.package != "vault"`, "", constraint.Require))
	contents := recorded(t, state.NamespaceContents{Exists: true, Constraints: constraints,
		CSVs: []state.Installed{storedEtcd(t, etcdSpec, "1")}})
	contents.CSVs = nil
	for i := range 2 * state.MaxRecorded {
		flood := installedAs(storedEtcd(t, etcdSpec, "1"), fmt.Sprintf("a.v%d", i), "1.0.0")
		flood.Package = fmt.Sprintf("a%03d", i)
		contents.CSVs = append(contents.CSVs, flood)
	}
	next := recorded(t, contents)
	if n := len(next.Record.Operators); n != state.MaxRecorded || state.NewNamespace("shop", next).Recorded("etcd.v0.9.2") == nil {
		t.Errorf("%d are recorded, etcd %v", n, state.NewNamespace("shop", next).Recorded("etcd.v0.9.2"))
	}
	if size := len(next.Record.Encode()); size > 100<<10 {
		t.Errorf("the record has %d bytes", size)
	}
}

// TestB5SharedRecord: 200 policies of another namespace, older than the administrator's, leave no operator of that one
// unrecorded, nor does a tenant's flood of ClusterServiceVersions (threat O77).
func TestB5SharedRecord(t *testing.T) {
	var policies []*operatorpolicy.Policy
	for i := range state.MaxRecorded {
		p := policyFor(fmt.Sprintf("a%03d", i), nil)
		p.Namespace, p.Name = "attacker", p.Package
		policies = append(policies, p)
	}
	never := policyFor("etcd", func(s *spec) { s.UpgradeApproval = "None" })
	flooded := recorded(t, state.NamespaceContents{Policies: policies})
	for _, c := range []struct {
		name     string
		contents state.NamespaceContents
		left     string
	}{
		{name: "control: alone", contents: state.NamespaceContents{}},
		{name: "attack: policies", contents: flooded, left: "attacker/a199"},
		{name: "attack: ClusterServiceVersions of the package", contents: state.NamespaceContents{}, left: "shop/etcd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.contents.Policies = append(slices.Clone(c.contents.Policies), never)
			c.contents.CSVs = []state.Installed{storedEtcd(t, etcdSpec, "1")}
			c.contents.Record = stored(t, state.NewNamespace("shop", c.contents).NextRecord(false))
			if c.left == "shop/etcd" {
				for i := range state.MaxRecorded {
					c.contents.CSVs = append(c.contents.CSVs, installedAs(storedEtcd(t, etcdSpec, "1"), fmt.Sprint("a.v", i), "0.0.1"))
				}
			}
			next := state.NewNamespace("shop", c.contents).NextRecord(false)
			if got := fmt.Sprint(next.Left); c.left != "" && !strings.Contains(got, c.left) || c.left == "" && len(next.Left) > 0 {
				t.Errorf("left is %s, want %q", got, c.left)
			}
			c.contents.Record, c.contents.CSVs = stored(t, next), nil
			c.contents.Plans = []*olm.InstallPlan{pendingPlan("etcd 0.9.4")}
			v := JudgePlan(PlanInput{Plan: c.contents.Plans[0], Namespace: state.NewNamespace("shop", c.contents)})
			if v.Decision != verdict.Hold || !strings.Contains(v.Refusal(), "(bundle/upgrade)") {
				t.Errorf("%s: %s, want it held as an upgrade", v.Decision, v.Refusal())
			}
		})
	}
}

// TestE2DeletedCSV deletes the installed ClusterServiceVersion, and approves the plan that was held as an upgrade of it
// (threat O54).
func TestE2DeletedCSV(t *testing.T) {
	review := holdPermissions
	never := policyFor("etcd", func(s *spec) { s.UpgradeApproval = "None" })
	consent := policyFor("etcd", reviewing(review))
	first := etcdChange(func(s *change.Set) {
		s.CSV, s.Version, s.From, s.FromVersion = "etcd.v0.9.4", "0.9.4", "",
			""
	})
	const names = "ConfigMap opgate-installed-shop of Opgate records what was installed here, until a mustnothave policy has removed it, "
	for _, c := range []struct {
		name   string
		policy *operatorpolicy.Policy
		edit   func(*state.NamespaceContents)
		plan   string
		want   verdict.Decision
		says   []string
	}{
		{name: "control: upgradeApproval None", policy: never, plan: "etcd 0.9.4", want: verdict.Hold,
			says: []string{"the upgrade of etcd.v0.9.2 to etcd.v0.9.4", "(bundle/upgrade)"},
			edit: func(c *state.NamespaceContents) { c.CSVs = []state.Installed{storedEtcd(t, etcdSpec, "1")} }},
		{name: "attack: upgradeApproval None, deleted", policy: never, plan: "etcd 0.9.4", want: verdict.Hold,
			says: []string{"the upgrade of etcd.v0.9.2 to etcd.v0.9.4", "(bundle/upgrade)", names}},
		{name: "attack: deleted, and a status that says that it is upgraded", policy: never, plan: "etcd 0.9.4",
			want: verdict.Hold, says: []string{"(bundle/upgrade)", names},
			edit: func(c *state.NamespaceContents) {
				c.Subscriptions = []*olm.Subscription{subscribed("etcd", "etcd.v0.9.4", "etcd.v0.9.4")}
			}},
		{name: "the same version is installed again", policy: never, plan: "etcd 0.9.2", want: verdict.Allow},
		{name: "the record has ended", policy: never, plan: "etcd 0.9.4", want: verdict.Allow,
			edit: func(c *state.NamespaceContents) { c.Record = nil }},
		{name: "attack: consent, deleted", policy: consent, plan: "etcd 0.9.4", want: verdict.Hold,
			says: []string{"(bundle/consent)", "in place of etcd.v0.9.2, which was deleted, it adds permissions",
				names}},
		{name: "control: consent, a first installation", policy: consent, plan: "etcd 0.9.4", want: verdict.Allow,
			edit: func(c *state.NamespaceContents) { c.Record = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			contents := recorded(t, state.NamespaceContents{Policies: []*operatorpolicy.Policy{c.policy},
				CSVs: []state.Installed{storedEtcd(t, etcdSpec, "1")}})
			contents.CSVs = nil
			contents.Plans = []*olm.InstallPlan{pendingPlan(c.plan)}
			if c.edit != nil {
				c.edit(&contents)
			}
			contents.Record = stored(t, state.NewNamespace("shop", contents).NextRecord(false)) // the leader has seen it
			if c.edit != nil {
				c.edit(&contents)
			}
			ns := carrier.Read(state.NewNamespace("shop", contents), nil, reading(nil, first))
			v := JudgePlan(PlanInput{Plan: contents.Plans[0], Namespace: ns})
			if v.Decision != c.want {
				t.Fatalf("%s: %s, want %s", v.Decision, v.Refusal(), c.want)
			}
			for _, says := range c.says {
				if !strings.Contains(v.Refusal(), says) {
					t.Errorf("%s does not say %q", v.Refusal(), says)
				}
			}
		})
	}
}

// TestC2ContentsAreThoseRecorded: what is installed is a baseline only while it is what the record has.
func TestC2ContentsAreThoseRecorded(t *testing.T) {
	contents := recorded(t, state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd",
		reviewing(holdPermissions))}, CSVs: []state.Installed{storedEtcd(t, etcdSpec, "1")}})
	contents.Plans = []*olm.InstallPlan{pendingPlan("etcd 0.9.4")}
	changes := reading(nil, &change.Set{CSV: "etcd.v0.9.4", Package: "etcd", Version: "0.9.4",
		From: "etcd.v0.9.2", FromVersion: "0.9.2"})
	for spec, want := range map[string]verdict.Decision{etcdSpec: verdict.Allow, otherSpec: verdict.Hold} {
		contents.CSVs = []state.Installed{storedEtcd(t, spec, "1")}
		ns := carrier.Read(state.NewNamespace("shop", contents), nil, changes)
		v := JudgePlan(PlanInput{Plan: contents.Plans[0], Namespace: ns})
		if v.Decision != want || want != verdict.Allow &&
			!strings.Contains(v.Refusal(), "what is installed has not the contents that are recorded of etcd.v0.9.2") {
			t.Errorf("%s: %s, want %s", v.Decision, v.Refusal(), want)
		}
	}
}

// groupIn returns an OperatorGroup as it is stored.
func groupIn(t *testing.T, spec string) *olm.OperatorGroup {
	t.Helper()
	g, err := olm.Decode[olm.OperatorGroup]([]byte(`{"metadata":{"name":"shop","namespace":"shop"},"spec":` + spec + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// groupAttack deletes an OperatorGroup together with the evidence of it, and creates it again.
type groupAttack struct {
	name       string
	was, again string
	// unrecorded is set where the leader has not recorded anything, uninstalled where nothing is installed yet.
	unrecorded, uninstalled bool
	want                    verdict.Decision
	says                    string
}

func (a *groupAttack) run(t *testing.T) {
	contents := state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", nil)},
		CSVs:   []state.Installed{storedEtcd(t, etcdSpec, "1")},
		Groups: []*olm.OperatorGroup{groupIn(t, a.was)}}
	if a.uninstalled {
		contents.CSVs = nil
	}
	if !a.unrecorded {
		contents = recorded(t, contents)
	}
	contents.CSVs, contents.Groups = nil, nil
	contents.Record = stored(t, state.NewNamespace("shop", contents).NextRecord(false)) // the leader has seen it
	in := OperatorGroupInput{New: inReview[olm.OperatorGroup](t, a.again), Namespace: state.NewNamespace("shop", contents),
		User: "tenant"}
	v := JudgeOperatorGroup(in)
	if v.Decision != a.want || !strings.Contains(v.Refusal(), a.says) {
		t.Errorf("%s: %s, want %s with %q", v.Decision, v.Refusal(), a.want, a.says)
	}
	if a.want == verdict.Deny && !strings.Contains(v.Refusal(), "ConfigMap opgate-installed-shop of Opgate records") {
		t.Errorf("%s does not name the record", v.Refusal())
	}
}

// TestP2GroupWithoutAccount deletes the plans that name the account before the OperatorGroup (threat O55).
func TestP2GroupWithoutAccount(t *testing.T) {
	const was = `{"targetNamespaces":["shop"],"serviceAccountName":"installer"}`
	for _, a := range []groupAttack{
		{name: "attack: without the account", was: was, again: `{"targetNamespaces":["shop"]}`, want: verdict.Deny,
			says: "allowed is installer, as which OLM installs here"},
		{name: "attack: with another account", was: was,
			again: `{"targetNamespaces":["shop"],"serviceAccountName":"strong"}`, want: verdict.Deny,
			says: "(operatorgroup/service-account)"},
		{name: "control: as it was", was: was, again: was},
		{name: "control: it had none", was: `{"targetNamespaces":["shop"]}`, again: was},
		{name: "attack: nothing is installed yet", was: was, again: `{"targetNamespaces":["shop"]}`, uninstalled: true,
			want: verdict.Deny, says: "allowed is installer, as which OLM installs here"},
		{name: "control: nothing is installed yet, as it was", was: was, again: was, uninstalled: true},
		{name: "control: nothing is installed yet, it had none", was: `{"targetNamespaces":["shop"]}`, again: was,
			uninstalled: true},
		{name: "before the record is written", was: was, again: `{"targetNamespaces":["shop"]}`, unrecorded: true},
	} {
		t.Run(a.name, a.run)
	}
}

// TestE5GroupForAll deletes the ClusterServiceVersion before the OperatorGroup (threat O55).
func TestE5GroupForAll(t *testing.T) {
	const was, selecting = `{"targetNamespaces":["shop"]}`, `{"selector":{"matchLabels":{"team":"a"}}}`
	for _, a := range []groupAttack{
		{name: "attack: for all namespaces", was: was, again: `{}`, want: verdict.Deny,
			says: "an OperatorGroup for all namespaces is not allowed"},
		{name: "attack: for another namespace", was: was, again: `{"targetNamespaces":["shop","bank"]}`,
			want: verdict.Deny,
			says: "target namespace bank is not allowed"},
		{name: "attack: by other labels", was: selecting, again: `{"selector":{"matchLabels":{"team":"b"}}}`,
			want: verdict.Deny, says: "allowed are the target namespaces of the one that was deleted"},
		{name: "control: as it was", was: selecting, again: selecting},
		{name: "control: it was for all", was: `{}`, again: `{}`},
		{name: "attack: one that is too large to be kept", was: `{"targetNamespaces":["shop"` +
			strings.Repeat(`,"bank"`, 2000) + `]}`, again: `{}`, want: verdict.Deny,
			says: "an OperatorGroup for all namespaces is not allowed"},
	} {
		t.Run(a.name, a.run)
	}
}

// TestK1SelfMadeProperty: a ClusterServiceVersion that bypasses OLM certifies itself (threat O56).
func TestK1SelfMadeProperty(t *testing.T) {
	const mark = `{"type":"certified","value":true}`
	withProperties := func(more ...string) *olm.CSV {
		csv := written(t, etcdSpec)
		all := append([]string{`{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}}`}, more...)
		csv.Metadata.Annotations.Properties = `{"properties":[` + strings.Join(all, ",") + `]}`
		return csv
	}
	forbidding := ruleOf("beta", `!properties.exists(p, p.type == "beta")`, "", constraint.Require)
	warning := ruleOf("warned", `properties.exists(p, p.type == "certified")`, "", constraint.Warn)
	listed := ruleOf("listed", `properties.exists(p, p.type == "olm.package")`, "", constraint.Require)
	for _, c := range []struct {
		name       string
		constraint *constraint.Definition
		old, new   *olm.CSV
		byOLM      bool
		want       verdict.Decision
		says       string
	}{
		{name: "control: without the property", constraint: certified, new: withProperties(), want: verdict.Deny,
			says: "only certified operators"},
		{name: "attack: with it", constraint: certified, new: withProperties(mark), want: verdict.Hold,
			says: selfCertified},
		{name: "attack: it is added later", constraint: certified, old: withProperties(), new: withProperties(mark),
			want: verdict.Hold, says: "(bundle/constraint)"},
		{name: "OLM writes it", constraint: certified, new: withProperties(mark), byOLM: true, want: verdict.Allow},
		{name: "a write that leaves properties as they are", constraint: certified, old: withProperties(mark),
			new: withProperties(mark), want: verdict.Allow},
		{name: "what is forbidden counts", constraint: forbidding, new: withProperties(`{"type":"beta","value":1}`),
			want: verdict.Deny, says: "(bundle/constraint)"},
		{name: "what is not stated is not forbidden", constraint: forbidding, new: withProperties(mark),
			want: verdict.Allow},
		{name: "what it is counts", constraint: listed, new: withProperties(mark), want: verdict.Allow},
		{name: "a Constraint that warns", constraint: warning, new: withProperties(mark), want: verdict.Allow},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.old != nil {
				c.new.Spec = written(t, otherSpec).Spec // else nothing changes
			}
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
				Constraints: under(c.constraint)})
			v := JudgeCSV(CSVInput{Old: c.old, New: c.new, Namespace: ns, ByOLM: c.byOLM, User: "tenant"})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s: %s, want %s with %q", v.Decision, v.Refusal(), c.want, c.says)
			}
		})
	}
}

// installedBy returns what a stored ClusterServiceVersion installs, and whether it does in its namespace.
func installedBy(c *olm.CSV) (state.Installed, bool) {
	c.Spec.KeepDigest()
	return state.Installed{Bundle: c.StatedBundle(), UID: c.Metadata.UID}, state.InstallsOperator(c)
}
