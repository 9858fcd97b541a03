package snapshot

import (
	"slices"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// InstalledGlobally returns the namespaces, sorted, with a ClusterServiceVersion of a package and an OperatorGroup for
// all namespaces. The slice must not be modified.
func (s *Snapshot) InstalledGlobally(pkg string) []string {
	namespaces, _ := s.global.Get(pkg)
	return namespaces
}

// InstalledElsewhere reports whether another namespace has a package installed for all namespaces.
func (s *Snapshot) InstalledElsewhere(pkg, namespace string) bool {
	return slices.ContainsFunc(s.InstalledGlobally(pkg), func(name string) bool { return name != namespace })
}

// Copied reports whether OLM has copied a ClusterServiceVersion of a package to a namespace, from one in which it is
// installed for others as well. A user of the namespace sees the copy; that another namespace has the package is no
// fact of theirs.
func (s *Snapshot) Copied(pkg, namespace string) bool {
	return slices.ContainsFunc(s.Objects(ClusterServiceVersions, InNamespace(namespace)), func(o *Object) bool {
		return o.Copied() && o.CSV().Bundle.Package == pkg
	})
}

// globalPackages returns the packages, sorted, that are installed in a namespace for all namespaces.
func (e *entry) globalPackages() []string {
	if olm.ScopeOf(e.judged.Groups()) != olm.ScopeCluster {
		return nil
	}
	var packages []string
	for _, csv := range e.judged.CSVs() {
		if state.Here(csv) && csv.Bundle.Package != "" {
			packages = append(packages, csv.Bundle.Package)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// setGlobal replaces the packages that are installed in a namespace for all namespaces.
func (d *draft) setGlobal(namespace string, before, after []string) {
	if slices.Equal(before, after) {
		return
	}
	global := d.next.global.Edit()
	for _, pkg := range before {
		if !slices.Contains(after, pkg) {
			others := slices.DeleteFunc(slices.Clone(d.next.InstalledGlobally(pkg)),
				func(name string) bool { return name == namespace })
			if len(others) == 0 {
				global.Remove(pkg)
			} else {
				global.Set(pkg, others)
			}
			d.change.Packages = append(d.change.Packages, pkg)
		}
	}
	for _, pkg := range after {
		if !slices.Contains(before, pkg) {
			others := d.next.InstalledGlobally(pkg)
			i, _ := slices.BinarySearch(others, namespace)
			global.Set(pkg, slices.Insert(slices.Clone(others), i, namespace))
			d.change.Packages = append(d.change.Packages, pkg)
		}
	}
	d.next.global = global.Next
}
