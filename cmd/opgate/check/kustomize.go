package check

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	yamltree "go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build is what a kustomization makes.
type build struct {
	// dir is its directory, as it is printed.
	dir       string
	documents []document
	// read has the absolute path of every file that it was built from.
	read map[string]bool
	// from are the directories of the kustomizations that it was built from, its own and Components excepted.
	from []string
}

// buildAll builds the kustomizations in directories, except those that another one is built from, and Components, which are no whole.
func buildAll(dirs []string) (builds []*build, problems []problem) {
	made := make([]*build, len(dirs))
	faults := make([]error, len(dirs))
	for i, dir := range dirs {
		made[i], faults[i] = buildOne(dir)
	}
	for i, dir := range dirs {
		at := absolute(dir)
		switch {
		case made[i] == nil, isPart(at, made, faults):
		case faults[i] != nil:
			problems = append(problems, problem{place{file: dir}, "the kustomization cannot be built: " + relative(faults[i])})
		default:
			builds = append(builds, made[i])
		}
	}
	return builds, problems
}

// isPart reports whether another kustomization could be built from the one in a directory.
func isPart(dir string, made []*build, faults []error) bool {
	for i, b := range made {
		if b != nil && faults[i] == nil && slices.Contains(b.from, dir) {
			return true
		}
	}
	return false
}

// relative is an error without the paths of this machine.
func relative(err error) string {
	text := err.Error()
	if here, err := os.Getwd(); err == nil {
		text = strings.ReplaceAll(text, absolute(here)+string(filepath.Separator), "")
	}
	return strings.Join(strings.Fields(text), " ")
}

// buildOne builds one kustomization as kubectl does, without plugins, programs and network. It returns nil for a Component. With an
// error the build has what was read until then.
func buildOne(dir string) (*build, error) {
	b := &build{dir: dir, read: map[string]bool{}}
	disk := &recorder{FileSystem: filesys.MakeFsOnDisk(), build: b, root: absolute(dir)}
	if disk.isComponent() {
		return nil, nil //nolint:nilnil // neither a build nor a fault
	}
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, dir)
	if err := cmp.Or(disk.refused, err); err != nil {
		return b, err
	}
	sources := map[string][]document{}
	for _, r := range result.Resources() {
		at := b.place(r, sources)
		if err := r.SetOrigin(nil); err != nil {
			return b, err
		}
		raw, err := r.MarshalJSON()
		if err != nil {
			return b, err
		}
		// Fields have no lines of their own: patches and transformers wrote some of them.
		b.documents = append(b.documents, document{place: at, raw: raw, tree: &tree{}})
	}
	return b, nil
}

// place is where the object that a kustomization changes stands: the document of the same kind and, prefixes and suffixes aside, name.
func (b *build) place(r *resource.Resource, sources map[string][]document) place {
	at := place{file: b.dir, kustomization: b.dir}
	origin, err := r.GetOrigin()
	if err != nil || origin == nil {
		return at
	}
	switch {
	case origin.Path != "":
		at.file = path.Join(b.dir, filepath.ToSlash(origin.Path))
	case origin.ConfiguredIn != "":
		at.file = path.Join(b.dir, filepath.ToSlash(origin.ConfiguredIn))
	}
	documents, known := sources[at.file]
	if !known {
		if data, err := readFile(at.file); err == nil {
			documents, _ = documentsOf(input{at.file, data})
		}
		sources[at.file] = documents
	}
	best := -1
	for _, d := range documents {
		name, rank := "", 0
		h, _ := headOf(d.raw)
		if h.kind != r.GetKind() {
			continue
		}
		name = nameOf(d.raw)
		switch {
		case name == r.GetName():
			rank = 2
		case name != "" && strings.Contains(r.GetName(), name):
			rank = 1
		}
		if rank > best {
			best, at.document, at.line = rank, d.document, d.line
		}
	}
	return at
}

// recorder is the disk, with a record of what a build reads.
type recorder struct {
	filesys.FileSystem
	build *build
	// root is the directory of the kustomization.
	root string
	// refused is the first error that is not the disk's: kustomize takes all errors for files that do not exist.
	refused error
}

func isKustomization(file string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(file))
}

// kustomization is what has to be known of one before it is built.
type kustomization struct {
	Kind string `json:"kind"`
}

func (r *recorder) isComponent() bool {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		data, err := r.FileSystem.ReadFile(filepath.Join(r.root, name))
		var k kustomization
		if err == nil && yaml.Unmarshal(data, &k) == nil && k.Kind == types.ComponentKind {
			return true
		}
	}
	return false
}

// ReadFile reads a file that a build asks for. A kustomization that would be loaded from elsewhere is refused before that happens; the
// one that is built is made to say where each of its objects came from.
func (r *recorder) ReadFile(file string) ([]byte, error) {
	data, err := r.FileSystem.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(data) > maxInput {
		return nil, fmt.Errorf("%s is larger than %d MiB", file, maxInput>>20)
	}
	r.build.read[file] = true
	if !isKustomization(file) {
		// A builtin transformer or generator loads files, too.
		if bytes.Contains(data, []byte("builtin")) {
			r.refuse(r.inlineLocal(filepath.Dir(file), string(data)))
		}
		return data, r.refused
	}
	var root yamltree.Node
	var k kustomization
	if yamltree.Unmarshal(data, &root) != nil || yaml.Unmarshal(data, &k) != nil {
		return data, nil //nolint:nilerr // the build says what is wrong
	}
	dir := filepath.Dir(file)
	if r.refuse(r.onlyLocal(dir, "", &root)); r.refused != nil {
		return nil, r.refused
	}
	if dir == r.root {
		return withOrigins(data)
	}
	if k.Kind != types.ComponentKind {
		r.build.from = append(r.build.from, dir)
	}
	return data, nil
}

func (r *recorder) refuse(err error) { r.refused = cmp.Or(r.refused, err) }

// Lists of a kustomization whose elements are read, and those of them that may be other kustomizations, which kustomize would clone by
// running git.
var (
	readFields  = []string{"crds", "configurations", "patchesStrategicMerge", "files", "envs", "env", "path"}
	cloneFields = []string{"resources", "bases", "components", "generators", "transformers", "validators"}
)

// onlyLocal returns an error for the first value that kustomize would load from elsewhere.
func (r *recorder) onlyLocal(dir, field string, node *yamltree.Node) error {
	switch node.Kind {
	case yamltree.ScalarNode:
		clones := slices.Contains(cloneFields, field)
		switch {
		case !clones && !slices.Contains(readFields, field):
			return nil
		case strings.Contains(node.Value, "\n"):
			return r.inlineLocal(dir, node.Value)
		}
		if strings.Contains(node.Value, "://") || clones && !r.Exists(filepath.Join(dir, node.Value)) {
			return fmt.Errorf("%q in %s is no file and no directory here; what is loaded from elsewhere is judged by "+
				"kustomize build DIR | opgate check -", node.Value, field)
		}
	case yamltree.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if err := r.onlyLocal(dir, node.Content[i].Value, node.Content[i+1]); err != nil {
				return err
			}
		}
	default:
		for _, child := range node.Content {
			if err := r.onlyLocal(dir, field, child); err != nil {
				return err
			}
		}
		if node.Kind == yamltree.AliasNode {
			return errors.New("a kustomization with aliases is not built; write the values out")
		}
	}
	return nil
}

// inlineLocal is onlyLocal for the documents of a text.
func (r *recorder) inlineLocal(dir, text string) error {
	decoder := yamltree.NewDecoder(strings.NewReader(text))
	for {
		var node yamltree.Node
		if decoder.Decode(&node) != nil {
			return nil //nolint:nilerr // the end, or the build says what is wrong
		}
		if err := r.onlyLocal(dir, "", &node); err != nil {
			return err
		}
	}
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
