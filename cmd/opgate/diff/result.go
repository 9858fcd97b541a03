package diff

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
)

// result is what is printed of one ClusterServiceVersion.
type result struct {
	// plan is the InstallPlan that brings it, as namespace/name; empty for one of a catalog.
	plan string
	*change.Set
	// notCompared are the parts that the input does not contain, and why says what it has instead. Without them a
	// digest would stand for another change.
	notCompared []part
	why         string
}

// part is what a comparison is about.
type part string

// digest returns what identifies the change; empty if not everything was compared.
func (r *result) digest() string {
	if len(r.notCompared) > 0 {
		return ""
	}
	return r.Digest()
}

// reviewed reports whether a policy can hold the change.
func (r *result) reviewed() bool {
	return slices.ContainsFunc(r.Differences,
		func(d change.Difference) bool { return slices.Contains(change.Reviewable, d.Class) })
}

// risky returns the number of risky differences.
func (r *result) risky() int {
	n := 0
	for _, d := range r.Differences {
		if d.Risk == change.Risky {
			n++
		}
	}
	return n
}

// title says what replaces what.
func (r *result) title() string {
	title := text.Name(r.CSV)
	if r.From == "" {
		title += " is installed for the first time"
	} else {
		title += " replaces " + text.Name(r.From)
	}
	if r.plan != "" {
		title = text.Escape(r.plan) + ": " + title
	}
	return title
}

// origin says which package it is, and where it comes from.
func (r *result) origin() string {
	var parts []string
	add := func(what, name string) {
		if name != "" {
			parts = append(parts, what+" "+text.Name(name))
		}
	}
	add("package", r.Package)
	addVersion := func(what, version, release string) {
		if version != "" {
			parts = append(parts, what+" "+olm.VersionText(text.Name(version), release))
		}
	}
	addVersion("version", r.Version, r.Release)
	addVersion("before", r.FromVersion, r.FromRelease)
	add("channel", r.Channel)
	add("catalog", r.Catalog)
	return strings.Join(parts, ", ")
}

// missing names what was not compared, as a sentence; empty if everything was.
func (r *result) missing() string {
	if len(r.notCompared) == 0 {
		return ""
	}
	names := make([]string, len(r.notCompared))
	for i, p := range r.notCompared {
		names[i] = string(p)
	}
	return strings.Join(names, ", ") + ": " + r.why
}
