package olm

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/metakey"
)

// CatalogSource is operators.coreos.com/v1alpha1 CatalogSource.
type CatalogSource struct {
	Metadata ObjectMeta        `json:"metadata"`
	Spec     CatalogSourceSpec `json:"spec"`
	Status   struct {
		Connection struct {
			// State is that of OLM's last connection to the catalog, "" if there was none.
			State string `json:"lastObservedState"`
		} `json:"connectionState"`
		// Service is the one that OLM connects to, without spec.address; nil until OLM has made it.
		Service *v1alpha1.RegistryServiceStatus `json:"registryService"`
	} `json:"status"`
}

// Healthy reports whether OLM resolves from the catalog: its last connection was ready.
func (c *CatalogSource) Healthy() bool { return c.Status.Connection.State == "READY" }

// ServedImage returns what that of the spec does; "" also for a catalog whose status names another Service than the one
// that OLM makes for its pods. OLM connects to what the status names, and corrects it only when it makes a new pod.
func (c *CatalogSource) ServedImage() string {
	service := Catalog{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name}.Service()
	made := v1alpha1.RegistryServiceStatus{ServiceNamespace: service.Namespace, ServiceName: service.Name,
		Port: strconv.Itoa(registryPort)}
	if c.Status.Service != nil && c.Status.Service.Address() != made.Address() {
		return ""
	}
	return c.Spec.ServedImage()
}

// Templated returns the CatalogSource with the image that OLM writes into it for annotation ImageTemplate, which may have
// parts of the version of Kubernetes; c itself without the annotation. OLM writes nothing that is no reference.
func (c *CatalogSource) Templated(kubernetes string) *CatalogSource {
	image := c.Metadata.Annotations.ImageTemplate
	if image == "" {
		return c
	}
	if v, err := version.ParseSemantic(kubernetes); err == nil {
		image = strings.NewReplacer("{kube_major_version}", fmt.Sprint(v.Major()), "{kube_minor_version}", fmt.Sprint(v.Minor()),
			"{kube_patch_version}", fmt.Sprint(v.Patch())).Replace(image)
	}
	templated := *c
	templated.Spec.Image = image
	return &templated
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

// defaultRegistry is where container runtimes pull images from that name no registry.
const defaultRegistry = "docker.io"

// ServedImage returns the reference of the image that OLM reads the catalog from; "" if there is none: OLM connects to
// spec.address whatever pods of the image it runs, and those of another type than grpc serve a ConfigMap.
func (s *CatalogSourceSpec) ServedImage() string {
	if s.Address != "" || s.SourceType != "" && s.SourceType != string(v1alpha1.SourceTypeGrpc) {
		return ""
	}
	return s.Image
}

// ImageDigest returns the digest that the reference of the served image ends in; "" for a tag.
func (s *CatalogSourceSpec) ImageDigest() string { return ImageDigest(s.ServedImage()) }

// Registry returns the host, with its port if there is one, that the served image is pulled from; "" without an image.
func (s *CatalogSourceSpec) Registry() string {
	image := s.ServedImage()
	if image == "" {
		return ""
	}
	registry, _ := CutRegistry(image)
	return strings.ToLower(registry)
}

// registryPort is the port of such a Service, and of the pods.
const registryPort = 50051

// Service returns the namespace and the name of the Service by which OLM connects to a catalog that it runs from an image
// (Service in operator-lifecycle-manager pkg/controller/registry/reconciler/grpc.go). Several catalogs may have the same.
func (c Catalog) Service() Catalog {
	return Catalog{Namespace: c.Namespace, Name: strings.ReplaceAll(c.Name, ".", "-")}
}

// CatalogService is a Service that OLM has made for a CatalogSource.
type CatalogService struct {
	// Service is its namespace and name.
	Service Catalog
	// Selects is the name of the CatalogSource to whose pods it leads as OLM has made it; "" for one that was changed:
	// OLM compares the label, and not the spec.
	Selects string
}

// DecodeCatalogService reads the JSON of a Service. It returns nil for one without OLM's label.
func DecodeCatalogService(raw []byte) (*CatalogService, error) {
	o, err := Decode[corev1.Service](raw)
	if err != nil {
		return nil, err
	}
	if _, made := o.Labels[metakey.ServiceHash]; !made {
		return nil, nil //nolint:nilnil // there is neither
	}
	s := &CatalogService{Service: Catalog{Namespace: o.Namespace, Name: o.Name}}
	name := o.Spec.Selector[metakey.CatalogSource]
	if len(o.Spec.Ports) != 1 || o.Spec.Type != "" && o.Spec.Type != corev1.ServiceTypeClusterIP ||
		!maps.Equal(o.Spec.Selector, map[string]string{metakey.CatalogSource: name, metakey.OLMManaged: "true"}) {
		return s, nil
	}
	if p := o.Spec.Ports[0]; p.Port == registryPort && p.TargetPort == intstr.FromInt32(registryPort) &&
		(p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
		s.Selects = name
	}
	return s, nil
}

// The containers of such a pod: the server, and, with spec.grpcPodConfig.extractContent, the one that copies the
// contents of the catalog's image for a server of another image (Pod in operator-lifecycle-manager
// pkg/controller/registry/reconciler/reconciler.go).
const (
	serverContainer  = "registry-server"
	extractContainer = "extract-content"
)

// CatalogPod is a pod that serves a CatalogSource, or may.
type CatalogPod struct {
	Catalog Catalog
	// Digest is that of the image with the contents, as the node reports it, such as "sha256:…"; "" while it is not
	// known.
	Digest string
}

// DecodeCatalogPod reads the JSON of a pod. It returns nil for one that serves no catalog: it has ended, or has no such
// label.
func DecodeCatalogPod(raw []byte) (*CatalogPod, error) {
	pod, err := Decode[corev1.Pod](raw)
	if err != nil {
		return nil, err
	}
	name := pod.Labels[metakey.CatalogSource]
	if name == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, nil //nolint:nilnil // there is neither
	}
	served := &CatalogPod{Catalog: Catalog{Namespace: pod.Namespace, Name: name}}
	statuses, container := pod.Status.ContainerStatuses, serverContainer
	if len(pod.Status.InitContainerStatuses) > 0 {
		statuses, container = pod.Status.InitContainerStatuses, extractContainer
	}
	if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == container }); i >= 0 {
		// "docker.io/a/b@sha256:…", with or without a scheme, or the digest alone
		if id := statuses[i].ImageID; ValidDigest(id) {
			served.Digest = id
		} else {
			served.Digest = ImageDigest(id)
		}
	}
	return served, nil
}
