package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// suggestion is an edit of a policy that opens a step.
type suggestion struct {
	policy string
	step   *step
	// changes are the fields, where each is written, and what is added to it.
	changes []string
}

// String is what is suggested, on one line.
func (s *suggestion) String() string { return s.step.title() + ": " + strings.Join(s.changes, "; ") }

func (s *step) title() string {
	title := text.Name(s.pkg) + " in " + text.Name(s.namespace) + ", "
	if s.from != "" {
		title += text.Name(s.from) + " to "
	}
	return title + text.Name(s.to().csv)
}

// parts are the fields that are edited, in this order.
var parts = []struct {
	field string
	edit  func(*site, *step) (change string, err error)
}{{"versions", addVersions}, {"versionRange", widenRange}, {consentField, accept}}

const consentField = "consent"

// suggest edits the policies that govern a step so that they allow it: each wholly, or not at all. Errors are of what
// cannot be edited.
func (f *files) suggest(s *step, acceptChanges bool) (suggestions []*suggestion, faults []error) {
	if fault := s.fault(); fault != "" {
		return nil, []error{errors.New(s.source + ": " + fault)}
	}
	for _, name := range f.governing(s) {
		found := &suggestion{policy: name, step: s}
		err := f.edit(found, acceptChanges)
		switch {
		case err != nil:
			faults = append(faults, err)
		case len(found.changes) > 0:
			suggestions = append(suggestions, found)
		}
	}
	return suggestions, faults
}

// edit edits one policy. After an error all files are as before.
func (f *files) edit(of *suggestion, acceptChanges bool) error {
	before := map[*source][]byte{}
	for _, part := range parts {
		if part.field == consentField && !acceptChanges {
			continue
		}
		at, err := f.site(of.step, of.policy, part.field)
		if at != nil {
			if before[at.source] == nil {
				before[at.source] = at.source.after
			}
			var change string
			if change, err = part.edit(at, of.step); change != "" {
				of.changes = append(of.changes, at.place()+": "+change)
			}
			f.find(at.source, func(string) {})
		}
		if errors.Is(err, errPlace) {
			err = fmt.Errorf("%s: spec.%s %w", at.place(), part.field, errPlace)
		}
		if err != nil {
			for s, data := range before {
				s.after = data
				s.documents, _ = parse(data) // which has been parsed before
				f.find(s, func(string) {})
			}
			return err
		}
	}
	return nil
}

// governing returns the names of the policies that govern a step, in the order of the files.
func (f *files) governing(s *step) (names []string) {
	for _, at := range f.sites() {
		if at.governs(s) && !slices.Contains(names, at.Metadata.Name) &&
			at.Spec.ComplianceType != string(policyv1beta2.MustNotHave) {
			names = append(names, at.Metadata.Name)
		}
	}
	return names
}

func (s *site) governs(step *step) bool {
	return s.Spec.Subscription.Name == step.pkg && s.Spec.Subscription.Namespace == step.namespace
}

// site returns where a field of a policy that governs a step is written: in a patch, if one has it. It is nil if it is
// written nowhere.
func (f *files) site(s *step, name, field string) (*site, error) {
	var whole, patches []*site
	for _, at := range f.sites() {
		if at.Metadata.Name != name || !at.has(field) || !at.patch && !at.governs(s) {
			continue
		}
		if at.patch {
			patches = append(patches, at)
		} else {
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

// has reports whether a site has a field.
func (s *site) has(field string) bool {
	switch field {
	case "versions":
		return len(s.Spec.Versions) > 0
	case "versionRange":
		return s.Spec.VersionRange != ""
	}
	return fieldOf(s.spec, field) != nil
}

// addVersions lists the versions of a step.
func addVersions(at *site, s *step) (change string, err error) {
	listed := operatorpolicy.SplitVersions(at.Spec.Versions)
	bound := !slices.ContainsFunc(listed, func(name string) bool { return !strings.Contains(name, "@") })
	var added []string
	for _, v := range s.versions {
		entry := v.csv
		if slices.Contains(listed, v.csv) || v.digest != "" && slices.Contains(listed, v.csv+"@"+v.digest) ||
			v.csv == at.Spec.Subscription.StartingCSV {
			continue
		}
		if bound && v.digest == "" {
			return "", fmt.Errorf("%s: spec.versions has names with digests, and that of %s is not known", at.place(),
				text.Name(v.csv))
		}
		if bound {
			entry += "@" + v.digest
		}
		added = append(added, entry)
	}
	if len(added) == 0 {
		return "", nil
	}
	list, err := at.node("versions")
	if err != nil {
		return "", err
	}
	return "add " + strings.Join(added, ", ") + " to spec.versions", at.addTo(list, added...)
}

// widenRange adds the versions of a step to the range.
func widenRange(at *site, s *step) (change string, err error) {
	n, err := at.node("versionRange")
	if err != nil {
		return "", err
	}
	allowed, err := olm.ParseVersionRange(at.Spec.VersionRange)
	if err != nil {
		return "", fmt.Errorf("%s: spec.versionRange %w", at.place(), err)
	}
	added := ""
	for _, v := range s.versions {
		in, err := allowed.Contains(v.version)
		switch {
		case v.csv == at.Spec.Subscription.StartingCSV:
		case err != nil:
			return "", fmt.Errorf("%s: %s cannot be compared with spec.versionRange: %w", at.place(), text.Name(v.csv), err)
		case !in:
			added += alternative(v.version)
		}
	}
	if added == "" {
		return "", nil
	}
	wider := strings.TrimSpace(at.Spec.VersionRange) + added
	if _, err := olm.ParseVersionRange(wider); err != nil {
		return "", fmt.Errorf("%s: spec.versionRange %s %w", at.place(), text.Quote(wider), err)
	}
	return "spec.versionRange: " + text.Quote(wider), at.extend(n, added)
}

// alternative returns what a range gets to have a version. One with a suffix in which the parser takes an x for a
// wildcard has another form: -0 is before all suffixes.
func alternative(version string) string {
	v := semver.MustParse(version) // ranges compare no other
	v.Build = nil
	if only, err := olm.ParseVersionRange(v.String()); err == nil {
		if in, err := only.Contains(version); err == nil && in {
			return " || " + v.String()
		}
	}
	return fmt.Sprintf(" || >=%d.%d.%d-0 <%[1]d.%[2]d.%[4]d-0", v.Major, v.Minor, v.Patch, v.Patch+1)
}

// accept accepts the changes of a step.
func accept(at *site, s *step) (change string, err error) {
	var added []string
	for _, c := range s.consent {
		if strings.HasSuffix(c.policy, "/"+at.Metadata.Name) && !slices.Contains(at.Spec.Consent.Accepted, c.digest) {
			added = append(added, c.digest)
		}
	}
	if len(added) == 0 {
		return "", nil
	}
	path := []string{"consent"}
	if len(at.Spec.Consent.Accepted) > 0 {
		path = append(path, "accepted")
	}
	n, err := at.node(path...)
	if err != nil {
		return "", err
	}
	if n.Kind == yaml.SequenceNode {
		err = at.addTo(n, added...)
	} else {
		err = at.addField(n, "accepted", added...)
	}
	return "add " + strings.Join(added, ", ") + " to spec.consent.accepted", err
}
