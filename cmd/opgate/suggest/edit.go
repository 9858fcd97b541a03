package suggest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// edits are the fields that are edited, in this order. Errors follow the name of the field.
var edits = []struct {
	field string
	edit  func(*policy, *step) (change string, err error)
}{{"versions", listVersions}, {"versionRange", widenRange}, {consent, accept}}

const consent = "consent"

// listVersions lists the versions of a step.
func listVersions(at *policy, s *step) (change string, err error) {
	listed := operatorpolicy.SplitVersions(at.Spec.Versions)
	bound := !slices.ContainsFunc(listed, func(name string) bool { return !strings.Contains(name, "@") })
	var added []string
	for _, v := range s.Versions {
		withDigest := v.CSV + "@" + v.Digest
		switch {
		case slices.Contains(listed, v.CSV), slices.Contains(listed, withDigest), v.CSV == at.Spec.Subscription.StartingCSV:
		case bound && v.Digest == "":
			return "", fmt.Errorf("has names with digests, and that of %s is not known", text.Name(v.CSV))
		case bound:
			added = append(added, withDigest)
		default:
			added = append(added, v.CSV)
		}
	}
	return at.addTo(added, "versions")
}

// accept accepts the changes of a step.
func accept(at *policy, s *step) (change string, err error) {
	var added []string
	for _, r := range s.reasons {
		if isConsent(r) && at.isNamed(r.From) && !slices.Contains(at.Spec.Consent.Accepted, r.Digest) {
			added = append(added, r.Digest)
		}
	}
	if len(added) > 0 && len(at.Spec.Consent.Accepted) == 0 {
		return at.addList(added, "accepted", consent)
	}
	return at.addTo(added, consent, "accepted")
}

// widenRange adds the versions of a step to the range.
func widenRange(at *policy, s *step) (change string, err error) {
	n, err := at.node("versionRange")
	if err != nil {
		return "", err
	}
	allowed, err := olm.ParseVersionRange(at.Spec.VersionRange)
	if err != nil {
		return "", err
	}
	added := ""
	for _, v := range s.Versions {
		in, err := allowed.Contains(v.version)
		switch {
		case v.CSV == at.Spec.Subscription.StartingCSV:
		case err != nil:
			return "", fmt.Errorf("cannot be compared with %s: %w", text.Name(v.CSV), err)
		case !in:
			added += bundle.Alternative(v.version)
		}
	}
	wider := strings.TrimSpace(at.Spec.VersionRange) + added
	if _, err := olm.ParseVersionRange(wider); err != nil || added == "" {
		return "", err
	}
	from := at.position(n) + len(n.Value)
	n.Value += added // a range has no line end
	return "spec.versionRange: " + text.Quote(wider), at.insert(from, false, added)
}

// addTo adds texts to a list of the spec, behind its last element: on lines as that is on, or in brackets.
func (p *policy) addTo(texts []string, path ...string) (change string, err error) {
	if len(texts) == 0 {
		return "", nil
	}
	list, err := p.node(path...)
	if err != nil {
		return "", err
	}
	last := list.Content[len(list.Content)-1]
	begin, isFlow := p.position(last), list.Style&yaml.FlowStyle != 0
	between := ", "
	if !isFlow {
		between = p.lineEnd(begin) + strings.Repeat(" ", list.Column-1) + "- "
	}
	added := ""
	for _, text := range texts {
		added += between + quotedAs(last, text)
		list.Content = append(list.Content, yaml.NewStringRNode(text).YNode())
	}
	return adds(texts, path...), p.insert(begin+len(last.Value), !isFlow, added)
}

// addList adds a field with a list to a mapping of the spec that has others.
func (p *policy) addList(texts []string, name string, path ...string) (change string, err error) {
	mapping, err := p.node(path...)
	if err != nil {
		return "", err
	}
	if mapping.Kind != yaml.MappingNode || len(mapping.Content) == 0 {
		return "", errPlace
	}
	first := mapping.Content[0]
	var quoted []string
	for _, text := range texts {
		quoted = append(quoted, quotedAs(first, text))
	}
	separator := ", "
	if mapping.Style&yaml.FlowStyle == 0 {
		separator = p.lineEnd(p.position(first)) + strings.Repeat(" ", first.Column-1)
	}
	mapping.Content = append(mapping.Content, yaml.NewStringRNode(name).YNode(), yaml.NewListRNode(texts...).YNode())
	return adds(texts, append(path, name)...), p.insert(p.position(first), false,
		quotedAs(first, name)+": ["+strings.Join(quoted, ", ")+"]"+separator)
}

// adds states what is added to a list of the spec.
func adds(texts []string, path ...string) string {
	return "add " + strings.Join(texts, ", ") + " to spec." + strings.Join(path, ".")
}

// quotedAs returns a text in the quotes of another one, or in those that it needs.
func quotedAs(n *yaml.Node, text string) string {
	quoted := yaml.NewStringRNode(text)
	quoted.YNode().Style = n.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)
	return strings.TrimSpace(quoted.MustString())
}

var errPlace = errors.New("is written in a form that cannot be edited in place")

// maxPlaces bounds the places that are tried for one insertion.
const maxPlaces = 500

// insert inserts a text at the first place from an offset on, or at the first end of a line, with which the file reads
// as its documents do, in which the caller has made the change. After an error the file is as before.
func (f *file) insert(from int, atLineEnd bool, text string) error {
	want, err := valuesOf(f.documents)
	for at, tried := from, 0; err == nil && at <= len(f.after) && tried < maxPlaces; at++ {
		if atLineEnd && at < len(f.after) && f.after[at] != '\r' && f.after[at] != '\n' ||
			bytes.HasPrefix(f.after[max(at, 1)-1:], []byte("\r\n")) { // between the characters of one line end
			continue
		}
		tried++
		edited := slices.Concat(f.after[:at], []byte(text), f.after[at:])
		if _, got, err := parse(edited); err == nil && reflect.DeepEqual(want, got) {
			return f.parse(edited)
		}
	}
	return errors.Join(errPlace, f.parse(f.after)) // which has been read before
}
