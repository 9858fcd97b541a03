package facts

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
)

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
