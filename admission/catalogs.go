package admission

import (
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
)

// Catalogs returns, without a request, a package of a catalog; nil where it is not known. A source with an empty part is any
// catalog that has the package.
type Catalogs interface {
	Get(pkg string, source olm.Catalog) *catalog.Package
}

// offered returns a package of a catalog; nil if it is not known.
func (g *Gate) offered(pkg string, source olm.Catalog) *catalog.Package {
	if g.catalogs == nil {
		return nil
	}
	return g.catalogs.Get(pkg, source)
}
