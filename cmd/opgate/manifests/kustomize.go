package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/api/konfig"
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

// buildAll builds the kustomizations in directories, except those that another one is built from, and Components, which
// are no whole. The checks of a kustomization name what it would load from elsewhere; the sandbox makes sure that
// nothing is.
func buildAll(dirs []string) (builds []*build, problems []Problem) {
	if len(dirs) == 0 {
		return nil, nil
	}
	made := make([]*build, len(dirs))
	faults := make([]error, len(dirs))
	if err := sandbox.Run(buildLimits, func() {
		for i, dir := range dirs {
			made[i], faults[i] = buildOne(dir)
		}
	}); err != nil {
		return nil, []Problem{{Place{File: dirs[0]}, "the kustomizations cannot be built: " + err.Error()}}
	}
	for i, dir := range dirs {
		at := absolute(dir)
		switch {
		case made[i] == nil, isPart(at, made, faults):
		case faults[i] != nil:
			problems = append(problems, Problem{Place{File: dir}, "the kustomization cannot be built: " +
				relative(faults[i])})
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

// buildOne builds one kustomization as kubectl does, without plugins, programs and network. It returns nil for a
// Component. With an error the build has what was read until then.
func buildOne(dir string) (b *build, err error) {
	b = &build{dir: dir, read: map[string]bool{}}
	defer func() {
		if fault := recover(); fault != nil { // a patch without a target is enough
			err = fmt.Errorf("kustomize fails: %v", fault)
		}
	}()
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
		at, comments := b.place(r, sources)
		if err := r.SetOrigin(nil); err != nil {
			return b, err
		}
		raw, err := r.MarshalJSON()
		if err != nil {
			return b, err
		}
		// Fields have no lines of their own: patches and transformers wrote some of them.
		b.documents = append(b.documents, document{Place: at, raw: raw, tree: &tree{}, comments: comments})
	}
	return b, nil
}

// place is where the object that a kustomization changes stands: the document of the same kind and, prefixes and
// suffixes aside, name. It returns the comments of that, too.
func (b *build) place(r *resource.Resource, sources map[string][]document) (at Place, comments []Comment) {
	at = Place{File: b.dir, Kustomization: b.dir}
	origin, err := r.GetOrigin()
	if err != nil || origin == nil {
		return at, nil
	}
	switch {
	case origin.Path != "":
		at.File = path.Join(b.dir, filepath.ToSlash(origin.Path))
	case origin.ConfiguredIn != "":
		at.File = path.Join(b.dir, filepath.ToSlash(origin.ConfiguredIn))
	}
	documents, known := sources[at.File]
	if !known {
		if data, err := readFile(at.File); err == nil {
			documents, _ = documentsOf(input{at.File, data})
		}
		sources[at.File] = documents
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
			best, at.document, at.Line, comments = rank, d.document, d.Line, nil
			if rank > 0 { // another object's comments are not about this one
				comments = d.comments
			}
		}
	}
	return at, comments
}

// recorder is the disk, with a record of what a build reads.
type recorder struct {
	filesys.FileSystem
	build *build
	// root is the directory of the kustomization.
	root string
	// size is what was read, in bytes.
	size int
	// refused is the first error that is not the disk's: kustomize takes all errors for files that do not exist.
	refused error
}

func isKustomization(file string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(file))
}

func (r *recorder) isComponent() bool {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		data, err := readFile(filepath.Join(r.root, name))
		var k types.Kustomization
		if err == nil && checkAliases(name, string(data)) == nil && k.Unmarshal(data) == nil &&
			k.Kind == types.ComponentKind {
			return true
		}
	}
	return false
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
	r.build.read[file] = true
	// Directories that name others twice are read again and again, with names of their own.
	if r.size += max(len(data), MaxInput/maxReads); r.size > MaxInput {
		r.refuse(fmt.Errorf("it reads more than %d files or %d MiB", maxReads, MaxInput>>20))
	}
	r.refuse(checkAliases(file, string(data)))
	var k types.Kustomization
	dir := filepath.Dir(file)
	switch {
	case !isKustomization(file):
		r.refuse(r.pluginsLocal(dir, string(data)))
	case k.Unmarshal(data) == nil: // else the build says what is wrong
		r.refuse(r.decodedLocal(dir, k))
	}
	switch {
	case r.refused != nil:
		return nil, r.refused
	case isKustomization(file) && dir == r.root:
		return withOrigins(data)
	case isKustomization(file) && k.Kind != types.ComponentKind:
		r.build.from = append(r.build.from, dir)
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

// isField reports whether a name is that of a field as kustomize decodes it, in any case (threat G19).
func isField(fields []string, name string) bool {
	return slices.ContainsFunc(fields, func(field string) bool { return strings.EqualFold(field, name) })
}

// decodedLocal is onlyLocal for what kustomize has decoded.
func (r *recorder) decodedLocal(dir string, decoded any) error {
	data, err := json.Marshal(decoded)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	return r.onlyLocal(dir, "", value)
}

// onlyLocal returns an error for the first value that kustomize would load from elsewhere, or that is too large for it.
func (r *recorder) onlyLocal(dir, field string, value any) error {
	switch value := value.(type) {
	case string:
		return r.valueLocal(dir, field, value)
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if err := r.onlyLocal(dir, name, value[name]); err != nil {
				return err
			}
		}
	case []any:
		for _, element := range value {
			if err := r.onlyLocal(dir, field, element); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *recorder) valueLocal(dir, field, value string) error {
	clones := isField(cloneFields, field)
	switch {
	case strings.Contains(value, "\n"):
		return cmp.Or(checkAliases("the text in "+field, value), r.pluginsLocal(dir, value))
	case strings.Contains(value, "://") && (clones || isField(readFields, field)),
		clones && !r.Exists(filepath.Join(dir, value)):
		return fmt.Errorf("%q in %s is no file and no directory here; what is loaded from elsewhere is judged by "+
			"kustomize build DIR | opgate check -", value, field)
	}
	return nil
}

// pluginsLocal is onlyLocal for the plugins of kustomize in a text, which load files, too.
func (r *recorder) pluginsLocal(dir, text string) error {
	for _, c := range split([]byte(text)) {
		raw, err := yaml.YAMLToJSON(c.text)
		if err != nil || !bytes.Contains(raw, []byte(konfig.BuiltinPluginApiVersion+`"`)) {
			continue // the build says what is wrong
		}
		var fields any
		if err := json.Unmarshal(raw, &fields); err != nil {
			return err
		}
		if err := r.onlyLocal(dir, "", fields); err != nil {
			return err
		}
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
