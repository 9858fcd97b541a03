package diff

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/text"
)

// lifecycleSchema is the schema of the objects with which catalogs of OpenShift say how long versions are supported
// (enhancement olm/lifecycle-and-compatibility). It is optional, and nothing in the API of a cluster has it.
const lifecycleSchema = "io.openshift.operators.lifecycles.v1alpha1"

const (
	// maxLifecycle bounds the object of one package, in bytes.
	maxLifecycle = 1 << 20
	// maxPlatforms bounds the platforms in a note.
	maxPlatforms = 10
)

// lifecycle is the object of one package.
type lifecycle struct {
	Versions []lifecycleVersion `json:"versions"`
}

// lifecycleVersion has the phases of all versions with the same first two numbers, MAJOR.MINOR.
type lifecycleVersion struct {
	Name      string     `json:"name"`
	Phases    []phase    `json:"phases"`
	Platforms []platform `json:"platformCompatibility"`
}

// phase is a time of support. A date that is missing is open; the last day belongs to it.
type phase struct {
	Name  string `json:"name"`
	Start date   `json:"startDate"`
	End   date   `json:"endDate"`
}

type platform struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions"`
}

// date is a day as YYYY-MM-DD, so that days are in the order of their texts; "" if there is none.
type date string

// UnmarshalJSON refuses what is no day.
func (d *date) UnmarshalJSON(raw []byte) error {
	var written string
	if err := json.Unmarshal(raw, &written); err != nil {
		return errors.New("a date is not text")
	}
	if _, err := time.Parse(time.DateOnly, written); err != nil && written != "" {
		return fmt.Errorf("%s is not a date such as 2027-03-31", text.Quote(written))
	}
	*d = date(written)
	return nil
}

// lifecycleNotes returns what the objects of a package, at most one, say of a version on a day (UTC).
func lifecycleNotes(objects [][]byte, pkg, version string, now time.Time) []string {
	switch {
	case len(objects) == 0:
		return nil
	case len(objects) > 1:
		return []string{"the catalog has several life cycles of package " + text.Name(pkg)}
	}
	unread := func(why string) []string {
		return []string{"the life cycle of package " + text.Name(pkg) + " in the catalog cannot be read: " + why}
	}
	if len(objects[0]) > maxLifecycle {
		return unread(fmt.Sprintf("it has more than the %d bytes that are read", maxLifecycle))
	}
	var cycle lifecycle
	if err := json.Unmarshal(objects[0], &cycle); err != nil {
		return unread(text.Escape(err.Error()))
	}
	parsed, err := semver.Parse(version)
	if err != nil {
		return unread("version " + text.Quote(version) + " is not a semantic version")
	}
	line := fmt.Sprintf("%d.%d", parsed.Major, parsed.Minor)
	i := slices.IndexFunc(cycle.Versions, func(v lifecycleVersion) bool { return v.Name == line })
	if i < 0 {
		return []string{"the life cycle of package " + text.Name(pkg) + " in the catalog has no version " + line}
	}
	found := &cycle.Versions[i]
	notes := []string{"life cycle in the catalog: " + text.Name(pkg) + " " + line + " " +
		support(found.Phases, date(now.UTC().Format(time.DateOnly)))}
	for _, p := range found.Platforms[:min(len(found.Platforms), maxPlatforms)] {
		notes = append(notes, text.Name(pkg)+" "+line+" is for "+text.Name(p.Name)+" "+
			text.Names(p.Versions, maxPlatforms))
	}
	return notes
}

// support returns in which phases a version is on a day, as a clause: "is in phase Maintenance until 2027-03-31".
func support(phases []phase, today date) string {
	var current []string
	var last, next *phase
	for i := range phases {
		switch p := &phases[i]; {
		case p.Start > today:
			if next == nil || p.Start < next.Start {
				next = p
			}
		case p.End != "" && p.End < today:
			if last == nil || last.End < p.End {
				last = p
			}
		case p.End == "":
			current = append(current, "phase "+text.Quote(p.Name)+", which has no end")
		default:
			current = append(current, "phase "+text.Quote(p.Name)+" until "+string(p.End))
		}
	}
	switch {
	case len(current) > 0:
		return "is in " + text.Join(current, maxPlatforms)
	case next != nil:
		return "is in no phase before " + string(next.Start) + ", when " + text.Quote(next.Name) + " begins"
	case last != nil:
		return "has reached its end: the last phase, " + text.Quote(last.Name) + ", ended on " + string(last.End)
	}
	return "has no phase"
}
