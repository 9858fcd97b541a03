package backstop_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// core are the rules that the compiled gate holds where each ClusterServiceVersion has properties.
var core = []verdict.RuleID{bundle.RuleVersion, bundle.RuleVersionRange, bundle.RuleMustNotHave,
	bundle.RulePolicyUnreadable,
	bundle.RuleDependencyPending, rules.RulePlanPhase, rules.RulePlanCreate, rules.RulePlanOverrideReason,
	rules.RulePlanFrozen,
	rules.RulePlanStatusPhase, rules.RuleSubscriptionApproval}

// TestSubset checks on generated policies and writes that the API server refuses nothing that the gate admits, that it
// refuses what the gate refuses by a core rule, that its match condition skips nothing that a rule refuses, and that no
// expression fails.
func TestSubset(t *testing.T) {
	const writes = 100
	worlds := cases.Of(3_000) / writes
	var refused, covered atomic.Int64
	for seed := range worlds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &world{Rand: rand.New(rand.NewPCG(17, uint64(seed)))}
			w.addPolicies()
			o := compile(backstop.Input{Features: everything, Policies: w.policies, Now: now})
			s := newAPIServer(t, o)
			o.Validating.Spec.MatchConditions = nil
			unconditional := newAPIServer(t, o)
			for range writes {
				c := w.write(t)
				got := s.judge(t, c.write)
				if all := unconditional.judge(t, c.write); !slices.Equal(all.refused, got.refused) {
					t.Fatalf("%s\nthe API server refuses %q, and %q without the match condition", c.describe(w),
						got.refused, all.refused)
				}
				if len(got.failed) > 0 {
					t.Fatalf("%s\nan expression fails: %v", c.describe(w), got.failed)
				}
				if len(got.refused) > 0 {
					refused.Add(1)
					if c.gate.Decision == verdict.Allow {
						t.Fatalf("%s\nthe gate admits what the API server refuses: %q", c.describe(w), got.refused)
					}
				} else if reason := c.core(); reason != "" {
					t.Fatalf("%s\nthe API server admits what the gate refuses: %s", c.describe(w), reason)
				}
				if c.core() != "" {
					covered.Add(1)
				}
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d of %d writes refused, %d by a core rule", refused.Load(), worlds*writes, covered.Load())
		if min(refused.Load(), covered.Load()) < int64(worlds*writes/10) {
			t.Error("hardly any write was refused, so nothing was tested")
		}
	})
}

// judgedWrite is a write with the gate's verdict.
type judgedWrite struct {
	write
	gate verdict.Verdict
	// undescribed is set if a ClusterServiceVersion has no properties, so that the gate looks elsewhere.
	undescribed bool
	// hidden is set if the properties of a ClusterServiceVersion do not name the package in a form that is read.
	hidden bool
}

// core returns a reason of the gate that the API server must have too, or "".
func (c *judgedWrite) core() string {
	for _, r := range c.gate.Reasons {
		// What depends on a catalog, on a digest, or on which of several sources says a package, is left to the gate.
		elsewhere := strings.Contains(r.Message, "catalog") && !strings.Contains(r.Message, " in range ") ||
			strings.Contains(r.Message, " from ") ||
			strings.Contains(r.Message, "the package of ") && !c.hidden ||
			strings.Contains(r.Message, "the digest of its bundle image")
		if slices.Contains(core, r.Rule) && !c.undescribed &&
			(!elsewhere || r.Rule == rules.RulePlanStatusPhase || r.Rule == rules.RulePlanCreate) {
			return r.Message
		}
	}
	return ""
}

func (c *judgedWrite) describe(w *world) string {
	text := fmt.Sprintf("user %s rights %v writes %s\nobject %s\nold %s\ngate %s %s", c.user, c.rights, c.resource,
		compact(c.object), compact(c.old),
		c.gate.Decision, c.gate.Refusal())
	for _, p := range w.policies {
		text += fmt.Sprintf("\npolicy %s for %s, enforced %t: %s", p.Name, p.Target(), p.Enforced, compact(p.Object))
	}
	return text
}

// write generates a write, and judges it as the gate does.
func (w *world) write(t testing.TB) *judgedWrite {
	c := &judgedWrite{}
	c.user = pick(w, "alice", "alice", "alice", olmUser, "system:serviceaccount:shop:installer", opgateUser)
	if c.user == olmUser && w.chance(90) {
		c.rights = []string{escalate}
	}
	namespace := w.namespace()
	switch w.IntN(10) {
	case 0:
		w.create(t, namespace, c)
	case 1, 2, 3, 4:
		w.update(t, namespace, c)
	case 5, 6:
		w.updateStatus(t, namespace, c)
	case 7, 8:
		w.writeCSV(t, namespace, c)
	default:
		w.writeSubscription(t, namespace, c)
	}
	return c
}

func (c *judgedWrite) byOLM() bool { return c.user == olmUser && slices.Contains(c.rights, escalate) }

func (w *world) create(t testing.TB, namespace string, c *judgedWrite) {
	plan, _ := w.plan(namespace)
	delete(plan, "status")
	w.annotate(plan)
	c.resource, c.object = "installplans", plan
	c.gate = rules.JudgePlanCreate(rules.PlanCreateInput{New: headOf(t, plan), Namespace: w.state(t, namespace, nil),
		ByOLM: c.byOLM()})
}

func (w *world) annotate(o object) {
	if w.chance(30) {
		o["metadata"].(object)["annotations"] = object{metakey.OverrideReason: pick(w, "incident 7", " ",
			"x\ny")}
	}
	// Without a clock, one that has ended counts here.
	if annotations, ok := o["metadata"].(object)["annotations"].(object); ok && w.chance(40) {
		annotations[metakey.OverrideExpires] = pick(w, "2026-01-01T00:00:00Z", "2126-01-01T00:00:00Z", "soon",
			"ended")
	}
}

func (w *world) update(t testing.TB, namespace string, c *judgedWrite) {
	old, described := w.plan(namespace)
	if w.chance(10) {
		w.annotate(old)
	}
	plan := clone(t, old)
	w.annotate(plan)
	s := plan["spec"].(object)
	s["approved"] = w.chance(85)
	if w.chance(5) {
		s["clusterServiceVersionNames"] = []any{"other.v1"}
	}
	if w.chance(5) {
		s["approval"] = pick(w, "Automatic", "Manual")
	}
	if w.chance(5) {
		s["generation"] = 2
	}
	stored, ns := planOf(t, old), w.state(t, namespace, nil)
	in := rules.PlanUpdateInput{New: headOf(t, plan), Old: stored, Namespace: ns, Now: now}
	c.resource, c.object, c.old, c.undescribed, c.gate = "installplans", plan, old, !described,
		rules.JudgePlanUpdate(in)
	if w.chance(50) {
		for _, p := range w.policies {
			if w.chance(70) {
				c.rights = append(c.rights, "override operatorpolicies "+p.Namespace+"/"+p.Name)
			}
		}
	}
	reason := in.OverrideAsked().Reason // also of one that has ended
	if reason != "" {                   // only the gate knows whether the approval is refused without it
		c.gate.Reasons = slices.DeleteFunc(c.gate.Reasons,
			func(r verdict.Reason) bool { return r.Rule == rules.RulePlanOverrideReason })
	}
	if reason == "" || c.gate.Decision == verdict.Allow {
		return
	}
	needs, ok := rules.OverrideNeeds(&c.gate, ns)
	for _, source := range needs {
		ok = ok && slices.Contains(c.rights, "override operatorpolicies "+source.Namespace+"/"+source.Name)
	}
	switch {
	case ok:
		c.gate = c.gate.Overridden(rules.RulePlanOverride, reason, "")
	case reason != "":
		c.undescribed = true // another reason of the gate, without a right, may be the only one that refuses
		w.keepFatal(c, ns)
	}
}

// keepFatal keeps a refused override in the core if the user lacks a right on a policy that refuses by a core rule.
func (w *world) keepFatal(c *judgedWrite, ns *state.Namespace) {
	for _, r := range c.gate.Reasons {
		one := verdict.Verdict{Reasons: []verdict.Reason{r}}
		needs, ok := rules.OverrideNeeds(&one, ns)
		for _, source := range needs {
			ok = ok && slices.Contains(c.rights, "override operatorpolicies "+source.Namespace+"/"+source.Name)
		}
		if !ok && slices.Contains(core, r.Rule) {
			c.gate.Reasons, c.undescribed = []verdict.Reason{r}, false
			return
		}
	}
}

func (w *world) updateStatus(t testing.TB, namespace string, c *judgedWrite) {
	old, described := w.plan(namespace)
	plan := clone(t, old)
	s := plan["status"].(object)
	if w.chance(60) {
		s["phase"] = pick(w, olm.PhaseInstalling, olm.PhaseInstalling, olm.PhaseInstalling, olm.PhaseComplete,
			olm.PhaseRequiresApproval)
	}
	if steps, ok := s["plan"].([]any); ok && w.chance(20) {
		step := steps[w.IntN(len(steps))].(object)
		switch w.IntN(4) {
		case 0:
			step["optional"] = pick(w, true, false)
		case 1:
			step["status"] = "Present"
		case 2:
			step["resource"].(object)["manifest"] = "{}"
		default:
			s["plan"] = steps[1:]
		}
	}
	if lookups, ok := s["bundleLookups"].([]any); ok && w.chance(20) {
		lookup := lookups[w.IntN(len(lookups))].(object)
		lookup[pick(w, "path", "conditions", "properties")] = pick[any](w, "", []any{})
		if _, isList := lookup["path"].([]any); isList {
			lookup["path"] = "other"
		}
		if _, isList := lookup["properties"].([]any); isList {
			lookup["properties"] = "{}"
		}
	}
	if w.chance(10) {
		s["conditions"] = []any{object{"type": "Installed", "status": pick(w, "True", "False"),
			"lastTransitionTime": "2026-11-22T00:00:00Z"}}
	}
	if w.chance(10) {
		s["attenuatedServiceAccountRef"] = object{"name": "installer", "namespace": namespace}
	}
	c.resource, c.object, c.old, c.undescribed = "installplans/status", plan, old, !described
	in := rules.PlanStatusInput{New: planOf(t, plan), Old: planOf(t, old), Namespace: w.state(t, namespace, nil),
		ByOLM: c.byOLM(), Now: now}
	c.gate = rules.JudgePlanStatusUpdate(in)
	from, to := &in.Old.Status, &in.New.Status
	if in.Old.Spec.Approved && from.Phase == olm.PhaseRequiresApproval && to.Phase == olm.PhaseInstalling {
		// The move is refused for the reasons for which the plan is; only those are core.
		c.gate.Reasons = slices.DeleteFunc(c.gate.Reasons,
			func(r verdict.Reason) bool { return r.Rule == rules.RulePlanStatusPhase })
	}
}

func (w *world) csvObject(namespace string) object {
	pkg, version := w.pkg(), w.version()
	o := object{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
		"metadata": object{"namespace": namespace, "name": w.csv(pkg, version)}, "spec": object{"version": "1.0.0"}}
	if w.chance(85) {
		properties := w.properties(pkg, version)
		if w.chance(25) {
			properties = hide[pick(w, slices.Sorted(maps.Keys(hide))...)](properties)
		}
		o["metadata"].(object)["annotations"] = object{metakey.Properties: properties}
	}
	if w.chance(10) {
		o["metadata"].(object)["labels"] = object{metakey.CopiedFrom: "elsewhere"}
	}
	return o
}

func (w *world) writeCSV(t testing.TB, namespace string, c *judgedWrite) {
	o := w.csvObject(namespace)
	c.resource, c.object = "clusterserviceversions", o
	in := rules.CSVInput{Now: now, User: c.user, ByOLM: c.byOLM(), ByOpgate: c.user == opgateUser}
	if w.chance(60) {
		old := w.csvObject(namespace)
		old["metadata"].(object)["name"] = o["metadata"].(object)["name"]
		if w.chance(30) {
			old["spec"] = object{"version": "0.0.1"}
		}
		c.old = old
		in.Old = csvOf(t, old)
	}
	in.New = csvOf(t, o)
	plan, _ := w.plan(namespace)
	if w.chance(50) {
		plan["spec"].(object)["approved"] = true
		plan["status"].(object)["phase"] = olm.PhaseInstalling
		plan["status"].(object)["attenuatedServiceAccountRef"] = object{"name": "installer", "namespace": namespace}
		w.annotate(plan)
	}
	in.Namespace = w.state(t, namespace, planOf(t, plan))
	c.gate = rules.JudgeCSV(in)
	// One that bypasses OLM is core: it is described by its own properties, or held.
	c.undescribed = in.Old != nil || c.user != "alice"
	c.hidden = !olm.NamesPackage(in.New.Metadata.Annotations.Properties)
}

func csvOf(t testing.TB, o object) *olm.CSV {
	t.Helper()
	csv, err := olm.Decode[olm.CSV]([]byte(compact(o)))
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

func (w *world) writeSubscription(t testing.TB, namespace string, c *judgedWrite) {
	generate := func() object {
		return object{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
			"metadata": object{"namespace": namespace, "name": "sub"},
			"spec": object{"name": w.pkg(), "source": "good", "sourceNamespace": "olm", "channel": "stable",
				"installPlanApproval": pick(w, "Automatic", "Manual", "manual")}}
	}
	o := generate()
	c.resource, c.object = "subscriptions", o
	in := rules.SubscriptionInput{New: subscriptionOf(t, o), Namespace: w.state(t, namespace, nil),
		ByOLM: c.byOLM(), Mode: rules.DenyApproval}
	if w.chance(40) {
		old := generate()
		c.old, in.Old = old, subscriptionOf(t, old)
	}
	c.gate = rules.JudgeSubscription(in)
	// What OLM generates is changed, not refused, and what does not depend on the policy alone is left to the gate.
	c.undescribed = c.byOLM() || c.user == opgateUser || !slices.ContainsFunc(w.policies,
		func(p *operatorpolicy.Policy) bool {
			_, manual := p.WantsManual()
			return p.Enforced && concerns(p, namespace) && manual
		}) || in.New.Spec.InstallPlanApproval == olm.ApprovalManual
}

func subscriptionOf(t testing.TB, o object) *olm.Subscription {
	t.Helper()
	s, err := olm.Decode[olm.Subscription]([]byte(compact(o)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
