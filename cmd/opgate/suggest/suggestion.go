package suggest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// result is what is suggested for files.
type result struct {
	files []*file
	// steps are those that are opened.
	steps []*step
	// faults are why policies cannot be edited for which a step may wait, warnings are of those that are in no file, or
	// that no step needs.
	faults, warnings []string
}

// suggest edits files so that their policies allow steps. Of several steps of a package in a namespace the first one
// counts.
func suggest(names []string, steps []step, acceptChanges bool) (*result, error) {
	files, err := readFiles(names)
	if err != nil {
		return nil, err
	}
	r, isElsewhere := &result{files: files}, false
	for i := range steps {
		s := &steps[i]
		if slices.ContainsFunc(steps[:i], func(o step) bool { return o.namespace == s.namespace && o.pkg == s.pkg }) {
			continue
		}
		if fault := s.fault(); fault != "" {
			r.faults = append(r.faults, s.source+": "+fault)
			continue
		}
		var policies []string
		for _, at := range r.policies() {
			if at.governs(s) && !slices.Contains(policies, at.Metadata.Name) {
				policies = append(policies, at.Metadata.Name)
			}
		}
		for _, reason := range s.reasons {
			if isVersion(reason) && !slices.ContainsFunc(policies,
				func(name string) bool { return strings.HasSuffix(reason.Source, "/"+name) }) {
				isElsewhere = true
				r.warnings = append(r.warnings, fmt.Sprintf("warning: %s waits for %s in %s, which is not in the files",
					text.Escape(s.source), text.Name(s.to().csv), reason.Source))
			}
		}
		for _, name := range policies {
			r.edit(name, s, acceptChanges)
		}
		if len(s.changes) > 0 {
			r.steps = append(r.steps, s)
		}
	}
	for _, f := range files {
		for _, fault := range f.faults {
			if isElsewhere { // a step may wait for this policy
				r.faults = append(r.faults, fault)
			} else {
				r.warnings = append(r.warnings, "warning: "+fault)
			}
		}
	}
	r.warnings = slices.Compact(r.warnings)
	return r, nil
}

// policies returns the policies in all files.
func (r *result) policies() (all []*policy) {
	for _, f := range r.files {
		all = append(all, f.policies...)
	}
	return all
}

// edit edits the fields of one policy. What cannot be edited is a fault.
func (r *result) edit(name string, s *step, acceptChanges bool) {
	for _, e := range edits {
		if e.field == consent && !acceptChanges {
			continue
		}
		at, err := r.find(s, name, e.field)
		if at != nil {
			var change string
			if change, err = e.edit(at, s); err != nil {
				err = fmt.Errorf("%s: spec.%s %w", at.place(), e.field, err)
			} else if change != "" {
				s.changes = append(s.changes, at.place()+": "+change)
			}
		}
		if err != nil {
			r.faults = append(r.faults, err.Error())
		}
	}
}

// find returns where a field of a policy that governs a step is written: in a patch, if one has it. It is nil if it is
// written nowhere.
func (r *result) find(s *step, name, field string) (*policy, error) {
	var found []*policy
	for _, at := range r.policies() {
		switch {
		case at.Metadata.Name != name || !at.has(field):
		case at.isPatch():
			found = append([]*policy{at}, found...)
		case at.governs(s):
			found = append(found, at)
		}
	}
	switch {
	case len(found) == 0:
		return nil, nil
	case len(found) > 1 && found[0].isPatch() == found[1].isPatch():
		return nil, fmt.Errorf("spec.%s of OperatorPolicy %s is written in %s and in %s: name the file of one", field,
			text.Name(name), found[0].place(), found[1].place())
	}
	return found[0], nil
}

// text returns the text of a pull request, as Markdown. What catalogs have written is code in it.
func (r *result) text(acceptChanges bool) string {
	var b strings.Builder
	for _, s := range r.steps {
		fmt.Fprintf(&b, "### %s\n\n", s.title())
		for _, change := range s.changes {
			fmt.Fprintf(&b, "- %s\n", change)
		}
		fmt.Fprintf(&b, "- it lets %s pass\n", text.Escape(s.source))
		for _, v := range s.versions {
			if v.digest != "" {
				fmt.Fprintf(&b, "- bundle image of %s: %s\n", text.Name(v.csv), v.digest)
			}
		}
		accepted, remaining := s.split(acceptChanges)
		for _, message := range accepted {
			fmt.Fprintf(&b, "- accepted:\n\n      %s\n", message)
		}
		for _, message := range remaining {
			fmt.Fprintf(&b, "- still held:\n\n      %s\n", message)
		}
		b.WriteString("\n")
	}
	return b.String()
}
