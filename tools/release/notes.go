package release

import (
	"fmt"
	"regexp"
	"strings"
)

// unreleased is the section of the changelog for what the next release brings.
const unreleased = "Unreleased"

// heading is a section of the changelog: a version, with or without brackets, and a date after it.
var heading = regexp.MustCompile(`^## \[?([^\]\s]+)\]?`)

// Change is an entry of the changelog.
type Change struct {
	// Kind is the heading that it is under, in lower case: added, changed, deprecated, removed, fixed or security.
	Kind string
	// Text is the entry, on one line.
	Text string
}

// Notes is a section of the changelog.
type Notes struct {
	// Section is its heading: a version without v, or Unreleased.
	Section string
	// Text is its Markdown, without the heading.
	Text string
}

// FindNotes returns the section of the changelog about a version. A version that is not a release yet, and has none,
// gets what is unreleased.
func FindNotes(changelog string, version Version, released bool) (Notes, error) {
	sections := map[string]string{}
	var name string
	for line := range strings.Lines(changelog) {
		if m := heading.FindStringSubmatch(line); m != nil {
			name = strings.TrimPrefix(m[1], "v")
			continue
		}
		if name != "" {
			sections[name] += line
		}
	}
	for _, name := range []string{version.Number(), unreleased} {
		if name == unreleased && released {
			break
		}
		if text := strings.TrimSpace(sections[name]); text != "" {
			return Notes{Section: name, Text: text + "\n"}, nil
		}
	}
	return Notes{}, fmt.Errorf("CHANGELOG.md has no section about %s: add \"## %s\"", version.Tag, version.Number())
}

// Changes are the entries of the notes, in their order.
func (n Notes) Changes() []Change {
	var changes []Change
	kind := "changed"
	for line := range strings.Lines(n.Text) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "### "):
			kind = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(text, "###")))
		case strings.HasPrefix(line, "- "):
			changes = append(changes, Change{Kind: kind, Text: strings.TrimPrefix(text, "- ")})
		case text != "" && strings.HasPrefix(line, " ") && len(changes) > 0:
			changes[len(changes)-1].Text += " " + text
		}
	}
	return changes
}
