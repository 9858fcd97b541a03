package compliance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// evil are texts that a user with write access to OLM's objects could write.
var evil = []string{"", "-", "\x00", "\xff\xfe", "etcd\u202egnp", "\u0435tcd", "a\nCompliant; all is well",
	strings.Repeat("é", 40000), "{{ .x }}", "etcd", "etcd.v1.2.0", "shop"}

// Whatever the objects contain, the API server accepts the status, and messages stay readable.
func TestEvaluateHostileText(t *testing.T) {
	for _, text := range evil {
		in := input(enforced, running, lost, func(in *fixture) {
			for i := range in.Subscriptions {
				in.Subscriptions[i].Status.Conditions = []olm.SubscriptionCondition{{Type: TypeResolutionFailed,
					Status: "True", Reason: text, Message: text}}
				in.Subscriptions[i].Status.InstallPlan.Name, in.Subscriptions[i].Spec.Channel = text, text
			}
			for i := range in.CSVs {
				in.CSVs[i].Status.Phase, in.CSVs[i].Status.Reason, in.CSVs[i].Status.Message = text, text, text
				in.CSVs[i].Status.Deployments = []string{text, text}
			}
			plans(plan(text, text, text, text))(in)
			in.OperatorGroups = in.OperatorGroups[:1]
			in.OperatorGroups[0].Metadata.Name = text
			catalogState(text)(in)
			manifest(func(p *catalog.Package) { p.Deprecation = text })(in)
		})
		checkOutcome(t, in, fmt.Sprintf("text %.20q", text))
	}
}

// checkOutcome checks the invariants of every outcome.
func checkOutcome(t *testing.T, in *Input, name string) {
	t.Helper()
	before, err := json.Marshal([]any{in.Policy, in.Namespace.Groups(), in.Namespace.Subscriptions(), in.csvs()})
	if err != nil {
		t.Fatal(err)
	}
	out := Evaluate(in)
	valid := false
	for _, f := range out.Conditions {
		if !validReason.MatchString(f.Reason) {
			t.Errorf("%s: %s has reason %q", name, f.Type, f.Reason)
		}
		if len(f.Message) > 16<<10 || !utf8.ValidString(f.Message) || f.Message == "" || f.Status == "" {
			t.Errorf("%s: %s has a message of %d bytes: %.60q", name, f.Type, len(f.Message), f.Message)
		}
		if f.Type == TypeValidPolicySpec {
			valid = f.Status == metav1.ConditionTrue || strings.HasPrefix(f.Message, "the operator namespace")
		}
	}
	if len(out.Actions) > 0 && (!valid || !in.Policy.Spec.IsEnforced()) {
		t.Errorf("%s: a policy that is not valid, or informs, acts: %d", name, len(out.Actions))
	}
	for _, a := range out.Actions {
		if a.Failed != nil && a.Failed("x").Type != a.Done.Type {
			t.Errorf("%s: %s fails as %s", name, a.Done.Type, a.Failed("x").Type)
		}
	}
	again := Evaluate(in)
	if diff := cmp.Diff(out.Conditions, again.Conditions); diff != "" {
		t.Errorf("%s: two evaluations differ:\n%s", name, diff)
	}
	after, err := json.Marshal([]any{in.Policy, in.Namespace.Groups(), in.Namespace.Subscriptions(), in.csvs()})
	if err != nil || string(after) != string(before) {
		t.Errorf("%s: the input was changed", name)
	}
}

// Thousands of plans, groups and Subscriptions result in a message of readable length.
func TestEvaluateManyObjects(t *testing.T) {
	many := func(in *fixture) {
		running(in)
		var all []*olm.InstallPlan
		for i := range 2000 {
			name := fmt.Sprintf("n%04d", i)
			all = append(all, newer(plan("install-"+name, olm.PhaseRequiresApproval, "etcd.v1.3.0", name), int64(i)))
			group("g"+name, nil)(in)
			in.CSVs[0].Status.Deployments = append(in.CSVs[0].Status.Deployments, name)
			in.Overlaps = append(in.Overlaps, name)
			in.Approvals["install-n1999"] = Approval{Reasons: append(in.Approvals["install-n1999"].Reasons,
				verdict.Reason{Message: name + " is not allowed"})}
		}
		in.Subscriptions[0].Status.CurrentCSV, in.Subscriptions[0].Status.InstallPlan.Name = "etcd.v1.3.0", ""
		plans(all...)(in)
	}
	for name, changes := range map[string][]given{"informing": {many},
		"enforced": {enforced, many, func(in *fixture) { in.Overlaps = nil }}, "overlapping": {enforced, many}} {
		in := input(changes...)
		checkOutcome(t, in, name)
		for _, f := range Evaluate(in).Conditions {
			if len(f.Message) > 2000 {
				t.Errorf("%s: the message of %s has %d bytes", name, f.Type, len(f.Message))
			}
		}
	}
}

// A policy without defaults, in a namespace of which nothing is known.
func TestEvaluateNothing(t *testing.T) {
	op := &policyv1beta2.OperatorPolicy{}
	in := input()
	checkOutcome(t, &Input{Policy: op, Rules: rules.NewOperatorPolicy(op), CatalogSource: in.CatalogSource,
		Package: in.Package}, "nothing")
	in = input(enforced)
	in.Namespace, in.Deployments, in.Approvals = nil, nil, nil
	checkOutcome(t, in, "nothing known")
}

// FuzzEvaluate combines fragments of state and checks the invariants.
func FuzzEvaluate(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, "etcd", "stable-1.2")
	}
	f.Fuzz(func(t *testing.T, seed uint64, text, other string) {
		checkOutcome(t, randomInput(rand.New(rand.NewPCG(seed, 7)), append([]string{text, other}, evil...)),
			fmt.Sprint(seed))
	})
}

func randomInput(r *rand.Rand, texts []string) *Input {
	pick := func() string { return texts[r.IntN(len(texts))] }
	maybe := func(change given) given {
		if r.IntN(3) == 0 {
			return func(*fixture) {}
		}
		return change
	}
	pieces := []given{
		maybe(enforced),
		maybe(running),
		func(in *fixture) {
			in.NamespaceExists = r.IntN(4) > 0
			sub := &in.Policy.Spec.Subscription
			for _, field := range []*string{&sub.Name, &sub.Namespace, &sub.Channel, &sub.Source, &sub.SourceNamespace,
				&sub.StartingCSV} {
				if r.IntN(8) == 0 {
					*field = pick()
				}
			}
			if r.IntN(4) == 0 {
				policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
					g.Namespace = pick()
					if name, err := json.Marshal([]string{pick()}); err == nil {
						g.TargetNamespaces = raw(string(name))
					}
				})(in)
			}
			if r.IntN(8) == 0 {
				in.Problems = []string{"problem"}
			}
			if r.IntN(8) == 0 {
				in.Overlaps = []string{"a.b", "c.d"}
			}
		},
		maybe(group(pick(), map[string]any{"targetNamespaces": []any{pick(), ""}})),
		maybe(subscription(pick(), func(s *olm.Subscription) {
			s.Spec.Package, s.Spec.Channel, s.Status.CurrentCSV, s.Status.InstalledCSV,
				s.Status.InstallPlan.Name = "etcd", pick(), pick(), pick(), pick()
			s.Spec.Source = pick()
			failing(pick(), lostMessage+pick())(s)
			if r.IntN(2) == 0 {
				s.Metadata.Annotations, s.Metadata.Labels, s.Spec.Config.Fault = olm.Annotations{}, olm.Labels{}, pick()
			}
		})),
		maybe(csv(pick(), func(c *Installed) {
			c.Status.Phase, c.Status.Reason, c.Package, c.Version = pick(), pick(), "etcd", pick()
		})),
		maybe(copiedFrom(pick(), func(c *Installed) { c.Status.Phase = pick() })),
		maybe(due(-1)),
		maybe(plans(plan(pick(), pick(), pick(), pick()), newer(plan("p", olm.PhaseRequiresApproval, pick()), 0))),
		maybe(manifest(func(p *catalog.Package) {
			p.DefaultChannel, p.Channels[0].Name, p.Catalog.Name = pick(), pick(), pick()
		})),
		maybe(mine),
	}
	return input(pieces...)
}
