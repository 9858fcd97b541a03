package olm

import (
	"slices"
	"strings"
)

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

// containerStatus is what is read of the status of a container.
type containerStatus struct {
	Name    string `json:"name"`
	ImageID string `json:"imageID"`
}

// DecodeCatalogPod reads the JSON of a pod. It returns nil for one that serves no catalog: it has ended, or has no such
// label.
func DecodeCatalogPod(raw []byte) (*CatalogPod, error) {
	pod, err := decodeObject[struct {
		Metadata struct {
			Namespace string `json:"namespace"`
			Labels    struct {
				Catalog string `json:"olm.catalogSource"`
			} `json:"labels"`
		} `json:"metadata"`
		Status struct {
			Phase string            `json:"phase"`
			Init  []containerStatus `json:"initContainerStatuses"`
			Main  []containerStatus `json:"containerStatuses"`
		} `json:"status"`
	}](raw)
	if err != nil {
		return nil, err
	}
	name := pod.Metadata.Labels.Catalog
	if name == "" || pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed" {
		return nil, nil //nolint:nilnil // there is neither
	}
	served := &CatalogPod{Catalog: Catalog{Namespace: pod.Metadata.Namespace, Name: name}}
	statuses, container := pod.Status.Main, serverContainer
	if len(pod.Status.Init) > 0 {
		statuses, container = pod.Status.Init, extractContainer
	}
	if i := slices.IndexFunc(statuses, func(s containerStatus) bool { return s.Name == container }); i >= 0 {
		served.Digest = digestOfID(statuses[i].ImageID)
	}
	return served, nil
}

// digestOfID returns the digest in an imageID: "docker.io/a/b@sha256:…", with or without a scheme, or the digest alone.
func digestOfID(id string) string {
	if !strings.Contains(id, "@") {
		id = "@" + id
	}
	if m := imageDigest.FindStringSubmatch("image" + id[strings.LastIndexByte(id, '@'):]); m != nil {
		return m[1]
	}
	return ""
}
