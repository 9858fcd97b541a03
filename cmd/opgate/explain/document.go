package explain

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/opgate/opgate/docs"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// rule is what docs/rules.md says of one rule. The texts are Markdown.
type rule struct {
	verdict.Rule
	// group is the heading above the rule.
	group string
	// outcome is the documented outcome, which may name conditions: "Deny; Warn under action warn".
	outcome string
	// tags are the words behind it: "; override; backstop".
	tags string
	// earlier are the IDs that the rule had before.
	earlier                          []string
	meaning, example, remedy, sample string
}

// named reports whether an ID, or an earlier one, is that of the rule.
func (r *rule) named(id string) bool { return string(r.ID) == id || slices.Contains(r.earlier, id) }

// kind is the part of the ID before the slash, with it.
func (r *rule) kind() string { return kindOf(string(r.ID)) }

func kindOf(id string) string {
	kind, _, _ := strings.Cut(id, "/")
	return kind + "/"
}

var (
	heading   = regexp.MustCompile(`(?m)^(##|###) (.+)\n`)
	exampleIn = regexp.MustCompile("(?s)```text\n(.*?)\n```")
	remedyIn  = regexp.MustCompile(`(?s)\*\*What to do:\*\* (.*?)(?: Sample: \[[^]]*\]\(\.\./([^)]*)\)\.)?\s*$`)
	outcomeIn = regexp.MustCompile(`^\*([^*]+?)((?:; override)?(?:; backstop)?)\.\* `)
	earlierIn = regexp.MustCompile("(?m)^\\| `([a-z/-]+)` \\| (`.*`) \\|$")
	link      = regexp.MustCompile(`\[([^]]*)\]\(([^)]*)\)`)
)

// all returns every rule, in the order of docs/rules.md.
func all() []rule {
	known := slices.Concat(rules.GateRules(), rules.Rules())
	var list []rule
	group := ""
	at := heading.FindAllStringSubmatchIndex(docs.Rules, -1)
	for i, m := range at {
		title, end := docs.Rules[m[4]:m[5]], len(docs.Rules)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		if docs.Rules[m[2]:m[3]] == "##" {
			group = title
			continue
		}
		k := slices.IndexFunc(known, func(r verdict.Rule) bool { return string(r.ID) == title })
		if k >= 0 { // a test of package admission keeps both lists equal
			list = append(list, read(known[k], group, docs.Rules[m[1]:end]))
		}
	}
	for _, row := range earlierIn.FindAllStringSubmatch(docs.Rules, -1) {
		for i := range list {
			if strings.Contains(row[2], "`"+string(list[i].ID)+"`") {
				list[i].earlier = append(list[i].earlier, row[1])
			}
		}
	}
	return list
}

// read takes the section of a rule apart.
func read(known verdict.Rule, group, section string) rule {
	r := rule{Rule: known, group: group, outcome: known.Outcomes.String()}
	section = strings.TrimSpace(section)
	if m := remedyIn.FindStringSubmatchIndex(section); m != nil {
		r.remedy = section[m[2]:m[3]]
		if m[4] >= 0 {
			r.sample = section[m[4]:m[5]]
		}
		section = section[:m[0]]
	}
	if m := exampleIn.FindStringSubmatch(section); m != nil {
		r.example = m[1]
		section = strings.Replace(section, m[0], "", 1)
	}
	if m := outcomeIn.FindStringSubmatch(section); m != nil {
		r.outcome, r.tags = m[1], m[2]
		section = section[len(m[0]):]
	}
	r.meaning = strings.TrimSpace(section)
	return r
}

// repository is where links of documents lead from outside the repository.
const repository = "https://github.com/opgate/opgate/blob/main/"

// target is the path from the root of the repository that a link of docs/rules.md leads to.
func target(link string) string {
	if strings.HasPrefix(link, "#") {
		link = "rules.md" + link
	}
	return path.Join("docs", link)
}

// plain returns Markdown as text for a terminal: links become their words and the path.
func plain(markdown string) string {
	text := link.ReplaceAllStringFunc(markdown, func(s string) string {
		m := link.FindStringSubmatch(s)
		if to := target(m[2]); path.Base(to) != m[1] && !strings.HasPrefix(path.Base(to), m[1]+"#") {
			return m[1] + " (" + to + ")"
		}
		return target(m[2])
	})
	return strings.ReplaceAll(text, "**", "")
}

// absolute returns Markdown with links that lead somewhere from anywhere.
func absolute(markdown string) string {
	return link.ReplaceAllStringFunc(markdown, func(s string) string {
		m := link.FindStringSubmatch(s)
		return "[" + m[1] + "](" + repository + target(m[2]) + ")"
	})
}
