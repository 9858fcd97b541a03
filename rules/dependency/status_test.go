package dependency

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/internal/text"
)

// statusAfter returns the status of a Policy after some outcomes, each "<template> <State>; <text>", or only a name if
// the state is unknown.
func statusAfter(
	t testing.TB, before policyv1.PolicyStatus, now time.Time, outcomes ...string,
) (policyv1.PolicyStatus, []Event) {
	t.Helper()
	p := &policyv1.Policy{Status: before}
	p.Namespace, p.Name, p.Generation = "shop", "app", 3
	in := StatusInput{Policy: p, Read: Read(p), Now: now}
	for _, text := range outcomes {
		name, message, _ := strings.Cut(text, " ")
		state, _, _ := strings.Cut(message, ";")
		in.Outcomes = append(in.Outcomes, TemplateOutcome{Template: name, State: State(state), Message: message,
			Evaluating: state == ""})
	}
	return NextStatus(in)
}

func statusText(s policyv1.PolicyStatus) string {
	c := s.Conditions[0]
	text := fmt.Sprintf("%s (%s %s: %s)", s.ComplianceState, c.Status, c.Reason, c.Message)
	for _, d := range s.Details {
		text += fmt.Sprintf("\n%s %s:", d.TemplateMeta.Name, d.ComplianceState)
		for _, h := range d.History {
			text += fmt.Sprintf(" [%s %s]", h.LastTimestamp.UTC().Format("15:04:05"), h.Message)
		}
	}
	return text
}

func eventText(events []Event) string {
	var texts []string
	for _, e := range events {
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		texts = append(texts, kind+" "+e.Message)
	}
	return strings.Join(texts, "\n")
}

func TestNextStatus(t *testing.T) {
	for _, c := range []struct {
		name     string
		outcomes []string
		want     string
		events   string
	}{
		{name: "no templates", want: " (Unknown NoTemplates: the Policy has no templates)"},
		{name: "Compliant", outcomes: []string{"a Compliant; fine", "b Compliant; fine"},
			want:   "Compliant (True Compliant: all templates are Compliant)\na Compliant: [12:00:00 Compliant; fine]\nb Compliant: [12:00:00 Compliant; fine]",
			events: "Normal a: Compliant; fine\nNormal b: Compliant; fine"},
		{name: "NonCompliant before everything", outcomes: []string{"a Compliant; fine", "b Pending; waits", "c",
			"d NonCompliant; bad"},
			want:   "NonCompliant (False NonCompliant: templates that are NonCompliant: d)\na Compliant: [12:00:00 Compliant; fine]\nb Pending: [12:00:00 Pending; waits]\nc :\nd NonCompliant: [12:00:00 NonCompliant; bad]",
			events: "Normal a: Compliant; fine\nWarning b: Pending; waits\nWarning d: NonCompliant; bad"},
		{name: "Pending before unknown", outcomes: []string{"a Compliant; fine", "b", "c Pending; waits"},
			want:   "Pending (False Pending: templates that wait for their dependencies: c)\na Compliant: [12:00:00 Compliant; fine]\nb :\nc Pending: [12:00:00 Pending; waits]",
			events: "Normal a: Compliant; fine\nWarning c: Pending; waits"},
		{name: "unknown before Compliant", outcomes: []string{"a", "b Compliant; fine"},
			want:   " (Unknown NotEvaluated: templates that are not evaluated yet: a)\na :\nb Compliant: [12:00:00 Compliant; fine]",
			events: "Normal b: Compliant; fine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, events := statusAfter(t, policyv1.PolicyStatus{}, noon, c.outcomes...)
			if diff := cmp.Diff(c.want, statusText(s)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.events, eventText(events)); diff != "" {
				t.Error(diff)
			}
			if s.ObservedGeneration != 3 || s.Conditions[0].ObservedGeneration != 3 {
				t.Error("of which generation is it?")
			}
		})
	}
}

// TestStatusOfUnknown: the whole is evaluating only if everything unknown is.
func TestStatusOfUnknown(t *testing.T) {
	p := &policyv1.Policy{}
	for _, evaluating := range []bool{true, false} {
		outcomes := []TemplateOutcome{{Template: "a", Evaluating: true}, {Template: "b", Evaluating: evaluating},
			{Template: "c", State: Compliant, Message: "Compliant; fine"}}
		s, _ := NextStatus(StatusInput{Policy: p, Read: Read(p), Outcomes: outcomes, Now: noon})
		want := " (Unknown Unknown: templates whose compliance is not known: a, b)"
		if evaluating {
			want = " (Unknown NotEvaluated: templates that are not evaluated yet: a, b)"
		}
		if got := statusText(s); !strings.HasPrefix(got, want+"\n") {
			t.Errorf("got %s", got)
		}
		if again := Read(&policyv1.Policy{Status: s}); again.Evaluating != evaluating {
			t.Errorf("read back: %t", again.Evaluating)
		}
	}
}

// TestStatusIsNeverStale: an unknown state is not reported, whatever was reported before.
func TestStatusIsNeverStale(t *testing.T) {
	s, _ := statusAfter(t, policyv1.PolicyStatus{}, noon, "a Compliant; fine", "b Compliant; fine")
	s, events := statusAfter(t, s, noon.Add(time.Minute), "a", "b Compliant; fine")
	want := " (Unknown NotEvaluated: templates that are not evaluated yet: a)\na : [12:00:00 Compliant; fine]\nb Compliant: [12:00:00 Compliant; fine]"
	if diff := cmp.Diff(want, statusText(s)); diff != "" || len(events) > 0 {
		t.Error(diff, events)
	}
	s, events = statusAfter(t, s, noon.Add(2*time.Minute), "a Compliant; fine", "b NonCompliant; bad")
	want = "NonCompliant (False NonCompliant: templates that are NonCompliant: b)\na Compliant: [12:00:00 Compliant; fine]\nb NonCompliant: [12:02:00 NonCompliant; bad] [12:00:00 Compliant; fine]"
	if diff := cmp.Diff(want, statusText(s)); diff != "" || len(events) != 1 {
		t.Error(diff, events)
	}
	p := &policyv1.Policy{Status: s}
	p.Spec.Disabled = true
	p.Status.Dependencies, p.Status.PendingDependencies = []policyv1.DependencyStatus{{Kind: "Policy"}}, 1
	s, events = NextStatus(StatusInput{Policy: p, Read: Read(p), Now: noon})
	if diff := cmp.Diff(" (Unknown Disabled: the Policy is disabled)", statusText(s)); diff != "" || len(events)+
		len(s.Dependencies)+s.PendingDependencies > 0 {
		t.Error(diff, events, s.Dependencies)
	}
	p.Status, _ = statusAfter(t, s, noon, "a Compliant; fine")
	s, events = NextStatus(StatusInput{Policy: p, Read: Read(p), Excluded: true, Now: noon})
	if got, want := statusText(s),
		" (Unknown NamespaceExcluded: the namespace is one that Opgate leaves out, so nothing of the policy is applied)"; got != want || len(events) > 0 {
		t.Error(got, events)
	}
}

// TestStatusOfMovedTemplates: histories belong to names, not to places.
func TestStatusOfMovedTemplates(t *testing.T) {
	s, _ := statusAfter(t, policyv1.PolicyStatus{}, noon, "a Compliant; fine", "b NonCompliant; bad",
		"a NonCompliant; template-error; twice")
	s, events := statusAfter(t, s, noon.Add(time.Minute), "new Pending; waits", "b NonCompliant; bad",
		"a Compliant; fine", "a NonCompliant; template-error; twice")
	want := "NonCompliant (False NonCompliant: templates that are NonCompliant: b, a)\nnew Pending: [12:01:00 Pending; waits]\nb NonCompliant: [12:00:00 NonCompliant; bad]\n" +
		"a Compliant: [12:00:00 Compliant; fine]\na NonCompliant: [12:00:00 NonCompliant; template-error; twice]"
	if diff := cmp.Diff(want, statusText(s)); diff != "" || eventText(events) != "Warning new: Pending; waits" {
		t.Error(diff, events)
	}
	s, events = statusAfter(t, s, noon, "b NonCompliant; bad")
	if len(s.Details) != 1 || len(events) > 0 {
		t.Error(statusText(s), events)
	}
}

// TestStatusAtTheStart: after a restart nothing has been read, which causes no writes.
func TestStatusAtTheStart(t *testing.T) {
	p := &policyv1.Policy{}
	p.Namespace, p.Name, p.Generation = "shop", "app", 3
	db := dep("Policy", "db", Compliant)
	tm := Template{Name: "x", Ref: Ref{PolicyGroup, "ConfigurationPolicy", "shop", "x"}, Readable: true,
		Dependencies: []*Dependency{&db}}
	next := func(at time.Time, ignore bool, observed Observed) []Event {
		tm.IgnorePending = ignore
		out := Decide(TemplateInput{Template: tm, Results: []Result{Evaluate(db, observed)}})
		s, events := NextStatus(StatusInput{Policy: p, Read: Read(p), Outcomes: []TemplateOutcome{out}, Now: at})
		p.Status = s
		return events
	}
	for _, ignore := range []bool{false, true} {
		p.Status = policyv1.PolicyStatus{}
		next(noon, ignore, Observed{State: NonCompliant})
		before := p.Status.DeepCopy()
		if events := next(noon.Add(time.Hour), ignore, Observed{Reason: NotRead}); len(events) > 0 {
			t.Error(events)
		}
		if diff := cmp.Diff(before, p.Status.DeepCopy()); diff != "" {
			t.Error(diff)
		}
		if events := next(noon.Add(2*time.Hour), ignore, Observed{Reason: NotRead, Detail: "its webhook is down"}); len(
			events) != 1 || p.Status.Dependencies[0].Reason != "NotRead" {
			t.Error("that it cannot be read has to be told", events, p.Status.Dependencies)
		}
	}
	p.Status = policyv1.PolicyStatus{}
	if events := next(noon, false, Observed{Reason: NotRead}); len(events) != 1 ||
		p.Status.ComplianceState != policyv1.Pending || p.Status.PendingDependencies != 1 {
		t.Error("a new one has to say something", events, p.Status)
	}
}

func TestStatusOfDependencies(t *testing.T) {
	p := &policyv1.Policy{}
	p.Namespace, p.Name = "shop", "app"
	outcome := func(name string, results ...Result) TemplateOutcome {
		return TemplateOutcome{Template: name, State: Pending, Message: "Pending; waits", Unmet: results}
	}
	widget := Dependency{Ref: Ref{"example.com", "Widget", "shop", "w"}, Version: "v1", Want: NonCompliant}
	var outcomes []TemplateOutcome
	for i := range 7 {
		outcomes = append(outcomes, outcome(fmt.Sprint("t", i),
			Evaluate(widget, Observed{State: "UnknownCompliancy"}),
			Evaluate(dep("Policy", "db", Compliant), Observed{State: Pending})))
	}
	outcomes = append(outcomes,
		outcome("other", Evaluate(dep("Policy", "db", NonCompliant), Observed{State: Pending}),
			Evaluate(Dependency{Ref: Ref{"", "ConfigMap", "shop", "c"}, Version: "v1", Want: Compliant},
				Observed{Reason: NoKind})))
	s, _ := NextStatus(StatusInput{Policy: p, Read: Read(p), Outcomes: outcomes, Now: noon})
	names := []string{"t0", "t1", "t2", "t3", "t4"}
	want := []policyv1.DependencyStatus{
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "c", Compliance: "Compliant", Reason: "NoKind",
			Message: "the cluster does not serve this kind", Templates: []string{"other"}},
		{Kind: "Policy", Namespace: "shop", Name: "db", Compliance: "Compliant", State: "Pending", Reason: "WrongState",
			Message: "it is Pending, want Compliant", Templates: names},
		{Kind: "Policy", Namespace: "shop", Name: "db", Compliance: "NonCompliant", State: "Pending",
			Reason: "WrongState", Message: "it is Pending, want NonCompliant", Templates: []string{"other"}},
		{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "shop", Name: "w", Compliance: "NonCompliant",
			Reason: "WrongState", Message: "it is UnknownCompliancy, want NonCompliant", Templates: names},
	}
	if diff := cmp.Diff(want, s.Dependencies); diff != "" || s.PendingDependencies != 4 {
		t.Error(diff)
	}
	p.Status = s
	if got, want := Read(p).PendingOn(""),
		"Policy shop/app waits for ConfigMap shop/c (NoKind), Policy shop/db (Pending, want Compliant), Policy shop/db (Pending, want NonCompliant) and 1 more"; got != want {
		t.Errorf("read back: %s", got)
	}
	var many []Result
	for i := range 300 {
		many = append(many, Evaluate(dep("Policy", fmt.Sprintf("p%03d", 299-i), Compliant), Observed{Reason: NotFound}))
	}
	s, _ = NextStatus(StatusInput{Policy: p, Read: Read(p), Outcomes: []TemplateOutcome{outcome("t", many...)},
		Now: noon})
	if len(s.Dependencies) != maxPending || s.PendingDependencies != 300 || s.Dependencies[19].Name != "p019" {
		t.Errorf("%d of %d, the last %s", len(s.Dependencies), s.PendingDependencies,
			s.Dependencies[len(s.Dependencies)-1].Name)
	}
}

// TestStatusOfAnything: the same input yields the same status and no events; the status is bounded and keeps foreign
// fields; the newest message of each template is that of its present state.
func TestStatusOfAnything(t *testing.T) {
	for seed := range uint64(cases.Of(60*30) / 30) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := &policyv1.Policy{}
		p.Namespace, p.Name = "shop", "app"
		p.Status.Placement = []*policyv1.Placement{{PlacementBinding: "kept"}}
		p.Status.Status = []*policyv1.CompliancePerClusterStatus{{ClusterName: "kept"}}
		p.Status.Conditions = []metav1.Condition{{Type: "OfSomebodyElse", Status: "True"}}
		now := noon
		for range 30 {
			now = now.Add(time.Duration(r.Int64N(int64(time.Hour))))
			p.Generation++
			in := StatusInput{Policy: p, Read: Read(p), Now: now}
			for range 1 + r.IntN(4) {
				state := []State{Compliant, NonCompliant, Pending, Unknown}[r.IntN(4)]
				out := TemplateOutcome{Template: fmt.Sprint("t", r.IntN(5)), State: state}
				if state != Unknown {
					out.Message = message(state, strings.Repeat("x", r.IntN(3)*r.IntN(5000)))
				}
				in.Outcomes = append(in.Outcomes, out)
			}
			next, _ := NextStatus(in)
			p.Status = roundTrip(t, next)
			again, events := NextStatus(StatusInput{Policy: p, Read: Read(p), Outcomes: in.Outcomes,
				Now: now.Add(time.Hour)})
			if diff := cmp.Diff(p.Status, roundTrip(t, again)); diff != "" || len(events) > 0 {
				t.Fatalf("seed %d: not settled: %v %s", seed, events, diff)
			}
			for i, d := range p.Status.Details {
				if out := in.Outcomes[i]; out.State != Unknown &&
					newest(d.History) != text.Truncate(out.Message, maxDetails/len(in.Outcomes)) ||
					len(d.History) > maxHistory {
					t.Fatalf("seed %d: %+v after %+v", seed, d, out)
				}
			}
			if len(p.Status.Placement) != 1 || len(p.Status.Status) != 1 || len(p.Status.Conditions) != 2 {
				t.Fatal("a condition of another client was lost")
			}
		}
	}
}

func roundTrip(t *testing.T, s policyv1.PolicyStatus) policyv1.PolicyStatus {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back policyv1.PolicyStatus
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// TestStatusOfHostileSize: with hundreds of templates and endless messages the object can still be stored.
func TestStatusOfHostileSize(t *testing.T) {
	p := &policyv1.Policy{}
	now := noon
	for round := range 12 {
		in := StatusInput{Policy: p, Read: Read(p), Now: now}
		endless := message(NonCompliant, fmt.Sprint(round, strings.Repeat("é", 1<<20)))
		for i := range 500 {
			in.Outcomes = append(in.Outcomes, TemplateOutcome{Template: fmt.Sprint(strings.Repeat("n", 240), i),
				State: NonCompliant, Message: endless})
		}
		now = now.Add(time.Minute)
		p.Status, _ = NextStatus(in)
	}
	data, err := json.Marshal(p.Status)
	if err != nil || len(data) > 1<<20 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if newest(p.Status.Details[499].History) == "" {
		t.Error("the last template says nothing")
	}
}

// TestStatusOnceDependenciesAreMet: the newest message does not go on to say that dependencies are not met while the
// object is not evaluated.
func TestStatusOnceDependenciesAreMet(t *testing.T) {
	s, _ := statusAfter(t, policyv1.PolicyStatus{}, noon,
		"a Pending; Dependencies were not satisfied: 1 is still pending (Policy shop/db: NotFound)")
	for range 2 { // the second changes nothing
		s, _ = statusAfter(t, s, noon.Add(time.Minute), "a")
		const want = "Pending; Dependencies are satisfied, and the object is not evaluated yet"
		if h := s.Details[0].History; s.Details[0].ComplianceState != "" || len(h) != 2 || h[0].Message != want {
			t.Errorf("history %v", h)
		}
	}
	s, _ = statusAfter(t, s, noon.Add(2*time.Minute), "a Compliant; fine")
	if h := s.Details[0].History; len(h) != 3 || h[0].Message != "Compliant; fine" {
		t.Errorf("history %v", h)
	}
}

// TestEventsOfOperatorPolicies: what an OperatorPolicy reports on its Policy by itself is not reported a second time.
func TestEventsOfOperatorPolicies(t *testing.T) {
	p := stored(t, "spec: {policy-templates: []}")
	for kind, want := range map[string]int{KindOperatorPolicy: 0, "CertificatePolicy": 1} {
		tm := Template{Name: "a", Ref: Ref{Group: PolicyGroup, Kind: kind, Namespace: "shop", Name: "a"},
			Readable: true}
		live := &Live{Ours: true, Object: map[string]any{}, Observed: Observed{State: Compliant}}
		out := Decide(TemplateInput{Template: tm, Live: live})
		s, events := NextStatus(StatusInput{Policy: p, Read: Read(p), Outcomes: []TemplateOutcome{out}, Now: noon})
		if len(events) != want || len(s.Details[0].History) != 1 {
			t.Errorf("%s: events %v, history %v", kind, events, s.Details[0].History)
		}
		waits := Decide(TemplateInput{Template: tm,
			Results: []Result{Evaluate(dep("Policy", "db", Compliant), Observed{Reason: NotFound})}})
		if _, events = NextStatus(StatusInput{Policy: p, Read: Read(p), Outcomes: []TemplateOutcome{waits},
			Now: noon}); len(events) != 1 {
			t.Errorf("%s that waits: events %v", kind, events)
		}
	}
}
