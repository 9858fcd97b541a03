package mutation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// The environment of a test under a mutation: the mutant, and the file to which it adds a byte each time that its judge
// allows.
const (
	mutantVariable  = "OPGATE_MUTANT"
	reachedVariable = "OPGATE_MUTANT_REACHED"
)

// mutatedFile is added to package verdict, with the IDs of the rules that never refuse. If a mutation cannot be noted,
// the process ends without a failed test, which is an error.
const mutatedFile = `package verdict

import (
	"fmt"
	"os"
	"slices"
	"sync"
)

var warning = []RuleID{%s}

var mutant = RuleID(os.Getenv("` + mutantVariable + `"))

var reached = sync.OnceValues(func() (*os.File, error) {
	return os.OpenFile(os.Getenv("` + reachedVariable + `"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
})

// Mutated reports whether a judge allows instead, and notes that it was reached. The ID may be followed by a place.
func Mutated(id RuleID) bool {
	if id != mutant || id == "" {
		return false
	}
	file, err := reached()
	if err == nil {
		_, err = file.Write([]byte{'.'})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation not noted:", err)
		os.Exit(3)
	}
	return true
}

// MutatedWarning is Mutated for a rule that never refuses. The warnings of others stay: a test of one does not prove
// that the rule refuses.
func MutatedWarning(id RuleID) bool {
	return id == mutant && slices.Contains(warning, id) && Mutated(id)
}
`

// mutation inserts code into a file of the repository, after a text that the file has exactly once. Where a rule is
// recorded in several places, the ID is followed by the name of the place, and each is a mutant of its own.
type mutation struct {
	file, after, insert string
}

// overrideRefused is the place of each rule that sets refusals aside.
const overrideRefused = " refused"

// mutations are all the places where what a rule finds is recorded.
var mutations = []mutation{
	// What judges find, whether they are in a declared slice or not.
	{"rules/verdict/verdict.go", "func (v *Verdict) Refuse(r Reason) {", `if Mutated(r.Rule) { return }`},
	{"rules/verdict/verdict.go", "func (v *Verdict) Warn(r Reason) {", `if MutatedWarning(r.Rule) { return }`},
	// What the mutating webhook sets by a rule that never refuses.
	{"rules/operatorpolicy.go", "if filled == op.Spec.ComplianceConfig",
		` || verdict.Mutated(RuleOperatorPolicyNormalized)`},
	// Without this a plan in another phase would be judged by no other rule either.
	{"rules/plan.go", "if f := unfinished(j.Plan, len(j.Bundles)); !f.Silent()", ` && !verdict.Mutated(RulePlanPhase)`},
	// What the API server alone finds.
	{"rules/backstop/deletion.go", `"github.com/opgate/opgate/olm"`, `"github.com/opgate/opgate/rules/verdict"`},
	{"rules/backstop/deletion.go", "func (p *protected) row(others int) string {",
		`if verdict.Mutated("deletion/denied row") && p.action == "Deny" ||
			verdict.Mutated("deletion/unconfirmed row") && p.action == "Confirm" {
			return ""
		}
		`},
	// What the gate itself finds.
	{"admission/handler.go", "func notReady(kind string) verdict.Verdict {",
		`if verdict.Mutated("gate/not-ready start") { return verdict.Verdict{Object: kind} }`},
	{"admission/handler.go", "func stale(kind string, kinds []*snapshot.Kind) verdict.Verdict {",
		`if verdict.Mutated("gate/stale") { return verdict.Verdict{Object: kind} }`},
	{"admission/handler.go", "func late(kind string) verdict.Verdict {",
		`if verdict.Mutated("gate/not-ready late") { return verdict.Verdict{Object: kind} }`},
	{"admission/handler.go", "func unknownCaller(kind string) verdict.Verdict {",
		`if verdict.Mutated("gate/not-ready caller") { return verdict.Verdict{Object: kind} }`},
	{"admission/candidate.go", "if reason.Reason == olmidentity.Unverified",
		` && !verdict.Mutated("gate/not-ready identity")`},
	{"admission/handler.go", "func (e *endpoint[New, Old]) unreadable(cause error) *admissionv1.AdmissionResponse {",
		`if verdict.Mutated("gate/unreadable review") { return &admissionv1.AdmissionResponse{Allowed: true} }`},
	{"admission/gate.go", "func unreadable(kind string, err error) verdict.Verdict {",
		`if verdict.Mutated("gate/unreadable object") { return verdict.Verdict{Object: kind} }`},
	{"admission/gate.go", "func unexpected(kind string, operation, subresource string) verdict.Verdict {",
		`if verdict.Mutated("gate/unexpected") { return verdict.Verdict{Object: kind} }`},
	{"admission/candidate.go", "reason.Problem+tryAgain)\n\t\treturn\n\t}",
		`if verdict.Mutated("gate/olm-identity doubt") { return }`},
	{"admission/candidate.go", "g.OLM.Account().Username()}\n\tif v.Decision != verdict.Allow",
		` && !verdict.Mutated("gate/olm-identity candidate")`},
	{"admission/handler.go", "func (e *endpoint[New, Old]) internal() *admissionv1.AdmissionResponse {",
		`if verdict.Mutated("gate/internal") { return &admissionv1.AdmissionResponse{Allowed: true} }`},
	{"admission/override.go", "refused := func(why string) verdict.Verdict {",
		`if verdict.Mutated(asked.Rule + "` + overrideRefused + `") { return *v }`},
}

// Mutants returns those of the rules with these IDs, or of all rules for none.
func Mutants(ids []string) ([]string, error) {
	var all, chosen []string
	for _, r := range slices.Concat(rules.GateRules(), rules.Rules()) {
		id := string(r.ID)
		var mutants []string
		if !r.ID.OfGate() && !r.ID.ForDeletions() { // package rules records it
			mutants = append(mutants, id)
		}
		if r.SetsAside {
			mutants = append(mutants, id+overrideRefused)
		}
		for _, m := range mutations {
			for _, found := range place.FindAllStringSubmatch(m.insert, -1) {
				if of, _, _ := strings.Cut(found[1], " "); of == id {
					mutants = append(mutants, found[1])
				}
			}
		}
		if len(mutants) == 0 {
			return nil, fmt.Errorf("rule %s has no mutation", id)
		}
		all = append(all, mutants...)
		if slices.Contains(ids, id) {
			chosen = append(chosen, mutants...)
			ids = slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
			if len(ids) == 0 {
				return chosen, nil
			}
		}
	}
	if len(ids) > 0 {
		return nil, fmt.Errorf("there is no rule %s", strings.Join(ids, ", "))
	}
	return all, nil
}

// place is the ID of a rule with a place.
var place = regexp.MustCompile(`Mutated\("([^"]+)"\)`)

// mutate returns a file with its mutations.
func mutate(file, source string) (string, error) {
	for _, m := range mutations {
		if m.file != file {
			continue
		}
		if n := strings.Count(source, m.after); n != 1 {
			return "", fmt.Errorf("%s has %d times, not once, the text of a mutation: %s", m.file, n, m.after)
		}
		insert := m.insert
		if !strings.HasPrefix(insert, " ") {
			insert = "\n" + insert
		}
		source = strings.Replace(source, m.after, m.after+insert, 1)
	}
	return source, nil
}

// writeOverlay writes the mutated files of a repository to a directory, and returns the path of the file for
// "go test -overlay".
func writeOverlay(root, dir string) (string, error) {
	replace := map[string]string{}
	add := func(file, source string) error {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = path
		return os.WriteFile(path, []byte(source), 0o600)
	}
	var warning []string
	for _, r := range rules.Rules() {
		if r.Outcomes == verdict.Warns {
			warning = append(warning, strconv.Quote(string(r.ID)))
		}
	}
	if err := add("rules/verdict/mutated.go", fmt.Sprintf(mutatedFile, strings.Join(warning, ", "))); err != nil {
		return "", err
	}
	for _, m := range mutations {
		source, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			return "", err
		}
		mutated, err := mutate(m.file, string(source))
		if err != nil {
			return "", err
		}
		if err := add(m.file, mutated); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}
