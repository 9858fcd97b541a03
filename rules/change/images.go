package change

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/opgate/opgate/internal/text"
)

// compareImages adds the registries, with the first element of the path, from which no installed image comes. Hosts such as quay.io serve
// anybody, so the host alone would say nothing about who publishes.
func compareImages(s *Set, from, to *Contents) error {
	before, err := from.publishers()
	if err != nil {
		return err
	}
	after, err := to.publishers()
	if err != nil {
		return err
	}
	for _, publisher := range sortedKeys(after) {
		if !before[publisher] {
			s.add(Images, Notable, "images from %s", text.Name(publisher))
		}
	}
	return nil
}

// relatedImage begins the names of environment variables with images that an operator runs.
const relatedImage = "RELATED_IMAGE_"

// publishers returns the registries of all images that a bundle names.
func (c *Contents) publishers() (map[string]bool, error) {
	found := map[string]bool{}
	add := func(image string) {
		if image != "" {
			found[publisher(image)] = true
		}
	}
	for i := range c.spec.RelatedImages {
		add(c.spec.RelatedImages[i].Image)
	}
	pods, err := c.pods()
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range list {
				add(list[i].Image)
				for _, env := range list[i].Env {
					if strings.HasPrefix(env.Name, relatedImage) {
						add(env.Value)
					}
				}
			}
		}
	}
	return found, nil
}

// publisher returns the host of an image and the first element of its path if another one follows: quay.io/coreos for
// quay.io/coreos/etcd:v3, registry.local for registry.local/etcd. Images without a host are those of docker.io.
func publisher(image string) string {
	image, _, _ = strings.Cut(image, "@")
	host, path, found := strings.Cut(image, "/")
	if !found {
		return "docker.io/library"
	}
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "docker.io/" + host
	}
	if first, _, more := strings.Cut(path, "/"); more {
		return host + "/" + first
	}
	return host
}
