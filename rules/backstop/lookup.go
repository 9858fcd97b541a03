package backstop

import (
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// Table is what the compiled objects look up, for those who have no API server to ask. It answers as their expressions do; TestTable compares
// the two.
type Table struct {
	in Input
	// rows are those of the governed namespaces, each a list of its columns, followed by the data of its check; everywhere
	// are those of every namespace.
	rows       map[string][][]string
	everywhere [][]string
}

// NewTable returns the table of the objects that Compile returns for an input.
func NewTable(in Input) *Table {
	t := newTable(&in)
	l := &Table{in: in, rows: make(map[string][][]string, len(t.rows))}
	for namespace, rows := range t.rows {
		for _, row := range rows {
			columns := strings.Split(row, " ")
			for _, line := range t.data[columns[1]] {
				data, _, _ := strings.Cut(line, "|")
				columns = append(columns, strings.Split(data, " ")...)
			}
			l.rows[namespace] = append(l.rows[namespace], columns)
		}
	}
	for _, row := range t.everywhere {
		l.everywhere = append(l.everywhere, strings.Split(row, " "))
	}
	return l
}

// of returns the rows that count in a namespace.
func (t *Table) of(namespace string) [][]string {
	if len(t.everywhere) == 0 || slices.Contains(t.in.ExcludedNamespaces, namespace) {
		return t.rows[namespace]
	}
	return slices.Concat(t.rows[namespace], t.everywhere)
}

// HoldsApproval reports whether the API server refuses that a stored plan is approved now, without a reason for an override. What it holds,
// JudgePlan refuses.
func (t *Table) HoldsApproval(plan *olm.InstallPlan) bool {
	rows := t.of(plan.Metadata.Namespace)
	if len(rows) == 0 || !t.in.Features.ValidatingAdmissionPolicy {
		return false
	}
	s := &plan.Status
	var steps []*olm.StepResource
	for i := range s.Steps {
		if s.Steps[i].Resource.Kind == olm.KindClusterServiceVersion {
			steps = append(steps, &s.Steps[i].Resource)
		}
	}
	described := len(steps) + len(s.BundleLookups)
	if s.Phase == "" || s.Phase == olm.PhasePlanning || plan.Oversized() || described > maxCSVs || len(plan.Spec.CSVNames)+described == 0 {
		return true
	}
	for i := range s.BundleLookups {
		if t.holds(rows, s.BundleLookups[i].Identifier, contentsOf(s.BundleLookups[i].Properties)) {
			return true
		}
	}
	return slices.ContainsFunc(steps, func(r *olm.StepResource) bool {
		return t.holds(rows, r.Name, contentsInManifest(r.Manifest.Text()))
	})
}

// HoldsSubscription reports whether the API server refuses that another user than OLM creates a Subscription, instead of storing it Manual.
func (t *Table) HoldsSubscription(s *olm.Subscription) bool {
	if !t.in.Features.ValidatingAdmissionPolicy || s.Spec.InstallPlanApproval == olm.ApprovalManual ||
		t.in.Features.MutatingAdmissionPolicy && t.in.ApprovalMode != rules.DenyApproval {
		return false
	}
	return slices.ContainsFunc(t.of(s.Metadata.Namespace), func(r []string) bool { return r[1] != checkNothing })
}

// holds reports whether a row refuses a candidate, given the contents of its property olm.package; see program.refuses.
func (t *Table) holds(rows [][]string, name, contents string) bool {
	pkg, version := memberOf(contents, "packageName"), memberOf(contents, "version")
	return contents != "" && slices.ContainsFunc(rows, func(r []string) bool {
		return (r[0] == everyPackage || r[0] == pkg) && rowHolds(r, name, version)
	})
}

func rowHolds(r []string, name, version string) bool {
	named := slices.Contains(r, prefixName+name)
	switch r[1][:1] {
	case checkUnreadable, checkForbidAll, checkPending:
		return true
	case checkAllow:
		return !named
	case checkForbid:
		return named
	case checkAllowIn:
		return !named && !within(r, version)
	case checkForbidIn:
		anyName := !slices.ContainsFunc(r, func(x string) bool { return strings.HasPrefix(x, prefixName) })
		_, err := semver.Parse(version)
		return (anyName || named) && (err != nil || within(r, version))
	}
	return false
}

// within reports whether a version is in one of the intervals in a row; see inRange.
func within(r []string, version string) bool {
	v, err := semver.Parse(version)
	return err == nil && slices.ContainsFunc(r, func(x string) bool {
		interval, ok := strings.CutPrefix(x, prefixInterval)
		if !ok {
			return false
		}
		bounds := strings.Split(interval, ",")
		return beyond(v, bounds[0], bounds[1], 1) && beyond(v, bounds[2], bounds[3], -1)
	})
}

// beyond reports whether a version is on a side of a bound, or equal to one that belongs to the interval.
func beyond(v semver.Version, bound, equals string, side int) bool {
	if bound == "" {
		return true
	}
	c := v.Compare(semver.MustParse(bound)) // it was made from a version
	return c == side || c == 0 && equals != ""
}

// after returns what follows the first of a separator in a text, up to the next of an end.
func after(s, separator, end string) string {
	_, rest, _ := strings.Cut(s, separator)
	found, _, _ := strings.Cut(rest, end)
	return found
}

// contentsOf, contentsInManifest and memberOf are described, describedInManifest and member.
func contentsOf(properties string) string { return after(properties, packageProperty, "}") }

func contentsInManifest(manifest string) string {
	_, rest, _ := strings.Cut(manifest, propertiesKey)
	before, contents, found := strings.Cut(rest, strings.ReplaceAll(packageProperty, `"`, `\"`))
	if !found || strings.Contains(before, `","`) || strings.Contains(before, `"},"`) {
		return ""
	}
	contents, _, _ = strings.Cut(contents, "}")
	return strings.ReplaceAll(contents, `\"`, `"`)
}

func memberOf(contents, key string) string { return after(contents, `"`+key+`":"`, `"`) }
