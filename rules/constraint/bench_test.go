package constraint

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/cel-go/cel"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
)

// usual are typical rules.
var usual = map[string]string{
	"exists":  `properties.exists(p, p.type == "certified")`,
	"version": `properties.exists(p, p.type == "olm.package" && semver_compare(p.value.version, "0.9.0") >= 0)`,
	"tenant":  `namespaceObject.metadata.labels["tier"] != "tenant" || catalog.name == "curated"`,
	"gvk":     `!properties.exists(p, p.type == "olm.gvk" && p.value.group.endsWith(".example.com"))`,
	"regex":   `properties.all(p, p.type.matches("^[a-z]+([.][a-zA-Z]+)*$"))`,
}

// five is a bundle with five properties.
func five() *Bundle {
	return etcd("certified", "true", "olm.label", `{"label":"secured"}`, "olm.maxOpenShiftVersion", `"4.19"`)
}

// bareInput is the input of a plain cel-go program, as in OLM's resolver: maps.
func bareInput(b *Bundle) map[string]any {
	list := make([]map[string]any, len(b.Properties))
	for i, p := range b.Properties {
		var v any
		if err := json.Unmarshal(p.Raw, &v); err != nil {
			panic(err)
		}
		list[i] = map[string]any{"type": p.Type, "value": v}
	}
	return map[string]any{
		varProperties: list, varPackage: b.Package, varCSV: b.Name, varVersion: b.Version, varChannel: b.Channel,
		varCatalog:   map[string]string{"name": b.Catalog.Name, "namespace": b.Catalog.Namespace},
		varNamespace: map[string]any{"metadata": map[string]any{"name": shop.Name, "labels": shop.Labels}},
		varCluster:   map[string]any{"version": "1.36.3", "openshift": "", "properties": []map[string]any{}},
	}
}

// bare is the baseline: the same expression in the same environment as a plain, optimized program of cel-go, without
// limits.
func bare(b *testing.B, rule string) cel.Program {
	b.Helper()
	env, err := vocabularies[OnBundle].environment()
	if err != nil {
		b.Fatal(err)
	}
	ast, issues := env.Compile(rule)
	if issues.Err() != nil {
		b.Fatal(issues.Err())
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		b.Fatal(err)
	}
	return program
}

// per returns the time of one call of a function: the fastest of some rounds, so that other load on the machine affects
// the baseline and the measurement alike.
func per(f func()) time.Duration {
	const rounds, calls = 20, 500
	best := time.Duration(1 << 62)
	for range rounds {
		start := time.Now()
		for range calls {
			f()
		}
		best = min(best, time.Since(start)/calls)
	}
	return best
}

// BenchmarkRule compares one evaluation, with estimate, budget and interruption, with bare cel-go on the same rule. The
// documented ratio is at most 1.3.
func BenchmarkRule(b *testing.B) {
	bundle := five()
	s := NewSet(nil, kubeOne)
	around := s.around.in(shop)
	for name, rule := range usual {
		b.Run(name, func(b *testing.B) {
			floor, input := bare(b, rule), bareInput(bundle)
			program, err := compileCached(rule, OnBundle, false)
			if err != nil {
				b.Fatal(err)
			}
			a, budget := newActivation(bundle, &around), NewBudget(make(chan struct{}))
			floorTime := per(func() { _, _, _ = floor.Eval(input) })
			ours := per(func() { budget.spent.Store(0); program.eval(a, budget) })
			b.ReportAllocs()
			for b.Loop() {
				budget.spent.Store(0)
				if r := program.eval(a, budget); r.value == nil {
					b.Fatal(r.why)
				}
			}
			b.ReportMetric(float64(floorTime.Nanoseconds()), "floor-ns/op")
			b.ReportMetric(float64(ours)/float64(floorTime), "x-floor")
		})
	}
}

// plan returns 100 constraints and 20 bundles.
func plan(b *testing.B) ([]*Definition, []string, []*Bundle) {
	b.Helper()
	var definitions []*Definition
	var rules []string
	for i := range 100 {
		rule := fmt.Sprintf(`properties.exists(p, p.type == "certified") || channel == "channel-%d"`, i)
		rules = append(rules, rule)
		definitions = append(definitions, sound(b, fmt.Sprintf("constraint-%03d", i), seed(rule), ""))
	}
	var bundles []*Bundle
	for i := range 20 {
		bundle := five()
		bundle.Name = fmt.Sprintf("bundle-%d.v1.0.0", i)
		bundles = append(bundles, bundle)
	}
	return definitions, rules, bundles
}

// BenchmarkPlan judges 20 bundles by 100 constraints, as the approval of one plan does: the first time, again
// (documented as less than a millisecond), and on bare cel-go, the baseline, with prepared inputs.
func BenchmarkPlan(b *testing.B) {
	definitions, rules, bundles := plan(b)
	judge := func(b *testing.B, s *Set) {
		budget := NewBudget(make(chan struct{}))
		for _, bundle := range bundles {
			if found := s.Judge(bundle, shop, budget); len(found) != 0 {
				b.Fatal(found[0].Why)
			}
		}
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			judge(b, NewSet(definitions, kubeOne))
		}
	})
	b.Run("again", func(b *testing.B) {
		s := NewSet(definitions, kubeOne)
		judge(b, s)
		b.ReportAllocs()
		for b.Loop() {
			judge(b, s)
		}
	})
	b.Run("floor", func(b *testing.B) {
		var programs []cel.Program
		for _, rule := range rules {
			programs = append(programs, bare(b, rule))
		}
		var inputs []map[string]any
		for _, bundle := range bundles {
			inputs = append(inputs, bareInput(bundle))
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, input := range inputs {
				for _, program := range programs {
					if _, _, err := program.Eval(input); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	})
}

// expensive are rules just within the limit, with different kinds of work.
var expensive = []string{
	`properties.all(a, properties.all(b, properties.size() == 0 || a.type != b.type || [1, 2, 3].all(x, [1, 2, 3].all(y, x != y || true))))`,
	`properties.all(a, lists.range(150).all(b, semver_compare(a.value.text, "1.2.3") != 7 || true))`,
	`properties.all(a, lists.range(160).all(b, semver_compare(a.value.version, "1.2.3-alpha.1.2.3.4") != 7))`,
	`properties.all(a, lists.range(10).all(b, a.value.text.matches("^(a*)*b$") || true))`,
	`properties.all(a, a.value.text.matches("([ab]?){20}[ab]{20}x") || true)`,
	`properties.all(a, lists.range(9000).size() > 0) && lists.range(9000).all(x, x >= 0)`,
	`properties.all(a, lists.range(30).all(b, a.value.text.reverse() != ""))`,
	`properties.all(a, lists.range(200).all(b, strings.quote(a.type) != ""))`,
	`properties.all(a, lists.range(25).all(b, a.value.text.split("").size() > 0))`,
	`properties.all(a, lists.range(100).all(b, has(a.value.x.y) || a.value.x.y == 3 || true))`,
	`properties.all(a, lists.range(500).all(b, math.greatest([1.0, 2.0, 3.0]) > 0.0))`,
	`properties.all(a, lists.range(200).all(b, {"a": b, "b": b}.size() == 2))`,
	`properties.all(a, lists.range(400).all(b, string(1.0e300 * double(b)) != ""))`,
	`lists.range(600).map(x, 600 - x).sort().size() > 0`,
	`lists.range(900).distinct().size() > 0`,
}

// BenchmarkWorst judges by rules close to the limits, on bundles of the hinted size and larger ones. The documented
// maximum is 100 milliseconds for each; it reports the slowest.
func BenchmarkWorst(b *testing.B) {
	rules := slices.Clone(expensive)
	for _, rule := range largeRules {
		rules = append(rules, rule)
	}
	for _, n := range []int{64, 300, 3000} {
		b.Run(fmt.Sprintf("properties=%d", n), func(b *testing.B) {
			bundle := crowdOf(n)
			if n > 64 {
				bundle.Properties[0].Raw = []byte(
					jsonText(map[string]any{"text": jsonText(make([]int, 7000)), "items": make([]int, 4000),
						"version": "1.0.0", "n": 1}))
			}
			var slowest time.Duration
			for b.Loop() {
				for _, rule := range rules {
					d := Define(Meta{Name: "worst"}, &constraintv1.ConstraintSpec{Constraints: seed(rule)})
					if d.fault() != nil {
						continue
					}
					s := NewSet([]*Definition{d}, kubeOne)
					start := time.Now()
					s.Judge(bundle, shop, nil)
					slowest = max(slowest, time.Since(start))
				}
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
		})
	}
}

// BenchmarkRequestLimit uses up a request's budget: the documented maximum is one second.
func BenchmarkRequestLimit(b *testing.B) {
	var definitions []*Definition
	for _, rule := range expensive {
		for i := range 10 {
			d := Define(Meta{Name: "worst"},
				&constraintv1.ConstraintSpec{Constraints: seed(fmt.Sprintf("%s || %d == 0", rule, i+1))})
			if d.fault() == nil {
				definitions = append(definitions, d)
			}
		}
	}
	bundle := crowdOf(64)
	var slowest time.Duration
	for b.Loop() {
		s, budget := NewSet(definitions, kubeOne), NewBudget(nil)
		start := time.Now()
		s.Judge(bundle, shop, budget)
		slowest = max(slowest, time.Since(start))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}

// BenchmarkDefine is a write of a Constraint with a new rule.
func BenchmarkDefine(b *testing.B) {
	i := 0
	for b.Loop() {
		i++
		if d := Define(Meta{Name: "one"},
			&constraintv1.ConstraintSpec{Constraints: seed(fmt.Sprintf(`properties.exists(p, p.type == "certified-%d")`,
				i))}); len(d.Faults) != 0 {
			b.Fatal(d.Faults)
		}
	}
}
