// Package facts has what is known of the cluster, for rules and Constraints to judge by. It has no rule.
package facts

import (
	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
)

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
	Histories map[olm.Catalog]*catalog.History
}

// AddCatalog adds a CatalogSource.
func (c *Cluster) AddCatalog(key olm.Catalog, source *olm.CatalogSource) {
	if _, again := c.Catalogs[key]; !again {
		put(&c.sharing, key.Service(), c.sharing[key.Service()]+1)
	}
	put(&c.Catalogs, key, source)
}

// AddServed adds the digest of the image that a pod of a CatalogSource runs, "" if it is not known.
func (c *Cluster) AddServed(key olm.Catalog, digest string) {
	if before, there := c.Served[key]; there && before != digest {
		digest = "" // which of them answered OLM is not known
	}
	put(&c.Served, key, digest)
}

// AddService adds a Service.
func (c *Cluster) AddService(s *olm.CatalogService) { put(&c.Services, s.Service, s.Selects) }

// AddHistory adds what the images of a CatalogSource changed.
func (c *Cluster) AddHistory(key olm.Catalog, history *catalog.History) {
	put(&c.Histories, key, history)
}

func put[V any](into *map[olm.Catalog]V, key olm.Catalog, value V) {
	if *into == nil {
		*into = map[olm.Catalog]V{}
	}
	(*into)[key] = value
}

// RunningDigest returns the digest of the image that a catalog runs, or why it is not known. What the pods run counts;
// without a pod it is the digest of spec.image, if that ends in one.
func (c *Cluster) RunningDigest(from olm.Catalog) (digest, unknown string) {
	source, exists := c.Catalogs[from]
	served, runs := c.Served[from]
	name, grants := CatalogName(from), grant.Set{Catalogs: c.CatalogNamespaces}
	switch {
	case !exists:
		return "", name + " does not exist, or is not known"
	case source.ServedImage() == "" && source.Spec.ServedImage() != "":
		return "", "OLM does not connect to the Service of the pods of " + name +
			": its status.registryService names another one, which OLM corrects once the field is deleted"
	case source.ServedImage() == "":
		return "", name + " is not served from an image, so that it has no digest"
	case grants.MissingCatalog(from.Namespace) != "":
		return "", "it is not known which image " + name + " runs: " + grants.MissingCatalog(from.Namespace)
	case c.Misconnected(from) != "":
		return "", "it is not known from which image OLM reads " + name + ": " + c.Misconnected(from)
	case served != "":
		return served, ""
	case runs:
		return "", "it is not known which image " + name + " runs: its pods run different ones, or do not say"
	}
	if digest = olm.ImageDigest(source.ServedImage()); digest == "" {
		return "", "it is not known which image " + name + " runs: it has no pod that runs"
	}
	return digest, ""
}

// Misconnected returns why OLM may read a catalog from elsewhere than from its pods, as far as its Service shows; "" if it
// does not. Endpoints of the Service are trusted.
func (c *Cluster) Misconnected(from olm.Catalog) string {
	key := from.Service()
	service := "Service " + text.Name(key.Namespace) + "/" + text.Name(key.Name)
	to, known := c.Services[key]
	switch {
	case c.sharing[key] > 1:
		return "another CatalogSource has the same " + service
	case !known && c.WithoutServices:
	case !known:
		return "its " + service + " does not exist, or is not known"
	case to != from.Name:
		return "its " + service + " does not lead to its pods as OLM has made it"
	}
	return ""
}

// CatalogName returns a catalog as used in reasons.
func CatalogName(c olm.Catalog) string {
	return "catalog " + text.Name(c.Namespace) + "/" + text.Name(c.Name)
}

// TooOldFor returns how the cluster conflicts with spec.minKubeVersion of a ClusterServiceVersion, and what would be
// accepted; "" if it does not, or if its version is not known.
func (c *Cluster) TooOldFor(minKube string) (what, accepted string) {
	has, err := semver.ParseTolerant(c.Version)
	if minKube == "" || err != nil {
		return "", "" // an unparsable version of the API server is not the bundle's fault
	}
	needs, err := semver.ParseTolerant(minKube)
	switch {
	case err != nil:
		return "has minKubeVersion " + text.Quote(minKube) + ", which is not a version,",
			"OLM would install it, but it would stay Pending"
	case has.LT(needs):
		return "needs Kubernetes " + minKube + " or newer", "this cluster has " + c.Version +
			"; OLM would install it, but it would stay Pending"
	}
	return "", ""
}

// TooNewFor returns how the cluster conflicts with the newest OpenShift that a bundle is for, and what would be
// accepted; "" if it does not, or if it is no OpenShift.
func (c *Cluster) TooNewFor(maxOpenShift string) (what, accepted string) {
	has, err := semver.ParseTolerant(c.OpenShift)
	if err != nil {
		return "", ""
	}
	most, err := semver.ParseTolerant(maxOpenShift)
	if err != nil || !olm.NewerOpenShift(has, most) {
		return "", ""
	}
	return "is for OpenShift " + maxOpenShift + " at most", "this cluster has " + c.OpenShift
}
