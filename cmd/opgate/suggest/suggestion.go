package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// result is what is suggested for files.
type result struct {
	sources     []*source
	suggestions []suggestion
	// faults are why policies cannot be edited for which a step may wait, missing are warnings of those that are in no
	// file, or that no step needs.
	faults, missing []string
}

// suggestion is an edit of a policy that opens a step.
type suggestion struct {
	step *step
	// changes are the fields, where each is written, and what is added to it.
	changes []string
}

// suggest edits files so that their policies allow steps: each policy wholly, or not at all. Of several steps of a
// package in a namespace the first one counts.
func suggest(names []string, steps []step, acceptChanges bool) (*result, error) {
	sources, err := readFiles(names)
	if err != nil {
		return nil, err
	}
	r, isElsewhere := &result{sources: sources}, false
	for i := range steps {
		s := &steps[i]
		if slices.ContainsFunc(steps[:i], func(o step) bool { return o.namespace == s.namespace && o.pkg == s.pkg }) {
			continue
		}
		if fault := s.fault(); fault != "" {
			r.faults = append(r.faults, s.source+": "+fault)
			continue
		}
		policies := r.governing(s)
		isElsewhere = isElsewhere || slices.ContainsFunc(s.refused, func(policy string) bool {
			return !slices.Contains(policies, policy[strings.LastIndexByte(policy, '/')+1:])
		})
		if len(policies) == 0 && len(s.refused) > 0 {
			r.missing = append(r.missing, fmt.Sprintf("warning: %s waits for %s in %s, which is not in the files",
				text.Escape(s.source), text.Name(s.to().csv), strings.Join(s.refused, ", ")))
		}
		for _, name := range policies {
			changes, err := r.edit(name, s, acceptChanges)
			switch {
			case err != nil:
				r.faults = append(r.faults, err.Error())
			case len(changes) > 0:
				r.suggestions = append(r.suggestions, suggestion{s, changes})
			}
		}
	}
	for _, s := range sources {
		for _, fault := range s.faults {
			if isElsewhere { // a step may wait for this policy
				r.faults = append(r.faults, fault)
			} else {
				r.missing = append(r.missing, "warning: "+fault)
			}
		}
	}
	return r, nil
}

// governing returns the names of the policies that govern a step, in the order of the files.
func (r *result) governing(s *step) (names []string) {
	for _, at := range r.sites() {
		if at.governs(s) && !slices.Contains(names, at.Metadata.Name) {
			names = append(names, at.Metadata.Name)
		}
	}
	return names
}

// sites returns the policies in all files.
func (r *result) sites() (all []*site) {
	for _, s := range r.sources {
		all = append(all, s.sites...)
	}
	return all
}

// edit edits one policy. After an error all files are as before.
func (r *result) edit(name string, s *step, acceptChanges bool) (changes []string, err error) {
	edited := map[*source][]byte{}
	for _, e := range edits {
		if e.field == consent && !acceptChanges {
			continue
		}
		at, err := r.site(s, name, e.field)
		if at != nil {
			if edited[at.source] == nil {
				edited[at.source] = at.after
			}
			var change string
			if change, err = e.edit(at, s); err != nil {
				err = fmt.Errorf("%s: spec.%s %w", at.place(), e.field, err)
			} else if change != "" {
				changes = append(changes, at.place()+": "+change)
			}
		}
		if err != nil {
			for s, before := range edited {
				err = errors.Join(err, s.read(before)) // which has been read before
			}
			return nil, err
		}
	}
	return changes, nil
}

// site returns where a field of a policy that governs a step is written: in a patch, if one has it. It is nil if it is
// written nowhere.
func (r *result) site(s *step, name, field string) (*site, error) {
	var whole, patches []*site
	for _, at := range r.sites() {
		switch {
		case at.Metadata.Name != name || !at.has(field):
		case at.isPatch():
			patches = append(patches, at)
		case at.governs(s):
			whole = append(whole, at)
		}
	}
	if len(patches) > 0 {
		whole = patches
	}
	switch len(whole) {
	case 0:
		return nil, nil
	case 1:
		return whole[0], nil
	}
	return nil, fmt.Errorf("spec.%s of OperatorPolicy %s is written in %s and in %s: name the file of one", field,
		text.Name(name), whole[0].place(), whole[1].place())
}

// text returns the text of a pull request, as Markdown. What catalogs have written is code in it.
func (r *result) text(acceptChanges bool) string {
	var b strings.Builder
	for _, s := range r.suggestions {
		fmt.Fprintf(&b, "### %s\n\n", s.step.title())
		for _, change := range s.changes {
			fmt.Fprintf(&b, "- %s\n", change)
		}
		fmt.Fprintf(&b, "- it lets %s pass\n", text.Escape(s.step.source))
		for _, v := range s.step.versions {
			if v.digest != "" {
				fmt.Fprintf(&b, "- bundle image of %s: %s\n", text.Name(v.csv), v.digest)
			}
		}
		for _, c := range s.step.consent {
			if acceptChanges {
				fmt.Fprintf(&b, "- accepted:\n\n      %s\n", text.Escape(c.message))
			}
		}
		for _, why := range s.step.remaining(acceptChanges) {
			fmt.Fprintf(&b, "- still held:\n\n      %s\n", why)
		}
		b.WriteString("\n")
	}
	return b.String()
}
