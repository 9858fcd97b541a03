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

	"github.com/opgate/opgate/internal/text"
)

// write writes the files and a kustomization to the directory. Without --force it writes nothing if one of them exists.
// A kustomization that exists stays as it is: what is left out of it, a GitOps tool would delete.
func (o *options) write(files []file, stderr io.Writer) error {
	var names []string
	for _, f := range files {
		names = append(names, f.name)
		if name := filepath.Join(o.output, f.name); !o.force && exists(name) {
			return self.Unusable("%s exists already, and nothing was written: --force overwrites it", text.Escape(name))
		}
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil { //nolint:gosec // manifests in git are for everyone
		return err
	}
	known := konfig.RecognizedKustomizationFileNames()
	if i := slices.IndexFunc(known, func(name string) bool { return exists(filepath.Join(o.output, name)) }); i >= 0 {
		fmt.Fprintf(stderr, "%s exists already and stays as it is: its resources need %s\n",
			text.Escape(filepath.Join(o.output, known[i])), strings.Join(names, ", "))
	} else {
		files = append(files, file{konfig.DefaultKustomizationFileName(), "apiVersion: " + types.KustomizationVersion +
			"\nkind: " + types.KustomizationKind + "\nresources:\n  - " + strings.Join(names, "\n  - ") + "\n"})
	}
	for _, f := range files {
		name := filepath.Join(o.output, f.name)
		if err := os.WriteFile(name, []byte(f.text), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
		fmt.Fprintln(stderr, "written: "+text.Escape(name))
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
