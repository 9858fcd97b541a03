package dependency

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/internal/cases"
)

// graphOf reads Policies, written as "name[!disabled]: what it waits for, ...; template: what that waits for; ...". A
// template whose name ends in ? has ignorePending. Sets are "name = member, ...".
func graphOf(t testing.TB, lines ...string) *Graph {
	t.Helper()
	var policies []*Policy
	var sets []*Set
	for _, line := range lines {
		if name, members, ok := strings.Cut(line, " = "); ok {
			sets = append(sets, ReadSet(storedSet(name, strings.Split(members, ", ")...)))
			continue
		}
		policies = append(policies, policyLine(t, line))
	}
	return newGraph(policies, sets)
}

func policyLine(t testing.TB, line string) *Policy {
	t.Helper()
	name, rest, _ := strings.Cut(line, ":")
	name, disabled := strings.CutSuffix(name, "!")
	list := func(text string) (deps []string) {
		for _, d := range strings.Split(text, ",") {
			if strings.TrimSpace(d) != "" {
				deps = append(deps, on(strings.TrimSpace(d)))
			}
		}
		return deps
	}
	parts := strings.Split(rest, ";")
	var templates []string
	for _, part := range parts[1:] {
		tm, deps, _ := strings.Cut(strings.TrimSpace(part), ":")
		tm, ignored := strings.CutSuffix(tm, "?")
		text := template(tm, list(deps)...)
		if ignored {
			text += "    ignorePending: true\n"
		}
		templates = append(templates, text)
	}
	if len(templates) == 0 {
		templates = []string{template(name + "-t")}
	}
	p := stored(t, "metadata: {namespace: shop, name: "+name+"}\n"+spec(list(parts[0]), templates...))
	p.Spec.Disabled = disabled
	return Read(p)
}

func TestCycle(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		// cycle is that of Policy app, for the graph and for the Policy alone.
		cycle, alone string
	}{
		{name: "nothing"},
		{name: "waits for nothing", lines: []string{"app:"}},
		{name: "waits for itself", lines: []string{"app: Policy app"}, cycle: "Policy shop/app -> Policy shop/app",
			alone: "same"},
		{name: "waits for what is not there", lines: []string{"app: Policy db, ConfigurationPolicy x"}},
		{name: "two", lines: []string{"app: Policy db", "db: Policy app"},
			cycle: "Policy shop/app -> Policy shop/db -> Policy shop/app", alone: "same"},
		{name: "in whichever state", lines: []string{"app: Policy db NonCompliant", "db: Policy app Pending"},
			cycle: "Policy shop/app -> Policy shop/db -> Policy shop/app", alone: "same"},
		{name: "the shortest of several", lines: []string{"app: Policy a, Policy z", "a: Policy b", "b: Policy app",
			"z: Policy app"}, cycle: "Policy shop/app -> Policy shop/z -> Policy shop/app", alone: "same"},
		{name: "a diamond is no cycle", lines: []string{"app: Policy a, Policy b", "a: Policy base", "b: Policy base",
			"base:"}},
		{name: "leads to the cycle of others", lines: []string{"app: Policy a", "a: Policy b", "b: Policy a"}},
		{name: "by one template only", lines: []string{"app:; one: ; two: Policy db", "db: Policy app"},
			cycle: "Policy shop/app -> Policy shop/db -> Policy shop/app", alone: "same"},
		{name: "through the template of another", lines: []string{"app: ConfigurationPolicy t",
			"db:; t: Policy app; u: "}, cycle: "Policy shop/app -> ConfigurationPolicy shop/t -> Policy shop/app",
			alone: "same"},
		{name: "past the template of another", lines: []string{"app: ConfigurationPolicy u",
			"db:; t: Policy app; u: "}},
		{name: "templates of one Policy in order",
			lines: []string{"app:; one: ; two: ConfigurationPolicy one; three: ConfigurationPolicy two"}},
		{name: "templates that wait for one another",
			lines: []string{"app:; one: ConfigurationPolicy two; two: ConfigurationPolicy one"},
			cycle: "ConfigurationPolicy shop/one -> ConfigurationPolicy shop/two -> ConfigurationPolicy shop/one"},
		{name: "a template that waits for itself", lines: []string{"app:; one: ConfigurationPolicy one"},
			cycle: "ConfigurationPolicy shop/one -> ConfigurationPolicy shop/one"},
		{name: "hidden by ignorePending", lines: []string{"app:; one?: ConfigurationPolicy one"},
			cycle: "ConfigurationPolicy shop/one -> ConfigurationPolicy shop/one"},
		{name: "hidden by ignorePending behind another Policy",
			lines: []string{"app:; one?: Policy db", "db: ConfigurationPolicy one"},
			cycle: "ConfigurationPolicy shop/one -> Policy shop/db -> ConfigurationPolicy shop/one"},
		{name: "the shortest of several that are hidden",
			lines: []string{"app:; a?: ConfigurationPolicy b; b?: ConfigurationPolicy a; z?: ConfigurationPolicy z; y?: ConfigurationPolicy x; x?: ConfigurationPolicy y"},
			cycle: "ConfigurationPolicy shop/z -> ConfigurationPolicy shop/z"},
		{name: "hidden behind many that wait for something else",
			lines: []string{"app:; a?: Policy x; b?: Policy x; c?: Policy x; d?: Policy x; e?: Policy x; f?: Policy x; z?: ConfigurationPolicy z"},
			cycle: "ConfigurationPolicy shop/z -> ConfigurationPolicy shop/z"},
		{name: "the last template may wait for its own Policy", lines: []string{"app:; one: ; last?: Policy app"}},
		{name: "two that ignore what they wait for", lines: []string{"app:; a?: Policy db", "db:; b?: Policy app"}},
		{name: "one that ignores is enough", lines: []string{"app:; a?: Policy db", "db: Policy app"}},
		{name: "a member waits for its set", lines: []string{"app: PolicySet all", "all = db, app"},
			cycle: "Policy shop/app -> PolicySet shop/all -> Policy shop/app", alone: "same"},
		{name: "members in order", lines: []string{"app: Policy db", "db:", "all = db, app"}},
		{name: "waits for a set of others", lines: []string{"app: PolicySet all", "all = db, gone", "db:"}},
		{name: "through two sets", lines: []string{"app: PolicySet one", "one = db", "db: PolicySet two", "two = app"},
			cycle: "Policy shop/app -> PolicySet shop/one -> Policy shop/db -> PolicySet shop/two -> Policy shop/app",
			alone: "same"},
		{name: "disabled itself", lines: []string{"app!: Policy app"}},
		{name: "through one that is disabled", lines: []string{"app: Policy db", "db!: Policy app"}},
		{name: "through the template of one that is disabled",
			lines: []string{"app: ConfigurationPolicy t", "db!:; t: Policy app"}},
		{name: "through a template that cannot be applied",
			lines: []string{"app: ConfigurationPolicy t", "db: Policy app; t: Policy a, Policy a Pending"},
			cycle: "Policy shop/app -> ConfigurationPolicy shop/t -> Policy shop/app", alone: "same"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graphOf(t, c.lines...)
			if got := ChainText(g.PolicyCycle("shop", "app")); got != c.cycle {
				t.Errorf("got %q, want %q", got, c.cycle)
			}
			alone := c.alone
			if alone == "same" {
				alone = c.cycle
			}
			if got := ChainText(g.Cycle(app())); got != alone {
				t.Errorf("alone: got %q, want %q", got, alone)
			}
		})
	}
	var none *Graph
	if none.Cycle(app()) != nil || none.PolicyCycle("shop", "app") != nil || none.Policy("shop", "app") != nil ||
		none.Set("shop", "all") != nil {
		t.Error("no graph has nothing in it")
	}
	if p := waiting(t, "app", "Policy app"); none.WithPolicy(p).Cycle(app()) == nil ||
		none.Without(app()).Policy("shop", "app") != nil {
		t.Error("no graph can have something added")
	}
}

// chainOf returns a chain p0 -> p1 -> ... -> p<n>, where the last does not exist.
func chainOf(n int) []*Policy {
	policies := make([]*Policy, n)
	for i := range policies {
		next := PolicyRef("shop", fmt.Sprint("p", i+1))
		policies[i] = &Policy{Namespace: "shop", Name: fmt.Sprint("p", i), Templates: []Template{{
			Name: "t", Ref: Ref{PolicyGroup, "ConfigurationPolicy", "shop", fmt.Sprint("t", i)}, Readable: true,
			Dependencies: []*Dependency{{Ref: next, Want: Compliant, Path: "spec.dependencies[0]"}},
		}}}
	}
	return policies
}

// TestLongCycle: cycles of any length are found, and their messages are bounded.
func TestLongCycle(t *testing.T) {
	const n = 10_000
	policies := chainOf(n)
	g := newGraph(policies, nil)
	if c := g.Cycle(PolicyRef("shop", "p0")); c != nil {
		t.Fatal("it is open")
	}
	last := *policies[n-1]
	last.Templates = slices.Clone(last.Templates)
	last.Templates[0].Dependencies = []*Dependency{{Ref: PolicyRef("shop", "p0")}}
	closed := g.WithPolicy(&last)
	if c := closed.PolicyCycle("shop", "p5"); len(c) != n+1 {
		t.Fatalf("%d steps, want %d", len(c), n+1)
	}
	want := "Policy shop/p0 -> Policy shop/p1 -> Policy shop/p2 -> Policy shop/p3 -> Policy shop/p4 -> ... (9991 more) ... -> " +
		"Policy shop/p9996 -> Policy shop/p9997 -> Policy shop/p9998 -> Policy shop/p9999 -> Policy shop/p0"
	if got := ChainText(closed.Cycle(PolicyRef("shop", "p0"))); got != want {
		t.Errorf("got %s", got)
	}
	// The templates alone form a cycle of that length, too.
	ignoring := make([]*Policy, n)
	for i := range ignoring {
		p := *policies[i]
		p.Templates = []Template{{Name: "t", Ref: p.Templates[0].Ref, Readable: true, IgnorePending: true,
			Dependencies: []*Dependency{{Ref: policies[(i+1)%n].Templates[0].Ref}}}}
		ignoring[i] = &p
	}
	if c := newGraph(ignoring, nil).PolicyCycle("shop", "p7"); len(c) != n+1 {
		t.Errorf("%d steps, want %d", len(c), n+1)
	}
	if g.Cycle(PolicyRef("shop", "p0")) != nil {
		t.Error("the first graph has changed")
	}
}

func TestChainText(t *testing.T) {
	for n, want := range map[int]string{
		0:  "",
		2:  "Policy shop/p0 -> Policy shop/p1",
		10: "Policy shop/p0 -> Policy shop/p1 -> Policy shop/p2 -> Policy shop/p3 -> Policy shop/p4 -> Policy shop/p5 -> Policy shop/p6 -> Policy shop/p7 -> Policy shop/p8 -> Policy shop/p9",
		11: "Policy shop/p0 -> Policy shop/p1 -> Policy shop/p2 -> Policy shop/p3 -> Policy shop/p4 -> ... (1 more) ... -> Policy shop/p6 -> Policy shop/p7 -> Policy shop/p8 -> Policy shop/p9 -> Policy shop/p10",
	} {
		var refs []Ref
		for i := range n {
			refs = append(refs, PolicyRef("shop", fmt.Sprint("p", i)))
		}
		if got := ChainText(refs); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// generated returns a random graph of a few Policies and PolicySets, densely enough for cycles of all kinds.
func generated(r *rand.Rand) ([]*Policy, []*Set) {
	n := 2 + r.IntN(6)
	edges := r.IntN(3)
	name := func() string { return fmt.Sprint("p", r.IntN(n+1)) }
	deps := func() []*Dependency {
		var list []*Dependency
		for range r.IntN(edges + 1) {
			d := Dependency{Ref: PolicyRef("shop", name()), Want: Compliant}
			switch r.IntN(4) {
			case 0:
				d.Ref = SetRef("shop", fmt.Sprint("s", r.IntN(3)))
			case 1:
				d.Ref = Ref{PolicyGroup, "ConfigurationPolicy", "shop", fmt.Sprint("t", r.IntN(2*n))}
			}
			list = append(list, &d)
		}
		return list
	}
	var policies []*Policy
	for i := range n {
		p := &Policy{Namespace: "shop", Name: fmt.Sprint("p", i), Disabled: r.IntN(8) == 0}
		for j := range r.IntN(3) {
			p.Templates = append(p.Templates,
				Template{Index: j, Ref: Ref{PolicyGroup, "ConfigurationPolicy", "shop", fmt.Sprint("t", r.IntN(2*n))},
					Readable: r.IntN(10) > 0, IgnorePending: r.IntN(4) == 0, Dependencies: deps()})
		}
		policies = append(policies, p)
	}
	var sets []*Set
	for i := range r.IntN(3) {
		s := &Set{Namespace: "shop", Name: fmt.Sprint("s", i)}
		for range r.IntN(3) {
			s.Policies = append(s.Policies, name())
		}
		sets = append(sets, s)
	}
	return policies, sets
}

// distances returns the minimum number of steps between all objects (Floyd-Warshall), with edges derived independently
// of the graph.
func distances(policies []*Policy, sets []*Set) map[Ref]map[Ref]int {
	dist := map[Ref]map[Ref]int{}
	edge := func(from, to Ref) {
		for _, r := range []Ref{from, to} {
			if dist[r] == nil {
				dist[r] = map[Ref]int{}
			}
		}
		dist[from][to] = 1
	}
	for _, p := range policies {
		for _, tm := range p.Templates {
			for _, d := range tm.Dependencies {
				if !p.Disabled && !tm.IgnorePending {
					edge(p.Ref(), d.Ref)
				}
				if !p.Disabled && tm.Readable {
					edge(tm.Ref, d.Ref)
				}
			}
		}
	}
	for _, s := range sets {
		for _, name := range s.Policies {
			edge(s.Ref(), PolicyRef(s.Namespace, name))
		}
	}
	for k := range dist {
		for i := range dist {
			for j := range dist {
				ik, ok := dist[i][k]
				kj, ok2 := dist[k][j]
				if ij, ok3 := dist[i][j]; ok && ok2 && (!ok3 || ik+kj < ij) {
					dist[i][j] = ik + kj
				}
			}
		}
	}
	return dist
}

// TestCyclesOfGeneratedGraphs: a cycle is found exactly if there is one, it follows dependencies, and there is no
// shorter one.
func TestCyclesOfGeneratedGraphs(t *testing.T) {
	runs := cases.Of(3_000)
	found := map[string]int{}
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		policies, sets := generated(r)
		g := newGraph(policies, sets)
		dist := distances(policies, sets)
		from := []Ref{}
		for _, p := range policies {
			from = append(from, p.Ref())
			for _, tm := range p.Templates {
				from = append(from, tm.Ref)
			}
		}
		for _, s := range sets {
			from = append(from, s.Ref())
		}
		for _, at := range from {
			cycle := g.Cycle(at)
			want, there := dist[at][at]
			if there != (cycle != nil) || there && len(cycle) != want+1 {
				t.Fatalf("seed %d: from %s %v, want length %d", seed, at, cycle, want)
			}
			checkWay(t, g, at, cycle)
			found[fmt.Sprint(at.Kind, there)]++
		}
		for _, p := range policies {
			cycle := g.PolicyCycle(p.Namespace, p.Name)
			_, there := dist[p.Ref()][p.Ref()]
			for _, tm := range p.Templates {
				_, own := dist[tm.Ref][tm.Ref]
				there = there || own && tm.Readable && !p.Disabled && len(tm.Dependencies) > 0
			}
			if there != (cycle != nil) {
				t.Fatalf("seed %d: %s and its templates: %v, want a cycle: %t", seed, p.Ref(), cycle, there)
			}
			if cycle != nil {
				checkWay(t, g, cycle[0], cycle)
			}
		}
	}
	for _, kind := range []string{"Policy", "PolicySet", "ConfigurationPolicy"} {
		if found[kind+"true"] < runs/100 || found[kind+"false"] < runs/100 {
			t.Errorf("the graphs are one-sided: %v", found)
		}
	}
}

func checkWay(t *testing.T, g *Graph, at Ref, cycle []Ref) {
	t.Helper()
	if cycle == nil {
		return
	}
	if cycle[0] != at || cycle[len(cycle)-1] != at {
		t.Errorf("%v does not begin and end at %s", cycle, at)
	}
	for i := range cycle[1:] {
		if !slices.Contains(g.dependenciesOf(cycle[i]), cycle[i+1]) {
			t.Errorf("%s does not wait for %s", cycle[i], cycle[i+1])
		}
	}
}

// TestGraphOfManyChanges: a graph built step by step equals one that is built at once, and earlier graphs do not
// change.
func TestGraphOfManyChanges(t *testing.T) {
	const names = 64
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		var g *Graph
		policies, sets := map[string]*Policy{}, map[string]*Set{}
		first := g.WithPolicy(waiting(t, "p0", "Policy p0"))
		for range 160 {
			made, madeSets := generated(r)
			p := made[r.IntN(len(made))]
			p.Name = fmt.Sprint("p", r.IntN(names))
			switch {
			case len(madeSets) > 0 && r.IntN(3) == 0:
				s := madeSets[0]
				g, sets[s.Name] = g.WithSet(s), s
			case r.IntN(3) == 0:
				g = g.Without(p.Ref())
				delete(policies, p.Name)
			case r.IntN(10) == 0:
				g = g.Without(SetRef("shop", "s0"))
				delete(sets, "s0")
			default:
				g, policies[p.Name] = g.WithPolicy(p), p
			}
			want := newGraph(slices.Collect(maps.Values(policies)), slices.Collect(maps.Values(sets)))
			for i := range names {
				for _, at := range []Ref{PolicyRef("shop", fmt.Sprint("p", i)), SetRef("shop", fmt.Sprint("s", i%3)),
					{PolicyGroup, "ConfigurationPolicy", "shop", fmt.Sprint("t", i%16)}} {
					if diff := cmp.Diff(want.dependenciesOf(at), g.dependenciesOf(at)); diff != "" {
						t.Fatalf("seed %d, %s: %s", seed, at, diff)
					}
				}
				if name := fmt.Sprint("p", i); g.Policy("shop", name) != policies[name] {
					t.Fatalf("seed %d: Policy %s", seed, name)
				}
			}
			if g.Set("shop", "s0") != sets["s0"] {
				t.Fatalf("seed %d: PolicySet", seed)
			}
			if is, want := len(maps.Collect(g.producers.All())), len(maps.Collect(want.producers.All())); is != want {
				t.Fatalf("seed %d: templates of %d objects, want %d", seed, is, want)
			}
		}
		if c := first.Cycle(PolicyRef("shop", "p0")); len(c) != 2 {
			t.Error("the first graph has changed")
		}
	}
}

func TestReadSet(t *testing.T) {
	s := storedSet("all", "a", "", "b", "a")
	s.Status = policyv1beta1.PolicySetStatus{Compliant: "Pending", ObservedGeneration: 1}
	if got := ReadSet(s); !slices.Equal(got.Policies, []string{"a", "b"}) || got.State != Pending ||
		got.ObservedGeneration != 1 || got.Ref().String() != "PolicySet shop/all" {
		t.Errorf("%+v", got)
	}
	for observed, want := range map[int64]bool{0: false, 1: true, 2: false, 3: true} {
		s.Generation, s.Status.ObservedGeneration = 2, observed
		if got := ReadSet(s).Observed(); got.Stale() != want || got.State != Pending || !got.Found() {
			t.Errorf("generation %d was evaluated: %+v", observed, got)
		}
		p := Policy{Generation: 2, ObservedGeneration: observed, State: Pending}
		if got := p.Observed(); got.Stale() != want || got.State != Pending || !got.Found() {
			t.Errorf("generation %d was evaluated: %+v", observed, got)
		}
	}
}

// newGraph returns the graph of Policies and PolicySets, built at once.
func newGraph(policies []*Policy, sets []*Set) *Graph {
	e := (&Graph{}).edit()
	for _, p := range policies {
		e.set(p.Ref(), node{policy: p})
	}
	for _, s := range sets {
		e.set(s.Ref(), node{set: s})
	}
	return e.graph()
}
