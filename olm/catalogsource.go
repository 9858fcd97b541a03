package olm

import (
	"crypto/sha256"
	"regexp"
	"strings"

	"github.com/opgate/opgate/internal/apijson"
)

// CatalogSource is operators.coreos.com/v1alpha1 CatalogSource.
type CatalogSource struct {
	Metadata ObjectMeta        `json:"metadata"`
	Spec     CatalogSourceSpec `json:"spec"`
	Status   struct {
		Connection struct {
			// State is that of OLM's last connection to the catalog, "" if there was none.
			State   string `json:"lastObservedState"`
			Address string `json:"address"`
		} `json:"connectionState"`
		// Service is the one that OLM connects to, without spec.address; nil until OLM has made it.
		Service *registryService `json:"registryService"`
		// Polled is when OLM last looked for a newer image.
		Polled string `json:"latestImageRegistryPoll"`
	} `json:"status"`
}

// registryService is a Service and its port.
type registryService struct {
	Namespace string `json:"serviceNamespace"`
	Name      string `json:"serviceName"`
	Port      string `json:"port"`
}

// sourceTypeGRPC is the type of a CatalogSource that is served from an image, or at an address.
const sourceTypeGRPC = "grpc"

// connectionReady is the state of a connection that OLM resolves from.
const connectionReady = "READY"

// Healthy reports whether OLM resolves from the catalog: its last connection was ready.
func (c *CatalogSource) Healthy() bool { return c.Status.Connection.State == connectionReady }

// ServedImage returns what that of the spec does; "" also for a catalog whose status names another Service than the one
// that OLM makes for its pods. OLM connects to what the status names, and corrects it only when it makes a new pod.
func (c *CatalogSource) ServedImage() string {
	service := Catalog{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name}.Service()
	made := registryService{Namespace: service.Namespace, Name: service.Name, Port: registryPort}
	if c.Status.Service != nil && *c.Status.Service != made {
		return ""
	}
	return c.Spec.ServedImage()
}

// Deprecations are a catalog's messages on what is deprecated of a version; "" for what is not.
type Deprecations struct{ Package, Channel, Version string }

// CatalogSourceSpec is what rules read of the spec of a CatalogSource.
type CatalogSourceSpec struct {
	SourceType string `json:"sourceType"`
	Image      string `json:"image"`
	Address    string `json:"address"`
	ConfigMap  string `json:"configMap"`
	Publisher  string `json:"publisher"`
	Priority   int64  `json:"priority"`

	// Digest is the SHA-256 of the whole spec as written.
	Digest [sha256.Size]byte `json:"-"`
}

// UnmarshalJSON also records the digest of the whole spec.
func (s *CatalogSourceSpec) UnmarshalJSON(raw []byte) error {
	type plain CatalogSourceSpec
	err := apijson.Unmarshal(raw, (*plain)(s))
	s.Digest = sha256.Sum256(raw)
	return err
}

// imageDigest is the digest of an image reference, as container runtimes read it.
var imageDigest = regexp.MustCompile(`^[^@]+@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// defaultRegistry is where container runtimes pull images from that name no registry.
const defaultRegistry = "docker.io"

// ServedImage returns the reference of the image that OLM reads the catalog from; "" if there is none: OLM connects to
// spec.address whatever pods of the image it runs, and those of another type than grpc serve a ConfigMap.
func (s *CatalogSourceSpec) ServedImage() string {
	if s.Address != "" || s.SourceType != "" && s.SourceType != sourceTypeGRPC {
		return ""
	}
	return s.Image
}

// ImageDigest returns the digest that the reference of the served image ends in, such as "sha256:…"; "" for a tag.
func (s *CatalogSourceSpec) ImageDigest() string {
	if m := imageDigest.FindStringSubmatch(s.ServedImage()); m != nil {
		return m[1]
	}
	return ""
}

// Registry returns the host, with its port if there is one, that the served image is pulled from; "" without an image.
// As for container runtimes, the first part of the reference is a host if it has a dot or a port, or is localhost.
func (s *CatalogSourceSpec) Registry() string {
	image := s.ServedImage()
	if image == "" {
		return ""
	}
	host, _, found := strings.Cut(image, "/")
	if !found || !namesHost(host) {
		return defaultRegistry
	}
	return strings.ToLower(host)
}
