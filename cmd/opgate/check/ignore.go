package check

import (
	"cmp"
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

// ignore sets aside what a rule warns of on an object. It is written by who is judged, so that it sets aside nothing
// that is refused or held, and everything that it sets aside is listed.
type ignore struct {
	at     manifests.Place
	rule   verdict.RuleID
	until  string
	reason string
	// object is "KIND NAMESPACE/NAME" of one in the configuration; a comment is about the object whose document has it.
	object string
}

// suppression is a warning that was set aside.
type suppression struct {
	inspect.Warning
	by *ignore
}

var ignoreComment = regexp.MustCompile(`^ignore\s+(\S+)\s+until\s+(\S+?)\s*:\s*(\S.*)$`)

const ignoreForm = `write "# opgate: ignore RULE until YYYY-MM-DD: REASON"`

// readIgnore reads a comment.
func readIgnore(file string, c manifests.Comment) (*ignore, string) {
	i := &ignore{at: manifests.Place{File: file, Line: c.Line}}
	m := ignoreComment.FindStringSubmatch(c.Text)
	if m == nil {
		return i, text.Quote(c.Text) + " is not understood: " + ignoreForm
	}
	i.rule, i.until, i.reason = verdict.RuleID(m[1]), m[2], m[3]
	return i, ""
}

// fault returns why it cannot be used at a time, "" if it can.
func (i *ignore) fault(now time.Time) string {
	until, err := time.Parse(time.DateOnly, i.until)
	switch {
	case rules.RuleOf(i.rule).ID == "":
		return "there is no rule " + text.Quote(string(i.rule))
	case err != nil:
		return text.Quote(i.until) + " is no day: " + ignoreForm
	case strings.TrimSpace(i.reason) == "":
		return "the reason is missing"
	case !now.Before(until.AddDate(0, 0, 1)):
		return fmt.Sprintf("ignored %s until %s, which is over: correct what it warns of, or set another day", i.rule,
			i.until)
	}
	return ""
}

// ignores collects those of the input.
type ignores struct {
	configured []*ignore
	inline     bool
	now        time.Time
	known      map[manifests.Place]*ignore
	// met are those whose object is in the input, used those that set something aside, refused those of a rule that
	// refuses or holds the object.
	met, used, refused map[*ignore]bool
	set                []manifests.Note
}

func (o *options) newIgnores() *ignores {
	return &ignores{configured: o.configured.ignore, inline: !o.noInline, now: o.now,
		known: map[manifests.Place]*ignore{},
		met:   map[*ignore]bool{}, used: map[*ignore]bool{}, refused: map[*ignore]bool{}}
}

// about returns what is ignored on an object. Faults make the input unusable.
func (s *ignores) about(j *judgement, in *manifests.Input) (list []*ignore) {
	for _, i := range s.configured {
		if s.check(i, "", in) && i.object == j.title() {
			list = append(list, i)
		}
	}
	if !s.inline {
		return list
	}
	for _, c := range j.Comments {
		i, fault := readIgnore(j.File, c)
		if first := s.known[i.at]; first != nil {
			i = first
		}
		if s.check(i, fault, in) {
			list = append(list, i)
		}
	}
	return list
}

// check reports whether one can be used. It is checked once.
func (s *ignores) check(i *ignore, fault string, in *manifests.Input) bool {
	if s.known[i.at] == nil {
		if s.known[i.at] = i; cmp.Or(fault, i.fault(s.now)) != "" {
			in.Fault(i.at, cmp.Or(fault, i.fault(s.now)))
		}
	}
	return cmp.Or(fault, i.fault(s.now)) == ""
}

// apply sets warnings of a judgement aside.
func (s *ignores) apply(j *judgement, in *manifests.Input) {
	for _, i := range s.about(j, in) {
		s.met[i] = true
		for _, w := range inspect.Warnings(&j.Verdict) {
			if w.Rule == i.rule && !slices.ContainsFunc(j.aside,
				func(other suppression) bool { return other.Warning == w }) {
				j.aside = append(j.aside, suppression{w, i})
				s.used[i] = true
				s.set = append(s.set, manifests.Note{Place: i.at,
					Text: fmt.Sprintf("set aside by %s until %s (%s): %s: %s",
						i.at.Short(), i.until, i.reason, j.titleIn(), brief(w))})
			}
		}
		if slices.ContainsFunc(j.Reasons, func(r verdict.Reason) bool { return r.Rule == i.rule }) {
			s.refused[i] = true
		}
	}
}

// notes list what was set aside, and what sets nothing aside.
func (s *ignores) notes() (notes []manifests.Note) {
	for _, n := range s.set {
		if !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	for _, i := range s.known {
		switch {
		case s.refused[i]:
			notes = append(notes, manifests.Note{Warning: true, Place: i.at, Text: fmt.Sprintf(
				"%s: %s refuses or holds here, which only the policy can change: a comment and a configuration set aside warnings alone",
				i.at.Short(), i.rule)})
		case s.met[i] && !s.used[i]:
			notes = append(notes, manifests.Note{Warning: true, Place: i.at, Text: fmt.Sprintf(
				"%s: ignores %s, which warns of nothing here: remove it", i.at.Short(), i.rule)})
		}
	}
	slices.SortStableFunc(notes, func(a, b manifests.Note) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return notes
}
