package manifests

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"

	"github.com/opgate/opgate/internal/text"
)

// The names of the configuration of a repository, which is no manifest, and of its patterns of what to leave out.
const (
	ConfigFile = ".opgate.yaml"
	IgnoreFile = ".opgateignore"
)

// Pattern is one of .dockerignore for files and directories to leave out; without a slash it counts in every directory.
type Pattern struct {
	Text string
	// From is where it was read from, as in ".opgateignore:3"; empty for one of the command line.
	From string
}

// exclusions leave out what matches a pattern. The patterns of files are written by who is judged: what they leave out
// is listed, and they leave out nothing that the command line names.
type exclusions struct {
	patterns []exclusion
	all      *patternmatcher.PatternMatcher
	// count has all paths that were left out by patterns of files.
	count int
}

type exclusion struct {
	Pattern
	alone *patternmatcher.PatternMatcher
	// off is set while something is read that the command line names and the pattern matches.
	off bool
	// paths are the first that the pattern left out, count all of them.
	paths []string
	count int
}

// newExclusions returns an error for a pattern that cannot be used.
func newExclusions(patterns []Pattern) (*exclusions, error) {
	e := &exclusions{}
	for _, p := range patterns {
		alone, err := matcher([]Pattern{p})
		if err != nil {
			if p.From != "" {
				return nil, fmt.Errorf("%s: pattern %q: %w", p.From, p.Text, err)
			}
			return nil, fmt.Errorf("--exclude %q: %w", p.Text, err)
		}
		e.patterns = append(e.patterns, exclusion{Pattern: p, alone: alone})
	}
	var err error
	e.all, err = matcher(patterns)
	return e, err
}

func matcher(patterns []Pattern) (*patternmatcher.PatternMatcher, error) {
	anywhere := make([]string, 0, len(patterns))
	for _, p := range patterns {
		pattern, but := strings.CutPrefix(p.Text, "!")
		if !strings.Contains(strings.TrimSuffix(pattern, "/"), "/") {
			pattern = "**/" + pattern
		}
		if but {
			pattern = "!" + pattern
		}
		anywhere = append(anywhere, pattern)
	}
	m, err := patternmatcher.New(anywhere)
	if err == nil {
		_, err = m.MatchesOrParentMatches("x") // compiles the patterns
	}
	return m, err
}

// named sets which patterns count below something that the command line names: those of files that match it do not.
func (e *exclusions) named(name string) {
	clean := filepath.ToSlash(filepath.Clean(name))
	var on []Pattern
	for i := range e.patterns {
		p := &e.patterns[i]
		match, err := p.alone.MatchesOrParentMatches(clean)
		if p.off = p.From != "" && match && err == nil; !p.off {
			on = append(on, p.Pattern)
		}
	}
	if all, err := matcher(on); err == nil { // each was compiled
		e.all = all
	}
}

// match reports whether a path is left out, and counts it: in count if by the command line.
func (e *exclusions) match(name string, count *int) bool {
	match, err := e.all.MatchesOrParentMatches(name)
	if !match || err != nil {
		return false
	}
	for i := range slices.Backward(e.patterns) {
		p := &e.patterns[i]
		if match, err := p.alone.MatchesOrParentMatches(name); p.off || !match || err != nil {
			continue
		}
		if p.From == "" {
			break
		}
		p.count++
		e.count++
		if len(p.paths) < maxOthers {
			p.paths = append(p.paths, name)
		}
		return true
	}
	*count++
	return true
}

// notes list the patterns of files that left something out.
func (e *exclusions) notes() (notes []Note) {
	for i := range e.patterns {
		if p := &e.patterns[i]; p.count > 0 {
			more := ""
			if p.count > len(p.paths) {
				more = fmt.Sprintf(" and %d more", p.count-len(p.paths))
			}
			notes = append(notes, Note{Text: "excluded by " + p.From + " (" + text.Escape(p.Text) + "): " +
				text.Join(p.paths, maxOthers) + more})
		}
	}
	return notes
}
