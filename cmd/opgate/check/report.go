package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// notJudged is the outcome for what would be allowed, of which that is not known.
const notJudged = "not judged"

// judgement is the verdict on one object.
type judgement struct {
	*manifests.Object
	*inspect.Answer
	// unjudged is why it cannot be allowed; empty if it can.
	unjudged string
	// before is what the old policies say of it, without what the new ones say too; with --diff.
	before []string
}

// outcome is the verdict as every format prints it: Allow, Hold, Deny or notJudged.
func (j *judgement) outcome() string {
	if j.Decision == verdict.Allow && j.unjudged != "" {
		return notJudged
	}
	return j.Decision.String()
}

// reasons are why it is not allowed, in every format.
func (j *judgement) reasons() []verdict.Reason {
	if j.outcome() == notJudged {
		return []verdict.Reason{{Message: notJudged + ": " + j.unjudged}}
	}
	return j.Reasons
}

// isOperator reports whether it is, or brings, an operator.
func (j *judgement) isOperator() bool {
	return slices.Contains([]string{olm.KindSubscription, olm.KindInstallPlan, olm.KindClusterServiceVersion,
		olm.KindClusterExtension}, j.Kind)
}

// title names a judged object: "installplan shop/install-x7".
func (j *judgement) title() string { return strings.ToLower(j.Kind) + " " + j.Key() }

// titleIn is the title with what built the object, and what it is in.
func (j *judgement) titleIn() string {
	title := j.title()
	if j.Kustomization != "" {
		title += " built by " + j.Kustomization
	}
	return text.Escape(title + j.Via)
}

// report is what every format is written from.
type report struct {
	judged   []judgement
	problems []manifests.Problem
	notes    []manifests.Note
	// nothing is what is said if nothing was judged.
	nothing string
	// count has all outcomes, those included that are not printed.
	count map[string]int
	// failOnWarning makes warnings on objects failures.
	failOnWarning bool
	warned        bool
	// differ and same count the objects that policies judge otherwise or alike; with --diff.
	differ, same int
	// code is the exit code.
	code int
	// version is that of the program.
	version string

	seen map[string]bool
}

func newReport(o *options, in *manifests.Input) *report {
	r := &report{count: map[string]int{}, nothing: nothingRead, version: o.version, seen: map[string]bool{},
		failOnWarning: o.failOn != "", problems: slices.Clone(in.Problems), notes: slices.Clone(in.Notes)}
	if o.live {
		r.nothing = nothingStored
	}
	return r
}

// add adds a judgement, each once: an input may be named twice.
func (r *report) add(j *judgement) {
	if id := fmt.Sprint(j.Place, j.Kind, j.Key(), j.outcome(), lines(j)); !r.seen[id] {
		r.seen[id] = true
		r.count[j.outcome()]++
		r.warned = r.warned || len(findings(j)) > 0
		r.judged = append(r.judged, *j)
	}
}

// once returns a list with one more, unless the list has it.
func once[T comparable](list []T, one T) []T {
	if slices.Contains(list, one) {
		return list
	}
	return append(list, one)
}

// finish sets the exit code, and leaves out what is not printed.
func (r *report) finish(o *options) {
	switch {
	case slices.ContainsFunc(r.problems, func(p manifests.Problem) bool { return p.Operators }):
		r.code = exitUnusable
	case o.diff:
		r.code = min(r.differ, exitRefused)
	case len(r.judged) > r.count[verdict.Allow.String()], r.failOnWarning && r.warned:
		r.code = exitRefused
	}
	r.judged = slices.DeleteFunc(r.judged, func(j judgement) bool {
		return o.summary || o.only == onlyRefused && j.outcome() == verdict.Allow.String()
	})
}

func (r *report) counts() string {
	if r.differ+r.same > 0 {
		return fmt.Sprintf("%d judged otherwise, %d the same", r.differ, r.same)
	}
	s := fmt.Sprintf("%d allowed, %d held, %d denied", r.count["Allow"], r.count["Hold"], r.count["Deny"])
	if n := r.count[notJudged]; n > 0 {
		s += fmt.Sprintf(", %d not judged", n)
	}
	return s
}

// entry is what annotations and code scanning show of a report: a reason, a warning, a problem or a note.
type entry struct {
	manifests.Place
	// level is error, warning or note.
	level, title, message string
	rule                  verdict.RuleID
	// of is the object; nil for what is no verdict.
	of *judgement
}

// entries returns all of a report. A problem is an error if it ends the command with exitUnusable.
func (r *report) entries() (all []entry) {
	level := func(isError bool) string {
		if isError {
			return "error"
		}
		return "warning"
	}
	for i := range r.judged {
		j := &r.judged[i]
		add := func(level string, rule verdict.RuleID, field, message string) {
			at := j.Place
			at.Line = j.LineOf(field)
			all = append(all, entry{at, level, j.outcome() + " " + j.titleIn(), message, rule, j})
		}
		for _, why := range j.reasons() {
			add("error", why.Rule, why.Field, why.Message)
		}
		for _, f := range findings(j) {
			add(level(r.failOnWarning), f.Rule, f.Field, brief(f))
		}
	}
	for _, p := range r.problems {
		all = append(all, entry{Place: p.Place, level: level(p.Operators), title: "problem", message: p.Text})
	}
	for _, n := range r.notes {
		e := entry{Place: n.Place, level: "note", title: "input", message: n.Text}
		if n.Warning {
			e.level = "warning"
		}
		all = append(all, e)
	}
	return all
}

// findings are the warnings, and what was not resolved or not stated.
func findings(j *judgement) []verdict.Reason {
	list := inspect.Warnings(&j.Verdict)
	if j.Hub {
		list = append(list, verdict.Reason{Message: "has hub templates, which only the hub resolves: what it governs is held " +
			"here; judge what the hub distributes"})
	}
	if j.Unstated {
		list = append(list, verdict.Reason{Field: "metadata", Message: "no namespace is stated, so that it is judged in " +
			"default: set metadata.namespace, or give -n"})
	}
	return list
}

// brief leaves out why a pending plan may not be approved: the input has the plan, and its verdict has that.
func brief(w verdict.Reason) string {
	if before, _, found := strings.Cut(w.Message, " ("+string(rules.RuleOperatorPolicyPending)+"): "); found &&
		w.Rule == rules.RuleOperatorPolicyPending {
		return before + " (" + string(rules.RuleOperatorPolicyPending) + ")"
	}
	return w.Message
}
