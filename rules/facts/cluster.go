// Package facts has what is known of the cluster, for rules and Constraints to judge by. It has no rule.
package facts

import (
	"time"

	"github.com/opgate/opgate/olm"
)

// History is what the images of a CatalogSource changed. It is comparable: another one is another history.
type History interface {
	// Newest returns the digest of the last image that was compared.
	Newest() string
	// Jump returns, in words, the last jump since an accepted image; "" if there is none.
	Jump(maxChanged int, accepted []string) string
	// FirstSeen returns when a version of a package was first offered; zero if that is not recorded.
	FirstSeen(pkg, csv string) time.Time
}

// Cluster is what is known of the cluster. The zero value is one of which nothing is known.
type Cluster struct {
	// Version is the Kubernetes version, such as "1.36.3"; empty if not known yet.
	Version string
	// OpenShift is the OpenShift version, such as "4.19.3"; empty on another distribution, or if not known.
	OpenShift string
	// Catalogs are all CatalogSources.
	Catalogs map[olm.Catalog]*olm.CatalogSource
	// Served are the digests of the images that the pods of CatalogSources run; "" where they differ, or one is not
	// known.
	Served map[olm.Catalog]string
	// Services are, by the Services that OLM has made, the names of the CatalogSources to whose pods they lead; "" for one
	// that was changed. One that does not exist, or is not known yet, has none.
	Services map[olm.Catalog]string
	// WithoutServices is set where OLM has written nothing, as in files: a Service that has none is as OLM makes it.
	WithoutServices bool
	// sharing is the number of CatalogSources by Service.
	sharing map[olm.Catalog]int
	// CatalogNamespaces are those in which these pods and Services are watched; nil for all.
	CatalogNamespaces []string
	// Histories are what the images of CatalogSources changed.
	Histories map[olm.Catalog]History
}

// AddCatalog adds a CatalogSource.
func (c *Cluster) AddCatalog(key olm.Catalog, source *olm.CatalogSource) {
	if c.Catalogs == nil {
		c.Catalogs, c.sharing = map[olm.Catalog]*olm.CatalogSource{}, map[olm.Catalog]int{}
	}
	if _, again := c.Catalogs[key]; !again {
		c.sharing[key.Service()]++
	}
	c.Catalogs[key] = source
}

// AddServed adds the digest of the image that a pod of a CatalogSource runs, "" if it is not known.
func (c *Cluster) AddServed(key olm.Catalog, digest string) {
	if c.Served == nil {
		c.Served = map[olm.Catalog]string{}
	}
	if before, there := c.Served[key]; there && before != digest {
		digest = "" // which of them answered OLM is not known
	}
	c.Served[key] = digest
}

// AddService adds a Service.
func (c *Cluster) AddService(s *olm.CatalogService) {
	if c.Services == nil {
		c.Services = map[olm.Catalog]string{}
	}
	c.Services[s.Service] = s.Selects
}

// AddHistory adds what the images of a CatalogSource changed.
func (c *Cluster) AddHistory(key olm.Catalog, history History) {
	if c.Histories == nil {
		c.Histories = map[olm.Catalog]History{}
	}
	c.Histories[key] = history
}
