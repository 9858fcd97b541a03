package explore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgate/opgate/e2e/olm"
)

// Values of complianceType.
const (
	musthave    = "musthave"
	mayhave     = "mayhave"
	mustnothave = "mustnothave"
)

const (
	catalogName = "explored-catalog"
	packageName = "alpha"
	csvPrefix   = packageName + ".v"
	// groupName is the OperatorGroup that all policies with musthave name.
	groupName = "team"
)

// other is a package whose policy shares the OperatorGroup, and which no policy restricts.
var other = olm.Package{Name: "beta", CSV: "beta", Versions: []string{"1.0.0"}}

// graph is the package that walks are about: the entries of its channels, oldest first, each of which replaces the one before.
var graph = olm.Package{
	Name: packageName, CSV: packageName, Versions: []string{"1.0.0", "1.1.0", "1.2.0", "2.0.0"},
	Channels: map[string][]string{
		"stable":    {"1.0.0", "1.1.0", "1.2.0"},
		"candidate": {"1.1.0", "1.2.0", "2.0.0"},
		"old":       {"1.0.0", "1.1.0"},
	},
	DefaultChannel: "stable",
}

// state is what users have written, by key.
type state map[string]fields

// after returns the state after an accepted action.
func (s state) after(a action) state {
	next := maps.Clone(s)
	switch a.verb {
	case apply:
		if next[a.key()] = a.fields; a.fields == nil {
			next[a.key()] = fields{}
		}
	case remove:
		delete(next, a.key())
	case patch: // a write of the stored value looks like any other
		if f := maps.Clone(next[a.key()]); f != nil && a.fields["stored"] != a.fields["installPlanApproval"] {
			f["installPlanApproval"] = a.fields["installPlanApproval"]
			delete(f, "requested")
			next[a.key()] = f
		}
	}
	return next
}

// wish returns what a Subscription asks for: the annotation counts before the value of the same write.
func (f fields) wish() string { return cmp.Or(f["requested"], f["installPlanApproval"]) }

// all returns the objects of a kind in the order of their names.
func (s state) all(kind string) []fields {
	var found []fields
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if strings.HasPrefix(key, kind+"/") {
			found = append(found, s[key])
		}
	}
	return found
}

// enforced returns the policies about the package in the first namespace, or in the second, that do more than inform.
// Those of Policies count as well.
func (s state) enforced(second bool) []fields {
	return slices.DeleteFunc(append(s.all(operatorPolicy), s.all(policy)...), func(f fields) bool {
		return f["remediationAction"] == "inform" || (f["namespace"] == "second") != second || f["package"] != ""
	})
}

// installing returns the names of the OperatorPolicies of a namespace that write its OperatorGroup, and how many there are
// in all.
func (s state) installing(second bool) (names []string, all int) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		f, name := s[key], strings.TrimPrefix(key, operatorPolicy+"/")
		if name == key || (f["namespace"] == "second") != second {
			continue
		}
		if all++; f["complianceType"] == musthave && f["remediationAction"] != "inform" {
			names = append(names, name)
		}
	}
	return names, all
}

// forbidden returns what forbids a version, "" if nothing does.
func (s state) forbidden(csv string, second bool) string {
	for _, f := range s.enforced(second) {
		if f.lists(csv) == (f["complianceType"] == mustnothave) {
			return f["complianceType"] + " " + f["versions"]
		}
	}
	for _, f := range s.all(constraint) {
		if f["forbids"] == csv {
			return "Constraint"
		}
	}
	return ""
}

// lists reports whether a policy is about a version. That of startingCSV is allowed as well.
func (f fields) lists(csv string) bool {
	return f["versions"] == "" || slices.Contains(f.list("versions"), csv) ||
		f["complianceType"] != mustnothave && f["startingCSV"] == csv
}

// entries are the names of the ClusterServiceVersions of a channel, oldest first.
func entries(channel string) []string {
	var names []string
	for _, v := range graph.Channels[channel] {
		names = append(names, csvPrefix+v)
	}
	return names
}

// expectation is what a namespace should come to.
type expectation struct {
	// csv is what should be installed, "" for nothing.
	csv string
	// unknown is why the model predicts nothing. Then only what must never be is checked.
	unknown string
	// why is why nothing newer is installed: what the status of a policy has to name.
	why string
}

// expect returns what the first namespace, or the second, should come to where a version is installed, "" for none. It
// follows OLM step by step: each is the next entry of the channel, and needs that the policies allow it and that a user
// or a policy approves it.
func (s state) expect(installed string, second bool) expectation {
	policies := s.enforced(second)
	user, asked := s[subscription+"/"+packageName]
	asked = asked && !second
	groups := len(s.all(operatorGroup))
	if names, _ := s.installing(second); second || groups == 0 {
		groups = min(1, len(names)) // a policy creates it
	}
	switch {
	case len(policies) > 1:
		return expectation{csv: installed, unknown: "two policies: neither acts"}
	case len(s.all(policy)) > 0:
		return expectation{csv: installed, unknown: "a Policy waits for another"}
	case len(policies) == 0 && !asked:
		return expectation{csv: installed}
	case len(policies) == 1 && policies[0]["complianceType"] == mustnothave && installed != "" &&
		s.onlyConstraint(installed) != s.forbidden(installed, second):
		return expectation{}
	case s[catalogSource+"/"+catalogName] == nil:
		return expectation{csv: installed, why: catalogName}
	}
	channel, starting, upgrades := user["channel"], user["startingCSV"], user.wish() != "Manual"
	first := upgrades
	if len(policies) == 1 && policies[0]["complianceType"] == musthave {
		p := policies[0]
		if channel = p["channel"]; channel == "" {
			channel = graph.DefaultChannel
			if asked {
				channel = user["channel"]
			}
		}
		starting, first, upgrades = p["startingCSV"], true, p["upgradeApproval"] != "None"
		if starting == "" && !asked {
			starting = newest(entries(channel), func(csv string) bool { return s.forbidden(csv, second) == "" })
		}
		asked = true
	} else if len(policies) == 1 && policies[0]["complianceType"] == mayhave {
		upgrades = upgrades && policies[0]["upgradeApproval"] != "None"
	}
	switch {
	case !asked:
		return expectation{csv: installed}
	case groups != 1:
		return expectation{csv: installed, unknown: fmt.Sprintf("%d OperatorGroups", groups)}
	}
	return s.follow(installed, starting, entries(channel), first, upgrades, second)
}

// follow takes the steps of OLM.
func (s state) follow(installed, starting string, channel []string, first, upgrades, second bool) expectation {
	for {
		next, approved := "", upgrades
		switch at := slices.Index(channel, installed); {
		case installed == "" && starting != "":
			next, approved = starting, first
			if !slices.Contains(channel, starting) {
				return expectation{why: starting}
			}
		case installed == "":
			next, approved = channel[len(channel)-1], first
		case at >= 0 && at < len(channel)-1:
			next = channel[at+1]
		}
		if next == "" {
			return expectation{csv: installed}
		}
		if s.forbidden(next, second) != "" || !approved {
			return expectation{csv: installed, why: next}
		}
		installed = next
	}
}

// onlyConstraint returns what Constraints alone say of a version.
func (s state) onlyConstraint(csv string) string {
	only := state{}
	for key, f := range s {
		if strings.HasPrefix(key, constraint+"/") {
			only[key] = f
		}
	}
	return only.forbidden(csv, false)
}

// newest returns the last one that is allowed, "" for none.
func newest(csvs []string, allowed func(string) bool) string {
	for _, csv := range slices.Backward(csvs) {
		if allowed(csv) {
			return csv
		}
	}
	return ""
}
