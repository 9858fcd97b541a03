// Package krew writes the manifest by which krew, the plugin manager of kubectl, installs a plugin.
package krew

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// Plugin is what a manifest states. The fields are those of krew.googlecontainertools.github.com/v1alpha2.
type Plugin struct {
	Name             string
	Version          string
	Homepage         string
	ShortDescription string
	Description      string
	Platforms        []Platform
}

// Platform is the archive for a platform. The names are Go's.
type Platform struct {
	OS, Arch string
	URI      string
	SHA256   string
	// Bin is the program in the archive.
	Bin string
}

// Manifest returns the manifest, in YAML.
func (p Plugin) Manifest() ([]byte, error) {
	type labels struct {
		OS   string `json:"os"`
		Arch string `json:"arch"`
	}
	type selector struct {
		MatchLabels labels `json:"matchLabels"`
	}
	type platform struct {
		Selector selector `json:"selector"`
		URI      string   `json:"uri"`
		SHA256   string   `json:"sha256"`
		Bin      string   `json:"bin"`
	}
	type spec struct {
		Version          string     `json:"version"`
		Homepage         string     `json:"homepage"`
		ShortDescription string     `json:"shortDescription"`
		Description      string     `json:"description"`
		Platforms        []platform `json:"platforms"`
	}
	var manifest struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec spec `json:"spec"`
	}
	manifest.APIVersion, manifest.Kind = "krew.googlecontainertools.github.com/v1alpha2", "Plugin"
	manifest.Metadata.Name = p.Name
	manifest.Spec = spec{
		Version:          p.Version,
		Homepage:         p.Homepage,
		ShortDescription: p.ShortDescription,
		Description:      strings.TrimSpace(p.Description) + "\n",
	}
	for _, from := range p.Platforms {
		if from.Arch == "s390x" {
			continue // the index of krew refuses a manifest with it; kubectl finds the archive's program on the PATH
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, platform{
			Selector: selector{MatchLabels: labels{OS: from.OS, Arch: from.Arch}}, URI: from.URI, SHA256: from.SHA256,
			Bin: from.Bin,
		})
	}
	return yaml.Marshal(manifest)
}
