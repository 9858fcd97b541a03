package olm

import "sync"

// images are bundles and catalogs that are in no registry, for the kubelet here, which plays the Jobs and pods that would
// pull them.
type images struct {
	mu      sync.Mutex
	content map[string]map[string][]byte // of bundles, by image and file name
	digests map[string]string            // of catalogs, by image
}

// tag makes the reference of a catalog's image point to a digest.
func (i *images) tag(image, digest string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.digests == nil {
		i.digests = map[string]string{}
	}
	i.digests[image] = digest
}

// digest is that of the image of a catalog, "" where there is none of that name.
func (i *images) digest(image string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.digests[image]
}

// add adds the images of a catalog.
func (i *images) add(catalog string, packages []Package) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.content == nil {
		i.content = map[string]map[string][]byte{}
	}
	for _, p := range packages {
		if !p.Images {
			continue
		}
		for _, version := range p.Versions {
			i.content[p.bundleImage(catalog, version)] = p.manifests(version)
		}
	}
}

// manifests are the files of an image, nil where there is none of that name.
func (i *images) manifests(image string) map[string][]byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.content[image]
}
