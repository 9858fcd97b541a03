package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// ignore is a comment that sets aside what a rule warns of on the object whose document has it. It is written by who is
// judged, so that it sets aside nothing that is refused or held, and everything that it sets aside is listed.
type ignore struct {
	at     manifests.Place
	rule   verdict.RuleID
	until  string
	reason string
}

// suppression is a warning that was set aside.
type suppression struct {
	inspect.Warning
	by ignore
}

var ignoreComment = regexp.MustCompile(`^ignore\s+(\S+)\s+until\s+(\S+?)\s*:\s*(\S.*)$`)

const ignoreForm = `write "# opgate: ignore RULE until YYYY-MM-DD: REASON"`

// readIgnore reads a comment, and returns why it cannot be used at a time.
func readIgnore(file string, c manifests.Comment, now time.Time) (i ignore, fault string) {
	i.at = manifests.Place{File: file, Line: c.Line}
	m := ignoreComment.FindStringSubmatch(c.Text)
	if m == nil {
		return i, text.Quote(c.Text) + " is not understood: " + ignoreForm
	}
	i.rule, i.until, i.reason = verdict.RuleID(m[1]), m[2], strings.TrimSpace(m[3])
	until, err := time.Parse(time.DateOnly, i.until)
	switch {
	case rules.RuleOf(i.rule).ID == "":
		return i, "there is no rule " + text.Quote(string(i.rule))
	case err != nil:
		return i, text.Quote(i.until) + " is no day: " + ignoreForm
	case !now.Before(until.AddDate(0, 0, 1)):
		return i, fmt.Sprintf("ignored %s until %s, which is over: correct what it warns of, or set another day", i.rule,
			i.until)
	}
	return i, ""
}

// setAside sets warnings of a judgement aside by the comments of its document, and lists them. One that cannot be used
// is a problem, one that sets nothing aside a warning.
func (r *report) setAside(j *judgement, now time.Time) {
	for _, c := range j.Comments {
		i, fault := readIgnore(j.File, c, now)
		if fault != "" {
			r.problem(manifests.Problem{Place: i.at, Text: fault, Operators: true})
			continue
		}
		note := manifests.Note{Warning: true, Place: i.at,
			Text: fmt.Sprintf("ignores %s, which warns of nothing here: remove it", i.rule)}
		for _, w := range inspect.Warnings(&j.Verdict) {
			if w.Rule == i.rule && !slices.ContainsFunc(j.aside, func(s suppression) bool { return s.Warning == w }) {
				j.aside = append(j.aside, suppression{w, i})
				note = manifests.Note{Place: i.at, Text: fmt.Sprintf("set aside until %s (%s): %s: %s", i.until, i.reason,
					j.titleIn(), brief(w))}
				r.note(note)
			}
		}
		if slices.ContainsFunc(j.Reasons, func(why verdict.Reason) bool { return why.Rule == i.rule }) {
			note = manifests.Note{Warning: true, Place: i.at, Text: fmt.Sprintf(
				"%s refuses or holds here, which only the policy can change: a comment sets aside warnings alone", i.rule)}
		}
		r.note(note)
	}
}
