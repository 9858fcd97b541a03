package constraint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/cputime"
)

// hostileRules try to delay a request.
var hostileRules = map[string]string{
	"three nested loops":            `properties.all(a, properties.all(b, properties.all(c, a.type != b.type || b.type != c.type || true)))`,
	"47 s in OLM's environment":     `properties.all(a, properties.all(b, properties.all(c, a.type + b.type + c.type != "")))`,
	"a range of a thousand million": `lists.range(1000000000).size() > 0`,
	"a computed range":              `lists.range(properties.size() * 1000000).size() >= 0`,
	"nested ranges":                 `lists.range(10000).all(a, lists.range(10000).all(b, true))`,
	"repetition in a pattern":       `properties.all(p, p.type.matches("(a{1000}){1000}"))`,
	"many repetitions":              `properties.all(p, p.type.matches("a{1000}b{1000}c{1000}d{1000}"))`,
	"a pattern of many states":      `properties.all(p, p.value.matches("(` + strings.Repeat("(a?){9}", 40) + `)+b"))`,
	"a computed pattern":            `properties.all(p, p.type.matches(p.type))`,
	"doubling by replace": `properties.all(p, p.type` + strings.Repeat(`.replace("a", "aa")`, 30) +
		`.size() >= 0)`,
	"squaring by replace": `[csv].map(s, s.replace("", s)).map(s, s.replace("", s)).map(s, s.replace("", s)).all(s, s.size() > 0)`,
	"doubling by format": `[csv]` + strings.Repeat(`.map(s, "%s%s".format([s, s]))`, 30) +
		`.all(s, s.size() > 0)`,
	"doubling by addition": `[csv]` + strings.Repeat(`.map(s, s + s)`, 30) + `.all(s, s.size() > 0)`,
	"doubling by join":     `[csv]` + strings.Repeat(`.map(s, [s, s].join(""))`, 30) + `.all(s, s.size() > 0)`,
	"a list that doubles":  `[[1]]` + strings.Repeat(`.map(l, l + l)`, 30) + `.all(l, l.size() > 0)`,
	"a value that shares its parts": `[dyn(1)]` + strings.Repeat(`.map(l, dyn([l, l]))`, 20) +
		`.exists(l, [l].exists(m, m == l))`,
	"a shared value printed": `[dyn(1)]` + strings.Repeat(`.map(l, dyn([l, l]))`, 20) +
		`.all(l, "%s".format([l]) != "")`,
	"deep comparison in loops": `properties.all(a, properties.all(b, cluster.properties.all(c, a == b && b == c)))`,
	"all of all":               `properties.all(p, sets.contains(properties, properties)) && properties.all(p, properties.distinct() == properties.distinct())`,
	"sorting a range":          `lists.range(10000).all(x, lists.range(10000).map(y, 10000 - y).sort().size() > 0)`,
	"posing as a variable":     `{"properties": lists.range(10000)}.properties.all(a, {"properties": lists.range(10000)}.properties.all(b, true))`,
	"nested parentheses":       strings.Repeat("(", 4900) + "true" + strings.Repeat(")", 4900),
	"nested lists":             strings.Repeat("[", 4900) + "1" + strings.Repeat("]", 4900) + " == []",
	"nested macros":            strings.Repeat("[1].all(x, ", 400) + "true" + strings.Repeat(")", 400),
	"long chain":               "true" + strings.Repeat(" || true", 1200),
	"long":                     `"` + strings.Repeat("x", maxRuleBytes) + `" != ""`,
}

// TestHostileRulesAreRefused: what the estimate does not refuse ends at the limit, soon, whatever the bundle is.
func TestHostileRulesAreRefused(t *testing.T) {
	around := NewSet(nil, kubeOne).around.in(shop)
	for name, rule := range hostileRules {
		p, err := vocabularies[OnBundle].compile(rule, cel.BoolType)
		if err != nil {
			continue
		}
		for _, n := range []int{1, 64, 3000} {
			a, budget, start := newActivation(crowdOf(n), &around), NewBudget(nil), cputime.Used()
			r := p.eval(a, budget)
			if took := cputime.Used() - start; took > time.Second {
				t.Errorf("%s over %d properties took %s", name, n, took)
			}
			if r.value != nil && budget.Spent() > RuleCostLimit/10 || r.value == nil && !r.costly && r.limited {
				t.Errorf("%s over %d properties: %v %s, %d units", name, n, r.value, r.why, budget.Spent())
			}
		}
	}
	// A mebibyte is refused before it is parsed.
	if d := Define(Meta{}, &constraintv1.ConstraintSpec{Constraints: seed(strings.Repeat("(", 1<<20))}); len(
		d.Faults) != 1 || d.Faults[0].Kind != Size {
		t.Errorf("%+v", d.Faults)
	}
}

// TestExpensiveRulesAreAdmitted keeps the benchmark honest: its rules are close to the limit, and admitted.
func TestExpensiveRulesAreAdmitted(t *testing.T) {
	for _, rule := range expensive {
		if p, err := vocabularies[OnBundle].compile(rule, cel.BoolType); err != nil {
			t.Errorf("%s: %s", rule, err)
		} else {
			t.Logf("%7d units: %s", p.estimate, rule)
		}
	}
}

// largeRules are admitted for bundles of the hinted size, and would cost too much for larger ones.
var largeRules = map[string]string{
	"two nested loops":   `properties.all(a, properties.all(b, a.type == b.type || a.value.text != b.value.text || true))`,
	"distinct":           `properties.map(b, b.type).sort().size() > 0 && properties.map(b, b.value.text).distinct().size() > 0`,
	"deep comparison":    `properties.all(a, properties.exists(b, a == b))`,
	"regular expression": `properties.all(a, a.value.text.matches("([ab]?){20}[ab]{20}x") || true)`,
}

// largestCall is the maximum cost that one step of an evaluation adds: a pattern on the longest text.
const largestCall = maxSeenText * (4 + maxRegexInstructions) / 4

// TestLargeBundlesAreCutOff: the cost of a rule depends on the bundle. Every evaluation ends within the limits, or does
// not start.
func TestLargeBundlesAreCutOff(t *testing.T) {
	for name, rule := range largeRules {
		for _, n := range []int{64, 300, 3000} {
			b := crowdOf(n)
			if n > 64 {
				b.Properties[0].Raw = []byte(
					jsonText(map[string]any{"text": strings.Repeat("a", 15_000), "items": make([]int, 4000),
						"version": "1.0.0", "n": 1}))
			}
			set := NewSet([]*Definition{sound(t, "large", seed(rule), "")}, kubeOne)
			budget := NewBudget(nil)
			found := set.Judge(b, shop, budget)
			spent := budget.Spent()
			if spent > RuleCostLimit+largestCall {
				t.Errorf("%s over %d properties: %d units", name, n, spent)
			}
			if n == 64 && len(found) != 0 {
				t.Errorf("%s over %d properties: %s", name, n, found[0].Why)
			}
			if n == 3000 && (len(found) != 1 || found[0].Outcome != Failed ||
				!strings.Contains(found[0].Why, "costs more than the limit")) {
				t.Errorf("%s over %d properties: %+v", name, n, found)
			}
		}
	}
}

// TestBundleLimit: many rules together stay within the limit of a bundle, and what it cuts off is the same each time.
func TestBundleLimit(t *testing.T) {
	rules := make([]string, 200)
	for i := range rules {
		rules[i] = fmt.Sprintf(`properties.map(b, b.value.text).distinct().size() > %d`, -i-1)
	}
	s := NewSet([]*Definition{sound(t, "many", seed(rules...), "")}, kubeOne)
	budget := NewBudget(nil)
	found := s.Judge(crowdOf(120), shop, budget)
	if spent := budget.Spent(); spent > BundleCostLimit+RuleCostLimit {
		t.Errorf("spent %d", spent)
	}
	if len(found) == 0 || !strings.Contains(found[len(found)-1].Why, "the rules on this bundle together") {
		t.Fatalf("%d findings, spent %d", len(found), budget.Spent())
	}
	if again := NewBudget(nil); len(s.Judge(crowdOf(120), shop, again)) != len(found) || again.Spent() != 0 {
		t.Error("judged again")
	}
}

// TestHostileBundle: a bundle that makes rules costly holds itself alone, and not the 20 beside it in a request.
func TestHostileBundle(t *testing.T) {
	hostile := crowdOf(3000)
	var definitions []*Definition
	for i := range 20 {
		definitions = append(definitions, sound(t, fmt.Sprintf("loops-%d", i),
			seed(fmt.Sprintf(`properties.all(a, properties.all(b, a.type == b.type || %d < 0))`, i)), ""))
	}
	s, budget := NewSet(definitions, kubeOne), NewBudget(make(chan struct{}))
	found := s.Judge(hostile, shop, budget)
	if len(found) != len(definitions) || found[0].Outcome != Failed ||
		!strings.Contains(found[0].Why, "costs more than the limit") {
		t.Errorf("the hostile bundle: %+v", found)
	}
	if spent := budget.Spent(); spent > BundleCostLimit+RuleCostLimit {
		t.Errorf("spent %d", spent)
	}
	for i := range 20 {
		good := crowdOf(30)
		good.Name = fmt.Sprintf("good.v1.0.%d", i)
		if found := s.Judge(good, shop, budget); len(found) != 0 {
			t.Errorf("%s is held: %s", good.Name, found[0].Why)
		}
	}
	spent := budget.Spent()
	if s.Judge(hostile, shop, budget); budget.Spent() != spent {
		t.Error("the hostile bundle is judged again")
	}
}

func TestInterruption(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	s := NewSet([]*Definition{sound(t, "one", seed(`properties.all(a, properties.all(b, true))`), "")}, kubeOne)
	found := s.Judge(crowdOf(60), shop, NewBudget(closed))
	if len(found) != 1 || found[0].Outcome != Failed || found[0].Why != whyInterrupted {
		t.Errorf("%+v", found)
	}
	if found := s.Judge(crowdOf(60), shop, NewBudget(make(chan struct{}))); len(found) != 0 {
		t.Errorf("remembered the interruption: %+v", found)
	}
	// In the middle of a loop: the program checks the channel, not only the caller.
	p, err := vocabularies[OnBundle].compile(`properties.all(a, properties.all(b, true))`, cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	around := s.around.in(shop)
	a := newActivation(crowdOf(60), &around)
	_, _, err = p.program.ContextEval(NewBudget(closed).interrupt, a)
	if r := p.read(nil, err, a, NewBudget(nil)); r.why != whyInterrupted || !r.transient {
		t.Errorf("%+v", r)
	}
}
