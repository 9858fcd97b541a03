package rules

import (
	"os"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// operatorCase is an operator in a plan, and who approves the plan as far as it is concerned: Opgate, a user, or no one, as
// the plan is refused.
type operatorCase struct {
	name, compliance, planApproval, asked string
	held                                  bool
	approver                              string
}

// approvalTable reads the table of docs/operatorpolicy.md.
func approvalTable(t *testing.T) (cases []operatorCase) {
	t.Helper()
	page, err := os.ReadFile("../docs/operatorpolicy.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| Policy for the operator | `planApproval` | The Subscription asks for `Automatic` | for `Manual` | " +
		"An upgrade, with `upgradeApproval: None` |\n|---|---|---|---|---|\n"
	_, table, _ := strings.Cut(string(page), head)
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			t.Fatalf("%q has %d cells, want 5", line, len(cells))
		}
		for _, planApproval := range strings.Split(cells[1], ", ") {
			c := operatorCase{compliance: strings.Trim(cells[0], "`"), planApproval: strings.Trim(planApproval, "`")}
			for _, column := range []struct {
				asked, approver string
				held            bool
			}{
				{asked: olm.ApprovalAutomatic, approver: cells[2]}, {asked: "annotation", approver: cells[2]},
				{asked: olm.ApprovalManual, approver: cells[3]},
				{asked: olm.ApprovalAutomatic, approver: cells[4], held: true},
				{asked: olm.ApprovalManual, approver: cells[4], held: true},
			} {
				if column.approver == "-" {
					continue
				}
				c.asked, c.approver, c.held = column.asked, column.approver, column.held
				c.name = strings.Join([]string{c.compliance, c.planApproval, c.asked}, " ")
				if c.held {
					c.name += " None"
				}
				cases = append(cases, c)
			}
		}
	}
	return cases
}

// put adds the operator to the contents of a namespace: its Subscription, its policy, and what an upgrade replaces.
func (c *operatorCase) put(pkg string, in *state.NamespaceContents) {
	s := follows(pkg, c.asked)
	if c.asked == "annotation" {
		s.Spec.InstallPlanApproval, s.Metadata.Annotations.RequestedApproval = olm.ApprovalManual, olm.ApprovalAutomatic
	}
	in.Subscriptions = append(in.Subscriptions, s)
	if c.held {
		in.CSVs = append(in.CSVs, state.Installed{Bundle: olm.Bundle{Name: pkg + ".v0.0.1", Package: pkg, Version: "0.0.1"}})
	}
	if c.compliance == "none" {
		return
	}
	in.Policies = append(in.Policies, policyFor(pkg, func(s *spec) {
		s.ComplianceType, s.Versions = policyv1beta2.ComplianceType(c.compliance), []string{pkg + ".v1.0.0"}
		if c.compliance == "mustnothave" {
			s.Versions = []string{pkg + ".v9.9.9"}
		}
		if c.planApproval != "unset" {
			s.PlanApproval = policyv1beta2.PlanApproval(c.planApproval)
		}
		if c.held {
			s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone
		}
	}))
}

// TestWhoApproves goes through the table of docs/operatorpolicy.md: complianceType, planApproval, upgradeApproval and what
// the Subscription asks for, alone and with each other operator in the plan. A plan is approved if it would be for each.
func TestWhoApproves(t *testing.T) {
	cases := approvalTable(t)
	if len(cases) < 20 {
		t.Fatalf("the table has %d cases only", len(cases))
	}
	judge := func(in state.NamespaceContents, csvs ...string) Approval {
		plan := pendingPlan(csvs...)
		in.Plans = []*olm.InstallPlan{plan}
		// Another enforced policy makes OLM wait also where these have none.
		in.Policies = append(in.Policies, policyFor("unrelated", versions("unrelated.v1")))
		a := JudgeApproval(ApprovalInput{Plan: plan, Namespace: state.NewNamespace("shop", in), Ungoverned: ApproveUngoverned})
		if !a.IsCandidate {
			t.Fatalf("%v does not wait", csvs)
		}
		return a
	}
	for _, c := range cases {
		var alone state.NamespaceContents
		c.put("etcd", &alone)
		a := judge(alone, "etcd 1.0.0")
		got := "refused"
		switch {
		case a.Should():
			got = "Opgate"
		case len(a.Verdict.Reasons) == 0:
			got = "a user"
		}
		if got != c.approver {
			t.Errorf("%s: the approver is %s, want %s: %v", c.name, got, c.approver, a.Why())
		}
		for _, other := range cases {
			var both state.NamespaceContents
			c.put("etcd", &both)
			other.put("vault", &both)
			want := c.approver == "Opgate" && other.approver == "Opgate"
			if a := judge(both, "etcd 1.0.0", "vault 1.0.0"); a.Should() != want {
				t.Errorf("%s, beside %s: approved is %t, want %t: %v", c.name, other.name, a.Should(), want, a.Why())
			}
		}
	}
}

// TestPlanApprovalChangesNoSubscription: installPlanApproval, and what is noted of it, are the same with every value.
func TestPlanApprovalChangesNoSubscription(t *testing.T) {
	for _, compliance := range []policyv1beta2.ComplianceType{policyv1beta2.MayHave, policyv1beta2.MustHave} {
		for _, have := range []string{olm.ApprovalAutomatic, olm.ApprovalManual, ""} {
			changes := map[policyv1beta2.PlanApproval]int{}
			for _, field := range []policyv1beta2.PlanApproval{"", "IfRequested", "IfAllowed"} {
				ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
					Policies: []*operatorpolicy.Policy{policyFor("etcd", func(s *spec) {
						s.ComplianceType, s.Versions, s.PlanApproval = compliance, []string{"etcd.v1"}, field
					})}})
				s := subscriptionTo("etcd")
				s.Spec.InstallPlanApproval = have
				v := JudgeSubscription(SubscriptionInput{New: s, Namespace: ns, Mode: MutateApproval})
				changes[field] = len(v.Changes)
			}
			if changes["IfAllowed"] != changes[""] || changes["IfRequested"] != changes[""] {
				t.Errorf("%s, installPlanApproval %q: changes are %v", compliance, have, changes)
			}
		}
	}
}
