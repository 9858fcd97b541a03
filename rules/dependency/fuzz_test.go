package dependency

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// FuzzRead: any Policy can be read, judged, decided on and reported, and its status and events are bounded, printable
// and consistent.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		seed003,
		spec(nil),
		spec([]string{on("Policy db"), on("Policy db NonCompliant"), on("OperatorPolicy x/y Pending")},
			template("t", on("Policy app")), template("t"), template("u")),
		"spec: {policy-templates: [null, {}, {objectDefinition: {kind: 5}}, {objectDefinition: {apiVersion: a/b/c, kind: K, metadata: {name: x}}}]}",
		"spec: {policy-templates: [{objectDefinition: {apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: g, annotations: {policy.open-cluster-management.io/hub-templates-error: no}}}, ignorePending: true}]}",
		"status: {compliant: x, observedGeneration: -1, dependencies: [{kind: K, name: n, apiVersion: a/b/c}], details: [null, {history: [{message: x}]}], conditions: [{type: Compliant, status: Unknown, reason: NotEvaluated}]}",
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte(`{"metadata":{"generation":1},"status":{"compliant":"Compliant","history":[{"message":"Compliant; fine","lastTimestamp":"2026-11-21T12:00:00Z"}]}}`))
	}
	f.Fuzz(func(t *testing.T, data, liveData []byte) {
		p := &policyv1.Policy{}
		if json.Unmarshal(data, p) != nil {
			return
		}
		p.Namespace, p.Name = "shop", "app"
		var live map[string]any
		_ = json.Unmarshal(liveData, &live) // nil is a missing object

		read := Read(p)
		scoped := read.Scoped(p, func(_, kind string) bool { return len(kind)%2 == 0 })
		checkRead(t, p, read)
		checkRead(t, p, scoped)
		g := newGraph([]*Policy{read}, nil)
		if cycle := g.PolicyCycle("shop", "app"); cycle != nil {
			checkWay(t, g, cycle[0], cycle)
		}
		checkText(t, "what it waits for", read.PendingOn(""), 20_000)

		in := StatusInput{Policy: p, Read: read, Now: noon}
		for i := range read.Templates {
			tm := &read.Templates[i]
			var results []Result
			for _, d := range tm.Dependencies {
				results = append(results, Evaluate(*d, Observe(live)))
			}
			out := Decide(TemplateInput{Template: *tm, Results: results, Cycle: g.Cycle(app()),
				Live: LiveOf(live, read)})
			checkText(t, "message", out.Message, maxMessage)
			in.Outcomes = append(in.Outcomes, out)
		}
		next, events := NextStatus(in)
		for _, e := range events {
			checkText(t, "event", e.Message, maxEvent)
		}
		p.Status = next
		in.Now = noon.Add(time.Hour)
		if _, events := NextStatus(in); len(events) > 0 {
			t.Errorf("told again: %v", events)
		}
	})
}

func checkRead(t *testing.T, p *policyv1.Policy, read *Policy) {
	t.Helper()
	if len(read.Templates) != len(p.Spec.PolicyTemplates) {
		t.Fatalf("%d of %d templates", len(read.Templates), len(p.Spec.PolicyTemplates))
	}
	named := true
	for i := range read.Templates {
		tm := &read.Templates[i]
		switch {
		case tm.Index != i, tm.Name == "", len(tm.Name) > maxName, !tm.Readable && tm.Fault == "",
			tm.Readable != (tm.Ref != Ref{}):
			t.Errorf("template %d: %+v", i, tm)
		case tm.Suspendable != tm.Ref.Suspendable(), tm.Readable && tm.Ref.Namespace != "shop" &&
			tm.Ref.Namespace != "":
			t.Errorf("template %d: %+v", i, tm)
		}
		if !utf8.ValidString(tm.Fault) {
			t.Errorf("template %d: fault %q", i, tm.Fault)
		}
		named = named && (tm.Readable || tm.Name != "template-"+strconv.Itoa(i))
		for j, d := range tm.Dependencies {
			if j > 0 && tm.Dependencies[j-1].Compare(d.Ref) >= 0 {
				t.Errorf("template %d: %s after %s", i, d.Ref, tm.Dependencies[j-1].Ref)
			}
			if !strings.HasPrefix(d.Path, "spec.") || ownNamespaceOnly(d.Ref) && d.Namespace != "shop" &&
				d.Namespace != "" {
				t.Errorf("template %d: %+v", i, d)
			}
		}
	}
	if read.NamesKnown && !named {
		t.Error("the names are said to be known")
	}
	for _, c := range read.Clashes {
		if len(c.Says) < 2 || len(c.Says) != len(c.Paths) {
			t.Errorf("%+v", c)
		}
	}
}

func checkText(t *testing.T, what, s string, most int) {
	t.Helper()
	if len(s) > most || !utf8.ValidString(s) || strings.ContainsFunc(s,
		func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("%s of %d bytes: %q", what, len(s), s[:min(len(s), 500)])
	}
}
