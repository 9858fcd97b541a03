package manifests

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
)

// deployer is an Application of Argo CD, or a Kustomization of Flux, that applies a path.
type deployer struct {
	// name is its kind and name.
	name      string
	paths     []string
	namespace string
	// replaces is set where the namespace replaces that of objects, below where directories below the path are applied.
	replaces, below bool
}

// deploying is what is read of an Application or a Flux Kustomization.
type deploying struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Path            string    `json:"path"`
		TargetNamespace string    `json:"targetNamespace"`
		Source          *argoPath `json:"source"`
		Sources         []argoPath
		Destination     struct {
			Namespace string `json:"namespace"`
		} `json:"destination"`
	} `json:"spec"`
	Items []json.RawMessage `json:"items"`
}

type argoPath struct {
	Path      string `json:"path"`
	Directory struct {
		Recurse bool `json:"recurse"`
	} `json:"directory"`
}

const (
	groupArgo = "argoproj.io"
	groupFlux = "kustomize.toolkit.fluxcd.io"
)

// findDeployers finds the Applications and Flux Kustomizations in files and in what was built, and not used by others.
func (in *Input) findDeployers(used map[string]bool) {
	for _, s := range in.sources {
		for _, k := range s.kustomizations {
			if k.build != nil && !used[k.root] {
				in.addDeployers(k.build.documents)
			}
		}
		for _, file := range s.files {
			if file == cli.StandardInput {
				continue
			}
			data, err := readFile(file)
			if err == nil && (bytes.Contains(data, []byte(groupArgo)) || bytes.Contains(data, []byte(groupFlux))) {
				documents, _ := documentsOf(file, data)
				in.addDeployers(documents)
			}
		}
	}
}

func (in *Input) addDeployers(documents []document) {
	for _, d := range documents {
		var o deploying
		h, faults := headOf(d.raw)
		if len(faults) > 0 || json.Unmarshal(d.raw, &o) != nil {
			continue
		}
		for _, item := range o.Items {
			in.addDeployers([]document{{raw: item}})
		}
		found := deployer{name: text.Name(o.Kind) + " " + text.Name(o.Metadata.Name)}
		switch group := groupOf(h.apiVersion); {
		case group == groupArgo && h.kind == "Application":
			if o.Spec.Source != nil {
				o.Spec.Sources = append(o.Spec.Sources, *o.Spec.Source)
			}
			for _, s := range o.Spec.Sources {
				if s.Path != "" { // a chart of a repository has none
					found.paths, found.below = append(found.paths, s.Path), found.below || s.Directory.Recurse
				}
			}
			found.namespace = o.Spec.Destination.Namespace
		case group == groupFlux && h.kind == "Kustomization":
			found.name = "Flux " + found.name
			found.paths, found.namespace = []string{o.Spec.Path}, o.Spec.TargetNamespace
			found.replaces, found.below = true, true
		default:
			continue
		}
		if !slices.ContainsFunc(in.deployers, func(other deployer) bool {
			return other.name == found.name && other.namespace == found.namespace && slices.Equal(other.paths, found.paths)
		}) {
			in.deployers = append(in.deployers, found)
		}
	}
}

// deployersOf returns those that apply a directory of a source, one for each namespace that they set.
func (in *Input) deployersOf(s *source, dir string) (applied []*deployer) {
	for i := range in.deployers {
		d := &in.deployers[i]
		if slices.ContainsFunc(d.paths, func(p string) bool {
			p = path.Clean(strings.TrimPrefix(p, "/"))
			return d.applies(p, dir) || d.applies(path.Join(s.name, p), dir)
		}) && !slices.ContainsFunc(applied, func(other *deployer) bool {
			return other.namespace == d.namespace && other.replaces == d.replaces
		}) {
			applied = append(applied, d)
		}
	}
	return applied
}

// applies reports whether a directory is that of a path, or below it where that is applied, too.
func (d *deployer) applies(p, dir string) bool {
	return dir == p || d.below && (p == "." || strings.HasPrefix(dir, p+"/"))
}
