package rules

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/internal/cputime"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	// hostileRules is how many empty rules fit into an object that the API server accepts.
	hostileRules = 390_000
	// mostTime bounds the CPU time of judging the largest objects on a slow machine. The timeout of the webhook is 5 s,
	// and it takes a tenth of this here.
	mostTime = 2 * time.Second
)

// repeated returns a JSON list of n equal elements.
func repeated(n int, element string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

var (
	noAdmins = ruleOf("no-admins",
		`!clusterPermissions.exists(r, "*" in r.apiGroups && "*" in r.resources && "*" in r.verbs)`,
		"no cluster admins", constraint.Require)
	noWebhooks = ruleOf("no-webhooks", `!webhooks.exists(w, "*" in w.apiGroups)`, "no webhooks on everything",
		constraint.Require)
	onlyEtcd = ruleOf("only-etcd", `csv.startsWith("etcd")`, "only etcd", constraint.Require)
)

// allocated returns how many bytes a function allocates, and how much CPU time it takes: other processes do not count.
func allocated(do func()) (bytes uint64, took time.Duration) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := cputime.Used()
	do()
	took = cputime.Used() - start
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, took
}

// TestA4WebhookRules: a ClusterServiceVersion of 1.2 MB that requests the rights of a cluster admin, and has so many
// webhook rules that judging them would exceed the timeout of a webhook with failurePolicy Ignore.
func TestA4WebhookRules(t *testing.T) {
	raw := []byte(`{"metadata":{"name":"etcd.v0.9.2","namespace":"shop"},"spec":{"install":{"spec":{
		"clusterPermissions":[{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}]}},"webhookdefinitions":[{"rules":` + repeated(hostileRules, "{}") + `}]}}`)
	for name, c := range map[string]struct {
		under []*constraint.Definition
		want  verdict.Decision
		says  string
	}{
		"what it asks for is refused": {[]*constraint.Definition{noAdmins}, verdict.Deny, "no cluster admins"},
		"what cannot be judged is held": {[]*constraint.Definition{noWebhooks}, verdict.Hold,
			"webhookdefinitions of the ClusterServiceVersion has 390002 values"},
		"both": {[]*constraint.Definition{noAdmins, noWebhooks}, verdict.Deny,
			"no cluster admins"},
		"a rule that reads nothing of it":   {[]*constraint.Definition{onlyEtcd}, verdict.Allow, ""},
		"a Constraint that asks for little": {nil, verdict.Allow, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(c.under...)})
			var v verdict.Verdict
			bytes, took := allocated(func() {
				csv, err := olm.Decode[olm.CSV](raw)
				if err != nil {
					t.Fatal(err)
				}
				v = JudgeCSV(CSVInput{New: csv, Namespace: ns, ByOLM: true})
			})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s, want %s with %q: %s", v.Decision, c.want, c.says, v.Refusal())
			}
			if bytes > 5*uint64(len(raw)) || took > mostTime {
				t.Errorf("it took %s and %d bytes, of an object of %d", took, bytes, len(raw))
			}
		})
	}
}

// TestA4LargestJudged: whatever is within the limits is judged in time, and whatever exceeds them is held in time.
func TestA4LargestJudged(t *testing.T) {
	rule := `{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get"]}`
	permissions := func(rules string) string {
		return `{"metadata":{"name":"etcd.v0.9.2","namespace":"shop"},"spec":{"install":{"spec":{"clusterPermissions":[{"rules":` + rules + `}]}}}}`
	}
	different := func(n int) string {
		rules := make([]string, n)
		for i := range rules {
			rules[i] = fmt.Sprintf(`{"apiGroups":["g%d"],"resources":["*"],"verbs":["get"]}`, i)
		}
		return "[" + strings.Join(rules, ",") + "]"
	}
	for name, c := range map[string]struct {
		object string
		want   verdict.Decision
	}{
		"rules of a large operator":  {permissions(different(700)), verdict.Allow},
		"as many as are read":        {permissions(different(4000)), verdict.Allow},
		"the same rule, repeated":    {permissions(repeated(3000, rule)), verdict.Allow},
		"more rules than are judged": {permissions(repeated(9000, rule)), verdict.Hold},
		"empty rules":                {permissions(repeated(hostileRules, "{}")), verdict.Hold},
		"one rule with a long list":  {permissions(`[{"apiGroups":` + repeated(200_000, `""`) + `}]`), verdict.Hold},
		"a long text": {permissions(`[{"apiGroups":["` + strings.Repeat("a", 1<<20) + `"]}]`),
			verdict.Hold},
		"lists of lists":        {permissions(repeated(100_000, "[[]]")), verdict.Hold},
		"empty groups of rules": {`{"metadata":{"name":"etcd.v0.9.2"},"spec":{"install":{"spec":{"clusterPermissions":` + repeated(hostileRules, "{}") + `}}}}`, verdict.Hold},
		"permissions, which count too": {`{"metadata":{"name":"etcd.v0.9.2"},"spec":{"install":{"spec":{"permissions":` +
			repeated(hostileRules, "{}") + `}}}}`, verdict.Hold},
	} {
		t.Run(name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(noAdmins)})
			var v verdict.Verdict
			bytes, took := allocated(func() {
				csv, err := olm.Decode[olm.CSV]([]byte(c.object))
				if err != nil {
					t.Fatal(err)
				}
				v = JudgeCSV(CSVInput{New: csv, Namespace: ns, ByOLM: true})
			})
			if v.Decision != c.want {
				t.Errorf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
			if most := uint64(5*len(c.object) + 24<<20); bytes > most || took > mostTime {
				t.Errorf("it took %s and %d bytes, of an object of %d", took, bytes, len(c.object))
			}
		})
	}
}

// TestA4Properties: bundle properties that cannot be read in time leave the package unknown, which holds.
func TestA4Properties(t *testing.T) {
	for name, properties := range map[string]string{
		"many":  `{"properties":` + repeated(75_000, `{"type":"x"}`) + `}`,
		"empty": `{"properties":` + repeated(hostileRules, `{}`) + `}`,
		"deep":  `{"properties":[{"type":"x","value":` + repeated(hostileRules, `{}`) + `}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			csv := &olm.CSV{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd.v0.9.2",
				Annotations: olm.Annotations{Properties: properties}}}
			ns := state.NewNamespace("shop",
				state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))}})
			var v verdict.Verdict
			bytes, took := allocated(func() { v = JudgeCSV(CSVInput{New: csv, Namespace: ns}) })
			if v.Decision != verdict.Hold || !strings.Contains(v.Refusal(), "at most") {
				t.Errorf("%s: %s", v.Decision, v.Refusal())
			}
			if bytes > 5*uint64(len(properties)) || took > mostTime {
				t.Errorf("it took %s and %d bytes, of a text of %d", took, bytes, len(properties))
			}
		})
	}
}

// TestA4Plans: a plan that is too large to be judged is held, whoever approves it, and the loop does not approve it.
func TestA4Plans(t *testing.T) {
	names := make([]string, 200_000)
	for i := range names {
		names[i] = fmt.Sprintf("a%d", i)
	}
	many := pendingPlan("etcd 0.9.2")
	many.Spec.CSVNames = names
	steps := pendingPlan("etcd 0.9.2")
	steps.Status.Steps = make([]olm.Step, 400_000)
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))},
			Facts: aroundKubernetes, Constraints: under(onlyEtcd)})
	for name, plan := range map[string]*olm.InstallPlan{"names": many, "steps": steps} {
		t.Run(name, func(t *testing.T) {
			var v verdict.Verdict
			bytes, took := allocated(func() { v = JudgePlan(PlanInput{Plan: plan, Namespace: ns}) })
			if v.Decision != verdict.Hold || !strings.Contains(v.Refusal(), "of this size cannot be judged") {
				t.Errorf("%s: %s", v.Decision, v.Refusal())
			}
			if a := JudgeApproval(ApprovalInput{Plan: plan, Namespace: ns}); a.Should() {
				t.Error("the loop would approve it")
			}
			if bytes > 1<<20 || took > mostTime {
				t.Errorf("it took %s and %d bytes", took, bytes)
			}
		})
	}
	if _, err := olm.DecodePlan([]byte(`{"status":{"plan":` + repeated(hostileRules, "{}") + `}}`)); err == nil {
		t.Error("a stored plan of 390,000 steps is read")
	}
}

// stepOf returns a step with an RBAC object.
func stepOf(t *testing.T, resolving, kind, name, manifest string) olm.Step {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"resolving": resolving,
		"resource": map[string]any{"kind": kind, "name": name, "manifest": manifest}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := olm.DecodePlan([]byte(`{"status":{"plan":[` + string(raw) + `]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return plan.Status.Steps[0]
}

// TestB1Permissions: namespaced permissions of a cluster admin apply cluster-wide if the OperatorGroup targets all
// namespaces, and so do RBAC objects of a bundle. Where it is not known whether it does, they hold.
func TestB1Permissions(t *testing.T) {
	const everything = `[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`
	group := func(object string) []*olm.OperatorGroup {
		g, err := olm.Decode[olm.OperatorGroup]([]byte(object))
		if err != nil {
			t.Fatal(err)
		}
		return []*olm.OperatorGroup{g}
	}
	own := group(`{"spec":{"targetNamespaces":["shop"]},"status":{"namespaces":["shop"]}}`)
	all := group(`{"spec":{},"status":{"namespaces":[""]}}`)
	namespaced := `{"install":{"spec":{"permissions":[{"rules":` + everything + `}]}}}`
	reads := `[{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}]`
	twice := `{"install":{"spec":{"clusterPermissions":` + reads + `,"permissions":` + reads + `}}}`
	reference := `{"kind":"ConfigMap","name":"a","namespace":"olm","catalogSourceName":"c","catalogSourceNamespace":"olm"}`
	for name, c := range map[string]struct {
		groups []*olm.OperatorGroup
		spec   string
		steps  []olm.Step
		want   verdict.Decision
	}{
		"permissions, own namespace":        {own, namespaced, nil, verdict.Allow},
		"permissions, all namespaces":       {all, namespaced, nil, verdict.Deny},
		"permissions, no group known":       {nil, namespaced, nil, verdict.Hold},
		"permissions, two groups":           {append(own, all...), namespaced, nil, verdict.Hold},
		"permissions, two groups of a kind": {append(own, own...), namespaced, nil, verdict.Hold},
		"two groups, and no permissions":    {append(own, all...), `{}`, nil, verdict.Allow},
		"no group, and permissions without rules": {nil,
			`{"install":{"spec":{"permissions":[{"serviceAccountName":"a","rules":[]}]}}}`, nil, verdict.Allow},
		"no group, and permissions that it has":    {nil, twice, nil, verdict.Allow},
		"no group, and permissions not to be read": {nil, `{"install":{"spec":{"permissions":{}}}}`, nil, verdict.Hold},
		"no group, and a Role": {nil, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "Role", "a", `{"rules":`+everything+`}`)}, verdict.Hold},
		"a new group for all namespaces": {group(`{"spec":{}}`), namespaced, nil, verdict.Deny},
		"a group that has just become global": {group(`{"spec":{},"status":{"namespaces":["shop"]}}`), namespaced, nil,
			verdict.Hold},
		"a group that is to be global no more": {group(
			`{"spec":{"targetNamespaces":["shop"]},"status":{"namespaces":[""]}}`), namespaced, nil, verdict.Hold},
		"a target that OLM rejects": {group(
			`{"spec":{"targetNamespaces":["shop",""]},"status":{"namespaces":["shop"]}}`), namespaced, nil,
			verdict.Hold},
		"a selector without an answer yet": {group(`{"spec":{"selector":{"matchLabels":{"a":"b"}}}}`), namespaced,
			nil, verdict.Allow},
		"a selector that matches nothing": {group(
			`{"spec":{"selector":{"matchLabels":{"a":"b"}}},"status":{"namespaces":[]}}`), namespaced, nil,
			verdict.Allow},
		"a selector with one": {group(
			`{"spec":{"selector":{"matchLabels":{"a":"b"}}},"status":{"namespaces":["shop","cart"]}}`), namespaced, nil,
			verdict.Allow},
		"an empty selector": {group(`{"spec":{"selector":{"matchLabels":{}}},"status":{"namespaces":[""]}}`),
			namespaced, nil, verdict.Deny},
		"more namespaces than are read": {group(`{"spec":{"targetNamespaces":` + repeated(70_000, `"a"`) + `}}`),
			namespaced, nil, verdict.Hold},
		"a ClusterRole": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a", `{"kind":"ClusterRole","rules":`+everything+`}`)},
			verdict.Deny},
		"a ClusterRole of no operator in the plan": {own, `{}`,
			[]olm.Step{stepOf(t, "other", "ClusterRole", "a", `{"kind":"ClusterRole","rules":`+everything+`}`)},
			verdict.Deny},
		"a ClusterRole without a kind": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a", `{"rules":`+everything+`}`)}, verdict.Deny},
		"a ClusterRole that aggregates": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a", `{"aggregationRule":{}}`)}, verdict.Deny},
		"a ClusterRole that reads": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a",
				`{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["get"]}]}`)}, verdict.Allow},
		"a ClusterRoleBinding to cluster-admin": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRoleBinding", "a",
				`{"roleRef":{"kind":"ClusterRole","name":"cluster-admin"}}`)}, verdict.Deny},
		"a ClusterRoleBinding to what comes along": {own, `{}`, []olm.Step{
			stepOf(t, "etcd.v0.9.2", "ClusterRole", "reads",
				`{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`),
			stepOf(t, "etcd.v0.9.2", "ClusterRoleBinding", "a", `{"roleRef":{"kind":"ClusterRole","name":"reads"}}`)},
			verdict.Allow},
		"a Role": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "Role", "a", `{"rules":`+everything+`}`)}, verdict.Allow},
		"a ClusterRole too large to read": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a", `{"rules":`+repeated(100_000, "{}")+`}`)},
			verdict.Hold},
		"a ClusterRole that is no JSON": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a", `rules: []`)}, verdict.Hold},
		"a ClusterRole that says it is another kind": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a", `{"kind":"ConfigMap","rules":[]}`)}, verdict.Hold},
		"a ClusterRole of an image": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterRole", "a", reference)}, verdict.Hold},
		"another kind with rules": {own, `{}`,
			[]olm.Step{stepOf(t, "etcd.v0.9.2", "Service", "a", `{"rules":`+everything+`}`)}, verdict.Allow},
	} {
		t.Run(name, func(t *testing.T) {
			var csv olm.CSV
			if err := json.Unmarshal([]byte(`{"spec":`+c.spec+`}`), &csv); err != nil {
				t.Fatal(err)
			}
			plan := withStep(pendingPlan("etcd 0.9.2"), "etcd.v0.9.2", olm.Manifest{Spec: &csv.Spec})
			plan.Status.Steps = append(plan.Status.Steps, c.steps...)
			contents := state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(noAdmins), Groups: c.groups}
			for _, stored := range []bool{false, true} {
				if stored { // as the snapshot has it
					plan.Trim()
				}
				if v := JudgePlan(PlanInput{Plan: plan,
					Namespace: state.NewNamespace("shop", contents)}); v.Decision != c.want {
					t.Errorf("trimmed %v: %s, want %s: %s", stored, v.Decision, c.want, v.Refusal())
				}
			}
			plan.Spec.Approval, plan.Spec.Approved, plan.Status.Phase = olm.ApprovalManual, true, olm.PhaseInstalling
			contents.Plans = []*olm.InstallPlan{plan}
			written := &olm.CSV{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd.v0.9.2"}, Spec: csv.Spec}
			if v := JudgeCSV(CSVInput{New: written, ByOLM: true,
				Namespace: state.NewNamespace("shop", contents)}); v.Decision != c.want {
				t.Errorf("as a step: %s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
		})
	}
}

// TestB1Variables: permissions are a separate variable.
func TestB1Variables(t *testing.T) {
	secrets := ruleOf("no-secrets", `!permissions.exists(r, "secrets" in r.resources)`, "no secrets",
		constraint.Require)
	csv, err := olm.Decode[olm.CSV](
		[]byte(`{"metadata":{"name":"etcd.v0.9.2"},"spec":{"install":{"spec":{"permissions":[{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if v := JudgeCSV(CSVInput{New: csv, Namespace: state.NewNamespace("shop", state.NamespaceContents{Facts: aroundKubernetes,
		Constraints: under(secrets)})}); v.Decision != verdict.Deny {
		t.Errorf("%s: %s", v.Decision, v.Refusal())
	}
}
