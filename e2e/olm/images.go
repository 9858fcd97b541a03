package olm

import "sync"

// images are bundles that are in no registry, for the kubelet here, which plays the Jobs that would pull them.
type images struct {
	mu      sync.Mutex
	content map[string]map[string][]byte // by image and file name
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
