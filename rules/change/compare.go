package change

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/opgate/opgate/internal/text"
)

// Compare returns what `to` changes beyond `from`: the installed ClusterServiceVersion with the objects of its bundle,
// and all stored CustomResourceDefinitions that `to` writes. from is not nil; its CSV is "" before a first
// installation. Compare is total: what cannot be compared is the Fault of the Set.
func Compare(from, to *Contents) *Set {
	s := &Set{CSV: to.CSV, Package: to.Package, Version: to.Version, Release: to.Release, From: from.CSV,
		FromVersion: from.Version, FromRelease: from.Release}
	err := s.compare(from, to)
	if err != nil {
		s.Differences, s.Notes, s.Fault = nil, nil, text.Truncate(err.Error(), maxText)
		return s
	}
	s.finish()
	return s
}

func (s *Set) compare(from, to *Contents) (err error) {
	// The libraries that compare were written for manifests of good will.
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%s cannot be compared: %v", text.Name(to.CSV), cause)
		}
	}()
	switch {
	case to.Fault != "":
		return fmt.Errorf("%s", to.Fault)
	case from.Fault != "":
		return fmt.Errorf("what is installed cannot be read: %s", from.Fault)
	}
	s.Spec = to.specDigest()
	for _, part := range []func(*Set, *Contents, *Contents) error{
		compareRights, compareWebhooks, compareDefinitions, comparePods, compareImages, compareScope,
		compareRequirements,
	} {
		if err := part(s, from, to); err != nil {
			return err
		}
	}
	return nil
}

func compareRights(s *Set, from, to *Contents) error {
	before, err := from.readRights()
	if err != nil {
		return fmt.Errorf("what is installed cannot be read: %w", err)
	}
	after, err := to.readRights()
	if err != nil {
		return err
	}
	if err := after.checkParts(); err != nil {
		return fmt.Errorf("%s cannot be compared: %w", text.Name(to.CSV), err)
	}
	s.comparePermissions(before, after)
	s.Contents = to.digest(after)
	return nil
}

// add adds a difference.
func (s *Set) add(class Class, risk Risk, format string, args ...any) {
	s.Differences = append(s.Differences, Difference{Class: class, Risk: risk, Text: line(format, args...)})
}

// note adds a note.
func (s *Set) note(format string, args ...any) { s.Notes = append(s.Notes, line(format, args...)) }

// classOrder is the order of the constants.
var classOrder = append(slices.Clone(Reviewable), Definitions, Requirements)

// finish sorts the differences, drops duplicates and counts those above maxPerClass.
func (s *Set) finish() {
	slices.SortFunc(s.Differences, compareDifferences)
	s.Differences = slices.Compact(s.Differences)
	counts := map[Class]int{}
	more := map[Class]Difference{}
	s.Differences = slices.DeleteFunc(s.Differences, func(d Difference) bool {
		counts[d.Class]++
		if counts[d.Class] <= maxPerClass {
			return false
		}
		rest := more[d.Class]
		more[d.Class] = Difference{Class: d.Class, Risk: max(rest.Risk, d.Risk)}
		return true
	})
	for class, d := range more {
		d.Text = fmt.Sprintf("and %d more", counts[class]-maxPerClass)
		s.Differences = append(s.Differences, d)
	}
	slices.SortFunc(s.Differences, compareDifferences)
	slices.Sort(s.Notes)
	s.Notes = slices.Compact(s.Notes)
}

func compareDifferences(a, b Difference) int {
	return cmp.Or(cmp.Compare(b.Risk, a.Risk), cmp.Compare(slices.Index(classOrder, a.Class),
		slices.Index(classOrder, b.Class)),
		cmp.Compare(a.Text, b.Text))
}

// Of returns the differences of a class.
func (s *Set) Of(c Class) []Difference {
	var found []Difference
	for _, d := range s.Differences {
		if d.Class == c {
			found = append(found, d)
		}
	}
	return found
}

// Summary returns the differences of some classes on one line, the riskiest first and the rest counted:
// "permissions: cluster-wide: * on secrets; webhooks: ...; and 12 more". It is empty if there are none.
func (s *Set) Summary(classes []Class) string {
	const most = 5
	summary, class, count := "", Class(""), 0
	for _, d := range s.Differences {
		if !slices.Contains(classes, d.Class) {
			continue
		}
		if count++; count > most {
			continue
		}
		if summary != "" {
			summary += "; "
		}
		if d.Class != class {
			class = d.Class
			summary += string(class) + ": "
		}
		summary += text.Truncate(d.Text, maxSummaryText)
	}
	if count > most {
		summary += fmt.Sprintf("; and %d more", count-most)
	}
	return summary
}

// maxSummaryText bounds one difference in a summary, in bytes.
const maxSummaryText = 160
