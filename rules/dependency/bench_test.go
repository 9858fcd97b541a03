package dependency

import (
	"fmt"
	"testing"
)

// BenchmarkRead reads a Policy of a typical size, and one with a template of a megabyte.
func BenchmarkRead(b *testing.B) {
	usual := stored(b, spec([]string{on("Policy a"), on("Policy b")}, template("one", on("Policy c")), template("two"),
		template("three")))
	large := stored(b, spec([]string{on("Policy a")}, template("one")))
	large.Spec.PolicyTemplates[0].ObjectDefinition.Raw = fmt.Appendf(nil,
		`{"apiVersion":"a/v1","kind":"K","metadata":{"name":"x"},"data":{"text":"%01048576d"}}`, 0)
	b.Run("usual", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Read(usual)
		}
	})
	b.Run("large", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p := Read(large); p.Templates[0].Fault != "" {
				b.Fatal(p.Templates[0].Fault)
			}
		}
	})
}

// BenchmarkCycle judges one more Policy at the end of a chain, as admission does.
func BenchmarkCycle(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		g := NewGraph(chainOf(n), nil)
		more := waiting(b, "more", "Policy p0")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c := g.WithPolicy(more).PolicyCycle("shop", "more"); c != nil {
					b.Fatal(c)
				}
			}
		})
	}
}

// BenchmarkWithPolicy applies one change to a graph of many Policies.
func BenchmarkWithPolicy(b *testing.B) {
	policies := chainOf(10_000)
	g := NewGraph(policies, nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		g = g.WithPolicy(policies[i%len(policies)])
	}
}

// BenchmarkChain formats what a Policy at the head of a chain waits for.
func BenchmarkChain(b *testing.B) {
	g := NewGraph(chainOf(10_000), nil)
	b.ReportAllocs()
	for b.Loop() {
		g.Chain(PolicyRef("shop", "p0"), "t")
	}
}

// BenchmarkDecide is the cost of a change of one dependency, without requests: results, decision and status.
func BenchmarkDecide(b *testing.B) {
	policy := stored(b, spec([]string{on("Policy a"), on("Policy b")}, template("one", on("Policy c")), template("two"),
		template("three")))
	p := Read(policy)
	observed := Observed{State: Pending}
	b.ReportAllocs()
	for b.Loop() {
		in := StatusInput{Policy: policy, Read: p, Now: noon}
		for i := range p.Templates {
			tm := &p.Templates[i]
			var results []Result
			for _, d := range tm.Dependencies {
				results = append(results, Evaluate(*d, observed))
			}
			in.Outcomes = append(in.Outcomes, Decide(TemplateInput{Template: *tm, Results: results}))
		}
		policy.Status, _ = NextStatus(in)
	}
}
