package adopt

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/text"
)

// write writes the files and a kustomization to the directory. Without --force it writes nothing if one of them exists.
// A kustomization that exists stays as it is: what is left out of it, a GitOps tool would delete.
func (o *options) write(files []file, stderr io.Writer) error {
	if !o.force {
		for _, f := range files {
			if name := filepath.Join(o.output, f.name); exists(name) {
				return self.Unusable("%s exists already, and nothing was written: --force overwrites it", text.Escape(name))
			}
		}
	}
	kustomization, listed, err := o.kustomization()
	if err != nil {
		return err
	}
	var missing []string
	for _, f := range files {
		if !slices.Contains(listed, f.name) && !slices.Contains(listed, "./"+f.name) {
			missing = append(missing, f.name)
		}
	}
	if kustomization == "" {
		files = append(files, file{konfig.DefaultKustomizationFileName(),
			"apiVersion: " + types.KustomizationVersion + "\nkind: " + types.KustomizationKind + "\nresources:\n  - " +
				strings.Join(missing, "\n  - ") + "\n"})
	} else if len(missing) > 0 {
		fmt.Fprintf(stderr, "%s exists already and stays as it is: add %s to its resources\n",
			text.Escape(kustomization), strings.Join(missing, ", "))
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil { //nolint:gosec // manifests in git are for everyone
		return self.Unusable("%v", err)
	}
	for _, f := range files {
		name := filepath.Join(o.output, f.name)
		if err := os.WriteFile(name, []byte(f.text), 0o644); err != nil { //nolint:gosec // as above
			return self.Unusable("%v", err)
		}
		fmt.Fprintln(stderr, "written: "+text.Escape(name))
	}
	return nil
}

// kustomization returns the path of the kustomization of the directory, and the resources that it lists; "" if there is
// none.
func (o *options) kustomization() (path string, resources []string, err error) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		path := filepath.Join(o.output, name)
		if !exists(path) {
			continue
		}
		data, err := os.ReadFile(path) //nolint:gosec // it is in the directory that the user names
		var read types.Kustomization
		if err == nil {
			err = yaml.Unmarshal(data, &read)
		}
		if err != nil {
			return "", nil, self.Unusable("%s cannot be read: %v", text.Escape(path), err)
		}
		return path, read.Resources, nil
	}
	return "", nil, nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
