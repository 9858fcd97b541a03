package dependency

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const configurationPolicy = "apiVersion: policy.open-cluster-management.io/v1\nkind: ConfigurationPolicy\n"

// made is the object of template x of Policy shop/app.
func made(t testing.TB, more string) map[string]any {
	return object(t, configurationPolicy+
		"metadata: {name: x, namespace: shop, generation: 1, labels: {policy.open-cluster-management.io/policy: app}}\n"+more)
}

func TestDecide(t *testing.T) {
	p := &Policy{Namespace: "shop", Name: "app", UID: "uid-app"}
	plain := Template{Name: "x", Ref: Ref{PolicyGroup, "ConfigurationPolicy", "shop", "x"}, Readable: true}
	suspendable := Template{Name: "g", Ref: Ref{PolicyGroup, KindOperatorPolicy, "shop", "g"}, Readable: true,
		Suspendable: true}
	ignoring := plain
	ignoring.IgnorePending = true
	faulty := plain
	faulty.Fault = "objectDefinition has no kind"
	hub := plain
	hub.HubError = "no such value"
	db := dep("Policy", "db", Compliant)
	met := []Result{Evaluate(db, Observed{State: Compliant})}
	unmet := []Result{Evaluate(db, Observed{State: NonCompliant})}
	stale := []Result{Evaluate(db, Observed{State: NonCompliant, Generation: 2, HasObserved: true,
		ObservedGeneration: 1})}
	unread := []Result{Evaluate(db, Observed{Reason: NotRead})}
	unreadable := []Result{Evaluate(db, Observed{Reason: NotRead, Detail: "its webhook is down"})}

	live := func(more string) *Live { return LiveOf(made(t, more), p) }
	compliant := live("status: {compliant: Compliant}")
	change := func(l *Live, change func(l *Live)) *Live {
		c := *l
		change(&c)
		return &c
	}
	suspended := change(compliant, func(l *Live) { l.Suspended = true })
	deleting := change(compliant, func(l *Live) { l.Deleting = true })
	foreign := change(compliant, func(l *Live) { l.Ours = false })
	pendingPolicy := live("status: {compliant: Pending}")

	const wrong = "(Policy shop/db: WrongState, it is NonCompliant, want Compliant)"
	const pendingText = "Pending; Dependencies were not satisfied: 1 is still pending " + wrong
	const old = "Pending; Dependencies were not satisfied: 1 is still pending (Policy shop/db: Stale, generation 2 is not evaluated yet)"
	for _, c := range []struct {
		name string
		in   TemplateInput
		want string
	}{
		{name: "not there, met", in: TemplateInput{Template: plain, Results: met}, want: "Apply  evaluating"},
		{name: "no dependencies", in: TemplateInput{Template: plain}, want: "Apply  evaluating"},
		{name: "there, met", in: TemplateInput{Template: plain, Results: met, Live: compliant},
			want: "Apply Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "there, not evaluated", in: TemplateInput{Template: plain, Live: live("")}, want: "Apply  evaluating"},
		{name: "there, stale", in: TemplateInput{Template: plain,
			Live: live("status: {compliant: Compliant, observedGeneration: 0}")}, want: "Apply  evaluating"},
		{name: "there, in a state of its own", in: TemplateInput{Template: plain,
			Live: live("status: {compliant: Terminating}")}, want: "Apply "},
		{name: "not there, unmet", in: TemplateInput{Template: plain, Results: unmet}, want: "Wait " + pendingText},
		{name: "there, unmet", in: TemplateInput{Template: plain, Results: unmet, Live: compliant},
			want: "Delete " + pendingText},
		{name: "there, unmet and going already", in: TemplateInput{Template: plain, Results: unmet, Live: deleting},
			want: "Wait " + pendingText},
		{name: "there, met and still going", in: TemplateInput{Template: plain, Results: met, Live: deleting},
			want: "Keep  evaluating"},
		{name: "unmet and of another owner", in: TemplateInput{Template: plain, Results: unmet, Live: foreign},
			want: "Wait " + pendingText},
		{name: "met and of another owner", in: TemplateInput{Template: plain, Results: met, Live: foreign},
			want: "Fault NonCompliant; template-error; ConfigurationPolicy shop/x exists already and belongs to no Policy: delete it, or give the template another name"},
		{name: "met and of another Policy", in: TemplateInput{Template: plain,
			Live: LiveOf(object(t, configurationPolicy+
				"metadata: {name: x, namespace: shop, labels: {policy.open-cluster-management.io/policy: db}}"), p)},
			want: "Fault NonCompliant; template-error; ConfigurationPolicy shop/x exists already and belongs to Policy shop/db: delete it, or give the template another name"},
		{name: "a cycle", in: TemplateInput{Template: plain, Results: unmet, Cycle: []Ref{app(), app()}},
			want: "Wait " + pendingText + "; they wait for one another: Policy shop/app -> Policy shop/app"},

		{name: "ignored, not there", in: TemplateInput{Template: ignoring, Results: unmet},
			want: "Wait " + strings.Replace(pendingText, "Pending", "Compliant", 1) + " but ignorePending is true"},
		{name: "ignored, there", in: TemplateInput{Template: ignoring, Results: unmet, Live: compliant},
			want: "Delete " + strings.Replace(pendingText, "Pending", "Compliant", 1) + " but ignorePending is true"},

		{name: "policy, not there, unmet", in: TemplateInput{Template: suspendable, Results: unmet},
			want: "Suspend " + pendingText},
		{name: "policy, there, unmet", in: TemplateInput{Template: suspendable, Results: unmet, Live: compliant},
			want: "Suspend " + pendingText},
		{name: "policy, suspended, unmet", in: TemplateInput{Template: suspendable, Results: unmet, Live: suspended},
			want: "Suspend " + pendingText},
		{name: "policy, suspended, met", in: TemplateInput{Template: suspendable, Results: met, Live: suspended},
			want: "Apply  evaluating"},
		{name: "policy, just not suspended any more",
			in: TemplateInput{Template: suspendable, Results: met, Live: pendingPolicy}, want: "Apply  evaluating"},
		{name: "policy, mode delete", in: TemplateInput{Template: suspendable, Results: unmet, Live: suspended,
			Mode: Delete}, want: "Delete " + pendingText},
		{name: "policy, mode delete, not there", in: TemplateInput{Template: suspendable, Results: unmet,
			Mode: Delete}, want: "Wait " + pendingText},
		{name: "policy, unmet, being deleted",
			in: TemplateInput{Template: suspendable, Results: unmet, Live: deleting}, want: "Keep " + pendingText},
		{name: "policy, unmet, and not ours to suspend",
			in:   TemplateInput{Template: suspendable, Results: unmet, Live: foreign},
			want: "Fault NonCompliant; template-error; OperatorPolicy shop/g exists already and belongs to no Policy: delete it, or give the template another name"},
		{name: "policy, unmet, and cannot be suspended",
			in: TemplateInput{Template: suspendable, Results: unmet,
				WriteFault: "the right to create operatorpolicies is missing"},
			want: "Fault NonCompliant; template-error; the right to create operatorpolicies is missing"},
		{name: "policy, ignored",
			in: TemplateInput{Template: func() Template { g := suspendable; g.IgnorePending = true; return g }(),
				Results: unmet, Live: compliant},
			want: "Suspend " + strings.Replace(pendingText, "Pending", "Compliant", 1) + " but ignorePending is true"},

		{name: "stale changes nothing: applied", in: TemplateInput{Template: plain, Results: stale, Live: compliant},
			want: "Keep Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "stale changes nothing: applied, and edited since",
			in: TemplateInput{Template: plain, Results: stale, Live: compliant, Edited: true}, want: "Keep " + old},
		{name: "stale changes nothing: policy applied, and edited since",
			in:   TemplateInput{Template: suspendable, Results: stale, Live: compliant, Edited: true},
			want: "Keep " + old},
		{name: "edited", in: TemplateInput{Template: plain, Results: met, Live: compliant, Edited: true},
			want: "Apply  evaluating"},
		{name: "stale changes nothing: waiting", in: TemplateInput{Template: plain, Results: stale},
			want: "Wait " + old},
		{name: "stale changes nothing: going", in: TemplateInput{Template: plain, Results: stale, Live: deleting},
			want: "Keep " + old},
		{name: "stale changes nothing: of another owner",
			in: TemplateInput{Template: plain, Results: stale, Live: foreign}, want: "Keep " + old},
		{name: "stale changes nothing: suspended", in: TemplateInput{Template: suspendable, Results: stale,
			Live: suspended}, want: "Keep " + old},
		{name: "stale changes nothing: policy applied",
			in:   TemplateInput{Template: suspendable, Results: stale, Live: compliant},
			want: "Keep Compliant; OperatorPolicy shop/g is Compliant"},
		{name: "a policy that is not there yet is better there",
			in: TemplateInput{Template: suspendable, Results: stale}, want: "Suspend " + old},
		{name: "a policy that is not there yet and cannot be",
			in:   TemplateInput{Template: suspendable, Results: stale, WriteFault: "no"},
			want: "Fault NonCompliant; template-error; no"},
		{name: "stale beside unmet", in: TemplateInput{Template: plain, Results: append(stale[:1:1], unmet...),
			Live: compliant},
			want: "Delete Pending; Dependencies were not satisfied: 2 are still pending (Policy shop/db: Stale, generation 2 is not evaluated yet, Policy shop/db: WrongState, it is NonCompliant, want Compliant)"},
		{name: "at the start: applied", in: TemplateInput{Template: plain, Results: unread, Live: compliant},
			want: "Keep Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "at the start: waiting", in: TemplateInput{Template: plain, Results: unread},
			want: "Wait Pending; Dependencies were not satisfied: 1 is still pending (Policy shop/db: NotRead, it has not been read yet) unread"},
		{name: "at the start: a policy that is not there", in: TemplateInput{Template: suspendable, Results: unread},
			want: "Wait Pending; Dependencies were not satisfied: 1 is still pending (Policy shop/db: NotRead, it has not been read yet) unread"},
		{name: "cannot be read", in: TemplateInput{Template: suspendable, Results: unreadable},
			want: "Suspend Pending; Dependencies were not satisfied: 1 is still pending (Policy shop/db: NotRead, its webhook is down)"},

		{name: "error in the template, not there", in: TemplateInput{Template: faulty, Results: met},
			want: "Fault NonCompliant; template-error; objectDefinition has no kind"},
		{name: "error in the template, there, unmet",
			in:   TemplateInput{Template: faulty, Results: unmet, Live: compliant},
			want: "Fault NonCompliant; template-error; objectDefinition has no kind"},
		{name: "error of the kind beats Pending", in: TemplateInput{Template: plain, Results: unmet,
			KindFault: "no such kind", WriteFault: "x"}, want: "Fault NonCompliant; template-error; no such kind"},
		{name: "Pending beats an error of writing",
			in: TemplateInput{Template: plain, Results: unmet, WriteFault: "x"}, want: "Wait " + pendingText},
		{name: "error of writing", in: TemplateInput{Template: plain, Results: met, WriteFault: "spec.x is not known",
			Live: compliant}, want: "Fault NonCompliant; template-error; spec.x is not known"},
		{name: "Pending beats what the hub says", in: TemplateInput{Template: hub, Results: unmet},
			want: "Wait " + pendingText},
		{name: "what the hub says", in: TemplateInput{Template: hub, Results: met, Live: compliant},
			want: "Fault NonCompliant; template-error; no such value"},
		{name: "an endless error", in: TemplateInput{Template: plain, WriteFault: strings.Repeat("é", 5000)},
			want: "Fault NonCompliant; template-error; " + strings.Repeat("é", (maxMessage-30-3)/2) + "..."},
		{name: "an error of several lines", in: TemplateInput{Template: plain, WriteFault: "a\nb\x1b[2J\xff"},
			want: "Fault NonCompliant; template-error; a b [2J?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := outcomeText(Decide(c.in)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func outcomeText(out TemplateOutcome) string {
	s := string(out.Decision) + " " + out.Message
	if out.Evaluating {
		s += " evaluating"
	}
	if out.Unread {
		s += " unread"
	}
	return s
}

// TestDecideOnGatekeeper: a ConstraintTemplate counts once Gatekeeper has accepted it.
func TestDecideOnGatekeeper(t *testing.T) {
	p := &Policy{Namespace: "shop", Name: "app"}
	tm := Template{Name: "k", Ref: Ref{GatekeeperTemplateGroup, KindConstraintTemplate, "", "k"}, Readable: true}
	for status, want := range map[string]string{
		"{}":               "Apply  evaluating",
		"{created: true}":  "Apply Compliant; ConstraintTemplate.templates.gatekeeper.sh k is Compliant",
		"{created: false}": "Apply NonCompliant; template-error; Gatekeeper has not accepted it: see status.byPod of ConstraintTemplate.templates.gatekeeper.sh k",
	} {
		o := object(t, "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: k, labels: {policy.open-cluster-management.io/policy: app, policy.open-cluster-management.io/cluster-namespace: shop}}\nstatus: "+status)
		if got := outcomeText(Decide(TemplateInput{Template: tm, Live: LiveOf(o, p)})); got != want {
			t.Errorf("%s: got %s, want %s", status, got, want)
		}
	}
	other := LiveOf(made(t, "status: {compliant: Compliant, created: false}"), p)
	if out := Decide(TemplateInput{Template: Template{Name: "x", Ref: other.ref(), Readable: true},
		Live: other}); out.State != Compliant {
		t.Errorf("created means something else here: %+v", out)
	}
}

// TestMessageOfObject: the message comes from the object's status, and is never that of another state than the present
// one.
func TestMessageOfObject(t *testing.T) {
	p := &Policy{Namespace: "shop", Name: "app"}
	tm := Template{Name: "x", Ref: Ref{PolicyGroup, "ConfigurationPolicy", "shop", "x"}, Readable: true}
	for _, c := range []struct{ name, status, want string }{
		{name: "its history", status: `{compliant: NonCompliant, history: [{message: "NonCompliant; violation - not found"}, {message: "Compliant; fine"}]}`, want: "NonCompliant; violation - not found"},
		{name: "its history without the state",
			status: `{compliant: NonCompliant, history: [{message: "violation - a; b"}]}`,
			want:   "NonCompliant; violation - a; b"},
		{name: "its history is behind",
			status: `{compliant: Compliant, history: [{message: "NonCompliant; violation"}]}`,
			want:   "Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "its history is behind, the condition is not",
			status: `{compliant: Compliant, history: [{message: "NonCompliant; violation"}], conditions: [{type: Compliant, status: "True", message: all fine}]}`, want: "Compliant; all fine"},
		{name: "its condition is behind",
			status: `{compliant: Compliant, conditions: [{type: Compliant, status: "False", message: not fine}]}`,
			want:   "Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "its condition contradicts itself",
			status: `{compliant: Compliant, conditions: [{type: Compliant, status: "True", message: "NonCompliant; bad"}]}`, want: "Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "only its condition", status: `{conditions: [{type: Compliant, status: "False", message: not fine}]}`,
			want: "NonCompliant; not fine"},
		{name: "a history of something else", status: `{compliant: Compliant, history: [5]}`,
			want: "Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "a condition that says nothing",
			status: `{compliant: Compliant, history: [{message: ""}], conditions: [{type: Compliant, status: "True"}]}`,
			want:   "Compliant; ConfigurationPolicy shop/x is Compliant"},
		{name: "an empty history", status: `{compliant: Compliant, history: []}`,
			want: "Compliant; ConfigurationPolicy shop/x is Compliant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Decide(TemplateInput{Template: tm, Live: LiveOf(made(t, "status: "+c.status), p)})
			if out.Message != c.want || !strings.HasPrefix(out.Message, string(out.State)+"; ") {
				t.Errorf("got %q, want %q", out.Message, c.want)
			}
		})
	}
}

// TestDecideNeverOpensTheGate enumerates all inputs, and checks that decisions never violate the invariants.
func TestDecideNeverOpensTheGate(t *testing.T) {
	p := &Policy{Namespace: "shop", Name: "app"}
	db := dep("Policy", "db", Compliant)
	results := map[string][]Result{
		"none": nil, "met": {Evaluate(db, Observed{State: Compliant})},
		"unmet":  {Evaluate(db, Observed{Reason: NotFound})},
		"stale":  {Evaluate(db, Observed{Generation: 2, HasObserved: true})},
		"unread": {Evaluate(db, Observed{Reason: NotRead})},
	}
	base := LiveOf(made(t, "status: {compliant: Compliant}"), p)
	lives := []*Live{nil}
	for i := range 8 {
		l := *base
		l.Ours, l.Suspended, l.Deleting = i&1 != 0, i&2 != 0, i&4 != 0
		lives = append(lives, &l)
	}
	cases := 0
	for i := range 1 << 6 {
		tm := Template{Name: "x", Ref: base.ref(), Readable: true, Suspendable: i&1 != 0, IgnorePending: i&2 != 0}
		in := TemplateInput{}
		if i&4 != 0 {
			tm.Fault = "fault"
		}
		if i&8 != 0 {
			in.KindFault = "kind"
		}
		if i&16 != 0 {
			in.WriteFault = "write"
		}
		if i&32 != 0 {
			tm.HubError = "hub"
		}
		in.Template = tm
		for name, f := range results {
			for _, live := range lives {
				for _, mode := range []PendingGuards{"", Suspend, Delete} {
					in.Results, in.Live, in.Mode = f, live, mode
					out := Decide(in)
					faulty := strings.HasPrefix(out.Message, "NonCompliant; template-error; ")
					cases++
					met, decided := AllMet(f)
					kept := tm.Suspendable && mode != Delete
					writes := out.Decision == DoApply || out.Decision == DoSuspend || out.Decision == DoDelete
					for what, wrong := range map[string]bool{
						"a policy is deleted":                 kept && out.Decision == DoDelete,
						"something else is suspended":         !kept && out.Decision == DoSuspend,
						"applied although not all is met":     out.Decision == DoApply && !met,
						"deleted although nothing is decided": out.Decision == DoDelete && !decided,
						"deleted although all is met":         out.Decision == DoDelete && met,
						"deleted what is not there":           out.Decision == DoDelete && live == nil,
						"written although of another owner":   writes && live != nil && !live.Ours,
						"written although an error is known":  writes && (tm.Fault != "" || in.KindFault != ""),
						"a faulty template is reported as fine": (tm.Fault != "" || in.KindFault != "") &&
							(out.State != NonCompliant || !faulty),
						"pending is reported as fine": decided && !met && out.State == Compliant &&
							!tm.IgnorePending,
						"a message of another state": out.State != Unknown &&
							!strings.HasPrefix(out.Message, string(out.State)+"; "),
						"a message of no state":           out.State == Unknown && out.Message != "",
						"pending without saying for what": out.State == Pending && len(out.Unmet) == 0,
						"an unmet dependency is not told": !faulty && decided && !met &&
							len(out.Unmet) == 0,
						"a waiting policy is left open": kept && !faulty && decided && !met &&
							live != nil && live.Ours && !live.Suspended && !live.Deleting && out.Decision != DoSuspend,
						"a waiting template is left applied": !kept && !faulty && decided && !met &&
							live != nil && live.Ours && !live.Deleting && out.Decision != DoDelete,
						"a decision that does not have its reason": out.Decision == DoFault != faulty,
					} {
						if wrong {
							t.Errorf("%s: results %s, mode %q, %+v, live %+v: %s", what, name, mode, tm, live,
								outcomeText(out))
						}
					}
				}
			}
		}
	}
	if cases != 64*5*9*3 {
		t.Errorf("%d cases", cases)
	}
	for d, want := range map[Decision]string{DoKeep: "Keep", DoApply: "Apply", DoSuspend: "Suspend", DoDelete: "Delete",
		DoWait: "Wait", DoFault: "Fault"} {
		if fmt.Sprint(d) != want {
			t.Errorf("%v", d)
		}
	}
}

func (l *Live) ref() Ref { return RefOf(&unstructured.Unstructured{Object: l.Object}) }
