package olm

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"

	"github.com/opgate/opgate/internal/apijson"
)

// Image is an image that an operator names: what it runs, or may have its own workloads run.
type Image struct {
	// Reference is as it is written. It is empty for a variable whose value comes from another object.
	Reference string
	// From is the place in which it is named: container, initContainer, volume, env, relatedImages, or config for a
	// variable in spec.config of the Subscription. Name is that of the container, the volume, the variable or the
	// related image.
	From, Name string
}

// Parts returns the registry of an image, docker.io if none is named, its repository there, tag and digest; each is ""
// if the reference has none, and all are for a reference that container runtimes do not read.
func (i *Image) Parts() (registry, repository, tag, digest string) {
	named, err := reference.ParseNormalizedNamed(i.Reference)
	if err != nil {
		return "", "", "", ""
	}
	if tagged, ok := named.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		digest = digested.Digest().String()
	}
	return strings.ToLower(reference.Domain(named)), reference.Path(named), tag, digest
}

// CutRegistry cuts an image reference, which may have parts that are templates, after its registry, docker.io if none is
// named: as for container runtimes, the first part is a registry if it has a dot, a port or an upper-case letter, or is
// localhost.
func CutRegistry(image string) (registry, repository string) {
	registry, repository, found := strings.Cut(image, "/")
	switch {
	case !found:
		return defaultRegistry, "library/" + image
	case registry == "index."+defaultRegistry:
		return defaultRegistry, repository
	case !strings.ContainsAny(registry, ".:") && registry != "localhost" && registry == strings.ToLower(registry):
		return defaultRegistry, image
	}
	return registry, repository
}

// images are those that a part of a ClusterServiceVersion names, each once; if they are too many or too long, only the
// reason is kept.
type images struct {
	list []Image
	why  string
	// known are the images of the list while a part is read.
	known map[Image]struct{}
}

// add adds images, unless they exceed a limit.
func (m *images) add(found []Image) {
	for _, image := range found {
		_, known := m.known[image]
		switch {
		case m.why != "":
		case len(image.Reference) > maxImageText || len(image.Name) > maxImageText:
			m.why = fmt.Sprintf("has an image with a text of more than %d bytes", maxImageText)
		case known:
		case len(m.list) == maxImages:
			m.why = fmt.Sprintf("has more than %d images", maxImages)
		default:
			m.known[image] = struct{}{}
			m.list = append(m.list, image)
		}
	}
	if m.why != "" {
		m.list = nil
	}
}

// read decodes a part that names images, unless it has too many values.
func (m *images) read(raw []byte, into any) bool {
	n, _ := apijson.Measure(raw)
	if n > maxListValues {
		m.why = fmt.Sprintf("has images in %d values, more than the %d that are read", n, maxListValues)
		return false
	}
	if err := apijson.Unmarshal(raw, into); err != nil {
		m.why = "has images that cannot be read: " + err.Error()
		return false
	}
	m.known = map[Image]struct{}{}
	return true
}

// relatedImages are spec.relatedImages.
type relatedImages struct{ images }

// UnmarshalJSON counts the values first. It never fails: of what cannot be read the reason is kept.
func (r *relatedImages) UnmarshalJSON(raw []byte) error {
	var list []v1alpha1.RelatedImage
	if r.images = (images{}); r.read(raw, &list) {
		for _, related := range list {
			r.add([]Image{{Reference: related.Image, From: "relatedImages", Name: related.Name}})
		}
		r.known = nil
	}
	return nil
}

// deployedImages are those of spec.install.spec.deployments.
type deployedImages struct{ images }

// container is what is read of a container for its images.
type container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Env   []struct {
		Name      string    `json:"name"`
		Value     string    `json:"value"`
		ValueFrom *struct{} `json:"valueFrom"`
	} `json:"env"`
}

// images returns the image of a container, and those of its variables. A variable with an empty value names none.
func (c *container) images(from string) []Image {
	all := []Image{{Reference: c.Image, From: from, Name: c.Name}}
	for _, env := range c.Env {
		if strings.HasPrefix(env.Name, RelatedImagePrefix) && (env.Value != "" || env.ValueFrom != nil) {
			all = append(all, Image{Reference: env.Value, From: "env", Name: env.Name})
		}
	}
	return all
}

// UnmarshalJSON counts the values first. It never fails: of what cannot be read the reason is kept.
func (d *deployedImages) UnmarshalJSON(raw []byte) error {
	var list []struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []container `json:"initContainers"`
					Containers     []container `json:"containers"`
					Volumes        []struct {
						Name  string `json:"name"`
						Image *struct {
							Reference string `json:"reference"`
						} `json:"image"`
					} `json:"volumes"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	d.images = images{}
	if !d.read(raw, &list) {
		return nil
	}
	for i := range list {
		pod := &list[i].Spec.Template.Spec
		for j := range pod.InitContainers {
			d.add(pod.InitContainers[j].images("initContainer"))
		}
		for j := range pod.Containers {
			d.add(pod.Containers[j].images("container"))
		}
		for _, volume := range pod.Volumes {
			if volume.Image != nil {
				d.add([]Image{{Reference: volume.Image.Reference, From: "volume", Name: volume.Name}})
			}
		}
	}
	d.known = nil
	return nil
}

// Images returns the images that the ClusterServiceVersion names. Objects that the bundle brings are not read.
func (d *Demands) Images() ([]Image, error) {
	var all []Image
	for _, part := range []*images{&d.Spec.Install.Spec.Deployments.images, &d.Spec.Related.images} {
		if part.why != "" {
			return nil, fmt.Errorf("the ClusterServiceVersion %s", part.why)
		}
		all = append(all, part.list...)
	}
	return all, nil
}

// Images returns the images in variables of a config, sorted by name. That of a variable whose value comes from another
// object has no reference.
func (c *ConfigParts) Images() []Image {
	var all []Image
	for _, name := range c.Env {
		if reference, ok := c.relatedImages[name]; ok {
			all = append(all, Image{Reference: reference, From: "config", Name: name})
		}
	}
	return all
}
