package change

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// compareImages adds the registries, with the first element of the path, from which no installed image comes. Hosts
// such as quay.io serve every publisher, so the host alone would say nothing about who publishes.
func compareImages(s *Set, from, to *Contents) error {
	before, after := from.publishers(), to.publishers()
	for _, publisher := range sortedKeys(after) {
		if !before[publisher] {
			s.add(Images, Notable, "images from %s", text.Name(publisher))
		}
	}
	return nil
}

// publishers returns the registries of all images that a bundle names.
func (c *Contents) publishers() map[string]bool {
	found := map[string]bool{}
	add := func(image string) {
		if image != "" {
			found[publisher(image)] = true
		}
	}
	for i := range c.spec.RelatedImages {
		add(c.spec.RelatedImages[i].Image)
	}
	for i := range c.pods {
		for _, list := range [][]corev1.Container{c.pods[i].Spec.InitContainers, c.pods[i].Spec.Containers} {
			for i := range list {
				add(list[i].Image)
				for _, env := range list[i].Env {
					if strings.HasPrefix(env.Name, olm.RelatedImagePrefix) {
						add(env.Value)
					}
				}
			}
		}
	}
	return found
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
