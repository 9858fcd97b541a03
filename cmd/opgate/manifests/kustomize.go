package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/cmd/opgate/manifests/sandbox"
	"github.com/opgate/opgate/internal/yamlsize"
)

// buildLimits are those of all kustomizations of the input: replacements and patches of a few lines multiply text.
var buildLimits = sandbox.Limits{Bytes: 2 << 30, Time: 2 * time.Minute}

// buildAll builds kustomizations.
func buildAll(next []*kustomization) {
	if len(next) == 0 {
		return
	}
	builds, errs := make([]*build, len(next)), make([]error, len(next))
	err := sandbox.Run(buildLimits, func() {
		for i, k := range next {
			builds[i], errs[i] = buildOne(k.dir, k.root)
		}
	})
	for i, k := range next {
		if err != nil { // the function is left behind, and may still write
			k.err = err
		} else {
			k.build, k.err = builds[i], errs[i]
		}
	}
}

// relative returns a text without the paths of this machine.
func relative(s string) string {
	if here, err := os.Getwd(); err == nil {
		s = strings.ReplaceAll(s, absolute(here)+string(filepath.Separator), "")
	}
	return strings.Join(strings.Fields(s), " ")
}

// buildOne builds one kustomization as kubectl does, without plugins, programs and network.
func buildOne(dir, root string) (b *build, err error) {
	b = &build{read: map[string]bool{}, warnings: map[string][]string{}}
	defer func() {
		if fault := recover(); fault != nil { // a patch without a target is enough
			b, err = nil, fmt.Errorf("kustomize fails: %v", fault)
		}
	}()
	disk := &recorder{FileSystem: filesys.MakeFsOnDisk(), build: b, root: root}
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, filepath.FromSlash(dir))
	if err := cmp.Or(disk.refused, err); err != nil {
		return nil, err
	}
	sources := map[string][]document{}
	for _, r := range result.Resources() {
		at := place(dir, r, sources)
		if err := r.SetOrigin(nil); err != nil {
			return nil, err
		}
		raw, err := r.MarshalJSON()
		if err != nil {
			return nil, err
		}
		// Fields have no lines of their own: patches and transformers wrote some of them.
		b.documents = append(b.documents, document{Place: at, raw: raw, tree: &tree{}})
	}
	return b, nil
}

// place is where the object that a kustomization changes stands: the document of the same kind and, prefixes and
// suffixes aside, name.
func place(dir string, r *resource.Resource, sources map[string][]document) (at Place) {
	at = Place{File: dir, Kustomization: dir}
	origin, err := r.GetOrigin()
	if err != nil || origin == nil {
		return at
	}
	at.File = path.Join(dir, filepath.ToSlash(cmp.Or(origin.Path, origin.ConfiguredIn)))
	documents, known := sources[at.File]
	if !known {
		if data, err := readFile(at.File); err == nil {
			documents, _ = documentsOf(at.File, data)
		}
		sources[at.File] = documents
	}
	best := -1
	for _, d := range documents {
		h, _ := headOf(d.raw)
		if h.kind != r.GetKind() {
			continue
		}
		name, rank := nameOf(d.raw), 0
		switch {
		case name == r.GetName():
			rank = 2
		case name != "" && strings.Contains(r.GetName(), name):
			rank = 1
		}
		if rank > best {
			best, at.document, at.Line = rank, d.document, d.Line
		}
	}
	return at
}

// recorder is the disk, with a bound for what a build reads.
type recorder struct {
	filesys.FileSystem
	*build
	// root is the directory of the kustomization.
	root string
	// size is what was read, in bytes.
	size int
	// refused is the first error that is not the disk's: kustomize takes all errors for files that do not exist.
	refused error
}

// maxReads bounds the files that one build reads, each as often as it is named.
const maxReads = 2048

// ReadFile reads a file that a build asks for. A kustomization that would be loaded from elsewhere is refused before
// that happens; the one that is built is made to say where each of its objects came from.
func (r *recorder) ReadFile(file string) ([]byte, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	r.read[file] = true
	// Directories that name others twice are read again and again, with names of their own.
	if r.size += max(len(data), MaxInput/maxReads); r.size > MaxInput {
		r.refuse(fmt.Errorf("it reads more than %d files or %d MiB", maxReads, MaxInput>>20))
	}
	r.refuse(checkAliases(file, string(data)))
	var k types.Kustomization
	dir := filepath.Dir(file)
	if isKustomization(file) && k.Unmarshal(data) == nil { // else the build says what is wrong
		if messages := k.CheckDeprecatedFields(); messages != nil {
			r.warnings[dir] = *messages
		}
		r.refuse(eachText(k, func(field, value string) error { return r.local(dir, field, value) }))
	}
	switch {
	case r.refused != nil:
		return nil, r.refused
	case isKustomization(file) && dir == r.root:
		return withOrigins(data)
	}
	return data, nil
}

func (r *recorder) refuse(err error) { r.refused = cmp.Or(r.refused, err) }

// checkAliases returns an error for a document with aliases that stand for more than is read: kustomize writes them
// out.
func checkAliases(name, text string) error {
	for _, c := range split([]byte(text)) {
		if err := yamlsize.CheckAliases(c.text, MaxInput); errors.Is(err, yamlsize.ErrTooLarge) {
			return fmt.Errorf("%s cannot be read: %w", name, err)
		}
	}
	return nil
}

// Fields of a kustomization, or of a plugin that kustomize has, whose values are read, and those of them that may be
// other kustomizations, which kustomize would clone by running git.
var (
	readFields = []string{"crds", "configurations", "patchesStrategicMerge", "paths", "files", "envs", "env", "path",
		"targetFilePath"}
	cloneFields = []string{"resources", "bases", "components", "generators", "transformers", "validators"}
)

// isField reports whether a name is that of a field as kustomize decodes it, in any case.
func isField(fields []string, name string) bool {
	return slices.ContainsFunc(fields, func(field string) bool { return strings.EqualFold(field, name) })
}

// local returns an error for a value of a kustomization that would be loaded from elsewhere, or that is too large. What
// plugins would load the sandbox refuses.
func (r *recorder) local(dir, field, value string) error {
	clones := isField(cloneFields, field)
	switch {
	case strings.Contains(value, "\n"):
		return checkAliases("the text in "+field, value)
	case strings.Contains(value, "://") && (clones || isField(readFields, field)),
		clones && !r.Exists(filepath.Join(dir, value)):
		return fmt.Errorf("%q in %s is no file and no directory here", value, field)
	}
	return nil
}

// withOrigins asks for annotations that say where objects came from, in the kustomization that is built.
func withOrigins(data []byte) ([]byte, error) {
	var fields map[string]any
	if err := yaml.UnmarshalStrict(data, &fields); err != nil || fields == nil {
		return data, nil //nolint:nilerr // the build says what is wrong
	}
	asked, _ := fields["buildMetadata"].([]any)
	fields["buildMetadata"] = append(asked, types.OriginAnnotations)
	return yaml.Marshal(fields)
}
