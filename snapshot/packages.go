package snapshot

import (
	"slices"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
)

// Packages returns packages of catalogs without waiting for them; *packages.Cache implements it.
type Packages interface {
	Version(pkg, csv string, source olm.Catalog) *catalog.Package
	// CatalogChanged is called when a CatalogSource has changed.
	CatalogChanged(source olm.Catalog)
}

// PackageChanged is called when the content of a package has changed in a catalog.
func (f *Feed) PackageChanged(pkg string) {
	if f.Completer != nil {
		f.Completer.PackageChanged(pkg)
	}
	f.happened(event{pkg: pkg})
}

// ContentsChanged is called when it is known what a plan of a namespace changes, or that it changes something else.
func (f *Feed) ContentsChanged(namespace string) { f.happened(event{plansOf: namespace}) }

// catalogsChanged makes every replica follow the catalogs, since every replica judges by them.
func (f *Feed) catalogsChanged(change *Change) {
	if f.Packages == nil {
		return
	}
	for i := range change.Objects {
		if o := change.Objects[i].Object(); o.kind == CatalogSources {
			f.Packages.CatalogChanged(olm.Catalog{Namespace: o.Namespace, Name: o.Name})
		}
	}
}

// rejudgePackages judges again the namespaces that judge by packages that changed.
func (d *draft) rejudgePackages() {
	if len(d.packages) == 0 {
		return
	}
	d.change.Packages = append(d.change.Packages, d.packages...)
	for name, e := range d.next.namespaces.All() {
		if slices.ContainsFunc(d.packages, e.judged.JudgesByPackage) {
			e := d.entryOf(name)
			e.judged, e.notify = true, true
		}
	}
}
