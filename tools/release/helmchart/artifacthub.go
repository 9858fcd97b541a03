package helmchart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Change is an entry of the changelog, as Artifact Hub shows it.
type Change struct {
	Kind        string `json:"kind"`
	Description string `json:"description"`
}

// changeKinds are the kinds that Artifact Hub knows.
var changeKinds = []string{"added", "changed", "deprecated", "removed", "fixed", "security"}

// Annotations are what Artifact Hub reads of a release from Chart.yaml, besides what is always there.
func Annotations(image string, prerelease bool, changes []Change) (map[string]string, error) {
	for _, change := range changes {
		if !slices.Contains(changeKinds, change.Kind) {
			return nil, fmt.Errorf("CHANGELOG.md: heading %q: use one of %s", change.Kind,
				strings.Join(changeKinds, ", "))
		}
	}
	listed, err := yaml.Marshal(changes)
	if err != nil {
		return nil, err
	}
	images, err := yaml.Marshal([]map[string]string{{"name": "opgate", "image": image}})
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"artifacthub.io/changes":    string(listed),
		"artifacthub.io/images":     string(images),
		"artifacthub.io/prerelease": strconv.FormatBool(prerelease),
	}, nil
}

// definitions is the annotation that lists the definitions in a directory of a chart.
func definitions(dir string) (map[string]string, error) {
	type definition struct {
		Kind        string `json:"kind"`
		Version     string `json:"version"`
		Name        string `json:"name"`
		DisplayName string `json:"displayName"`
		Description string `json:"description"`
	}
	var all []definition
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		for _, version := range crd.Spec.Versions {
			if !version.Storage {
				continue
			}
			description := ""
			if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
				description = version.Schema.OpenAPIV3Schema.Description
			}
			all = append(all, definition{
				Kind: crd.Spec.Names.Kind, Version: version.Name, Name: crd.Name, DisplayName: crd.Spec.Names.Kind,
				Description: strings.Join(strings.Fields(description), " "),
			})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	listed, err := yaml.Marshal(all)
	return map[string]string{"artifacthub.io/crds": string(listed)}, err
}
