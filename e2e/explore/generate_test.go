package explore

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/opgate/opgate/e2e/olm"
)

// generate returns the script of a seed: so many actions, of those that make sense after the ones before if these were
// accepted.
func generate(seed uint64, length int) []action {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), state: state{}}
	g.add(action{verb: apply, kind: catalogSource, name: catalogName})
	for len(g.actions) < length-1 {
		g.add(g.next())
	}
	g.add(action{verb: await})
	return g.actions
}

type generator struct {
	*rand.Rand
	state   state
	actions []action
	waited  int // the number of actions up to the last wait
}

func (g *generator) add(a action) {
	g.actions = append(g.actions, a)
	g.state = g.state.after(a)
	if a.verb == await {
		g.waited = len(g.actions)
	}
}

// pick returns one of some values at random.
func pick[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

// often returns true in so many of a hundred cases.
func (g *generator) often(percent int) bool { return g.IntN(100) < percent }

// next returns the next action.
func (g *generator) next() action {
	since := len(g.actions) - g.waited
	_, catalog := g.state[catalogSource+"/"+catalogName]
	switch {
	case since >= 4, since >= 2 && g.often(40):
		return action{verb: await}
	case !catalog && g.often(60):
		return action{verb: apply, kind: catalogSource, name: catalogName}
	}
	switch n := g.IntN(100); {
	case n < 40:
		return g.policy()
	case n < 58:
		return g.subscription()
	case n < 66 && len(g.state.all(operatorGroup)) == 0:
		return action{verb: apply, kind: operatorGroup, name: groupName}
	case n < 72:
		return action{verb: approve}
	case n < 78:
		forbids := csvPrefix + pick(g, graph.Versions...)
		return action{verb: apply, kind: constraint, name: "c", fields: fields{"forbids": forbids}}
	case n < 81:
		return action{verb: restart, kind: pick(g, "olm", "opgate")}
	case n < 84 && len(g.state.all(operatorPolicy)) > 0:
		f := g.policyFields()
		f["after"] = pick(g, g.names(operatorPolicy)...)
		return action{verb: apply, kind: policy, name: "p", fields: f}
	}
	return g.deletion()
}

// deletion deletes any object.
func (g *generator) deletion() action {
	if len(g.state) == 0 {
		return g.policy()
	}
	kind, name, _ := strings.Cut(pick(g, slices.Sorted(maps.Keys(g.state))...), "/")
	if kind == catalogSource && g.often(60) {
		return g.policy()
	}
	return action{verb: remove, kind: kind, name: name}
}

// names are those of the objects of a kind.
func (g *generator) names(kind string) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(g.state)) {
		if name, ok := strings.CutPrefix(key, kind+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// policy creates an OperatorPolicy, or changes one field of one that exists. A second one is rare.
func (g *generator) policy() action {
	if g.often(15) {
		return g.neighbour()
	}
	names := slices.DeleteFunc(g.names(operatorPolicy), func(n string) bool { return n == neighbour })
	if len(names) == 0 || len(names) == 1 && g.often(10) {
		name := pick(g, slices.DeleteFunc([]string{"a", "b"},
			func(n string) bool { return slices.Contains(names, n) })...)
		return action{verb: apply, kind: operatorPolicy, name: name, fields: g.policyFields()}
	}
	name := pick(g, names...)
	before := g.state[operatorPolicy+"/"+name]
	for {
		f, fresh := maps.Clone(before), g.policyFields()
		field := pick(g, "complianceType", "versions", "versions", "channel", "startingCSV", "upgradeApproval",
			"remediationAction", "namespace", "upgradeStrategy")
		if delete(f, field); fresh[field] != "" {
			f[field] = fresh[field]
		}
		if !maps.Equal(f, before) {
			return action{verb: apply, kind: operatorPolicy, name: name, fields: f}
		}
	}
}

// neighbour is the policy of another package, which names the same OperatorGroup.
const neighbour = "neighbour"

func (g *generator) neighbour() action {
	f := fields{"complianceType": musthave, "package": other.Name, "channel": olm.Channel}
	g.group(f)
	return action{verb: apply, kind: operatorPolicy, name: neighbour, fields: f}
}

// group chooses the namespace of a policy, and what it sets of the OperatorGroup.
func (g *generator) group(f fields) {
	if g.often(20) {
		f["namespace"] = "second"
	}
	if g.often(50) {
		f["upgradeStrategy"] = pick(g, "Default", "TechPreviewUnsafeFailForward")
	}
}

func (g *generator) policyFields() fields {
	f := fields{"complianceType": pick(g, musthave, musthave, musthave, mayhave, mustnothave), "channel": g.channel()}
	if g.often(70) {
		f["versions"] = g.versions()
	}
	if g.often(30) {
		f["startingCSV"] = csvPrefix + pick(g, graph.Channels[f["channel"]]...)
	}
	if g.often(25) {
		f["upgradeApproval"] = "None"
	}
	if g.often(12) {
		f["remediationAction"] = "inform"
	}
	g.group(f)
	return f
}

func (g *generator) channel() string { return pick(g, "stable", "stable", "candidate", "old") }

// versions are some of the package.
func (g *generator) versions() string {
	var some []string
	for _, v := range graph.Versions {
		if g.often(50) {
			some = append(some, csvPrefix+v)
		}
	}
	if some == nil {
		return csvPrefix + pick(g, graph.Versions...)
	}
	return strings.Join(some, ",")
}

func (g *generator) subscription() action {
	f := fields{"channel": g.channel(), "installPlanApproval": pick(g, "Automatic", "Automatic", "Manual")}
	if g.state[subscription+"/"+packageName] != nil && g.often(30) {
		f = fields{"installPlanApproval": f["installPlanApproval"]}
		return action{verb: patch, kind: subscription, name: packageName, fields: f}
	}
	if g.often(30) {
		f["startingCSV"] = csvPrefix + pick(g, graph.Channels[f["channel"]]...)
	}
	if g.often(20) {
		f["installPlanApproval"], f["requested"] = "Manual", "Manual"
		if len(g.state.all(constraint)) > 0 { // else it is made Automatic, perhaps while OLM makes a plan that is Manual
			f["requested"] = pick(g, "Automatic", "Manual")
		}
	}
	return action{verb: apply, kind: subscription, name: packageName, fields: f}
}
