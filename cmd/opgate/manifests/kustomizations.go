package manifests

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/text"
)

// kustomization is a directory with one.
type kustomization struct {
	// dir is the directory as it is printed, root its absolute path.
	dir, root string
	// lists are the files that it names, inputs those of its generators of Policies; all absolute.
	lists, inputs []string
	component     bool
	// build is what it makes, err why that is not known; both are nil if it is judged as a part of another one.
	build *build
	err   error
}

// build is what a kustomization makes.
type build struct {
	documents []document
	// read has the absolute path of every file that it was built from.
	read map[string]bool
	// warnings are those of kustomize, by directory.
	warnings map[string][]string
}

// newKustomization reads the kustomization of a directory.
func newKustomization(dir string) *kustomization {
	k := &kustomization{dir: dir, root: absolute(dir)}
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		data, err := readFile(filepath.Join(k.root, name))
		var written types.Kustomization
		if err != nil || checkAliases(name, string(data)) != nil || written.Unmarshal(data) != nil {
			continue // the build reports what is wrong
		}
		k.component = k.component || written.Kind == types.ComponentKind
		_ = eachText(written, func(field, value string) error {
			if strings.Contains(value, "\n") || !isField(cloneFields, field) && !isField(readFields, field) {
				return nil
			}
			at := filepath.Join(k.root, value[strings.Index(value, "=")+1:])
			if info, err := os.Stat(at); err == nil && !info.IsDir() {
				k.lists = append(k.lists, absolute(at))
			}
			return nil
		})
		for _, name := range written.Generators {
			k.inputs = append(k.inputs, inputsOf(filepath.Join(k.root, name))...)
		}
	}
	return k
}

// eachText passes on the texts in a value, each with the name of its field, until there is an error.
func eachText(value any, see func(field, value string) error) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var decoded any
	if err := json.Unmarshal(data, &decoded); err != nil {
		return err
	}
	var walk func(field string, value any) error
	walk = func(field string, value any) (err error) {
		switch value := value.(type) {
		case string:
			return see(field, value)
		case []any:
			for i := 0; i < len(value) && err == nil; i++ {
				err = walk(field, value[i])
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				if err = walk(name, value[name]); err != nil {
					return err
				}
			}
		}
		return err
	}
	return walk("", decoded)
}

// inputsOf returns the files that a generator of Policies puts into Policies.
func inputsOf(generator string) (files []string) {
	var g struct {
		Kind     string `json:"kind"`
		Policies []struct {
			Manifests []struct {
				Path string `json:"path"`
			} `json:"manifests"`
		} `json:"policies"`
	}
	data, err := readFile(generator)
	if err != nil || checkAliases(generator, string(data)) != nil || yaml.Unmarshal(data, &g) != nil ||
		g.Kind != "PolicyGenerator" {
		return nil
	}
	for _, p := range g.Policies {
		for _, m := range p.Manifests {
			files = append(files, absolute(filepath.Join(filepath.Dir(generator), m.Path)))
		}
	}
	return files
}

// build builds the kustomizations. Those that another one is built from are judged as a part of that, unless an
// Application or a Flux Kustomization names them, and components, which are no whole, unless nothing uses them. The checks
// of a kustomization name what it would load from elsewhere; the sandbox makes sure that nothing is.
func (in *Input) build() {
	var whole, components []*kustomization
	for _, s := range in.sources {
		for _, k := range s.kustomizations {
			if k.component {
				components = append(components, k)
			} else {
				whole = append(whole, k)
			}
		}
	}
	buildAll(whole)
	used := map[string]bool{}
	for _, k := range whole {
		if k.build == nil {
			continue
		}
		for file := range k.build.read {
			if dir := filepath.Dir(file); isKustomization(file) && dir != k.root {
				used[dir] = true
			}
		}
	}
	in.findDeployers(used)
	for _, s := range in.sources {
		for _, k := range s.kustomizations {
			if used[k.root] && len(in.deployersOf(s, k.dir)) == 0 {
				k.build, k.err = nil, nil
			}
		}
	}
	buildAll(slices.DeleteFunc(components, func(k *kustomization) bool { return used[k.root] }))
	in.take()
}

// take makes units of what was built, and leaves the files to be read by themselves that no kustomization lists. Those
// in the directory of a kustomization that does not list them are skipped: applying the directory does not apply them.
func (in *Input) take() {
	listed, dirs, inputs := map[string]bool{}, map[string]bool{}, []string(nil)
	warned := map[string][]string{}
	for _, s := range in.sources {
		for _, k := range s.kustomizations {
			dirs[k.root], inputs = true, append(inputs, k.inputs...)
			switch {
			case k.build != nil:
				in.Units = append(in.Units, &Unit{Name: k.dir, source: s, build: k.build})
				maps.Copy(listed, k.build.read)
				for dir, warnings := range k.build.warnings {
					for _, w := range warnings {
						if dir = relative(dir); !slices.Contains(warned[w], dir) {
							warned[w] = append(warned[w], dir)
						}
					}
				}
				continue
			case k.err != nil && k.component: // it changes what a kustomization has
				names := false
				in.each(k.dir, func(_ string, data []byte) { names = names || subjects.Match(data) })
				if names {
					in.recognised(Place{File: k.dir}, "a component that no kustomization uses")
				}
			case k.err != nil:
				var unit *Unit // nothing else depends on it, unless its policies judge everything
				if s.policies {
					unit = s.plain
				}
				in.problem(unit, Problem{Place: Place{File: k.dir}, Operators: true, hides: true,
					Text: "the kustomization cannot be built: " + text.Truncate(besideCause.ReplaceAllString(
						relative(k.err.Error()), "$1"), 400) + k.command()})
			}
			for _, file := range k.lists {
				listed[file] = true
			}
		}
	}
	for _, message := range slices.Sorted(maps.Keys(warned)) {
		slices.Sort(warned[message])
		in.Notes = append(in.Notes, Note{Warning: true, Text: "kustomize in " + text.Join(warned[message], maxNamed) + ": " +
			strings.TrimPrefix(message, "# Warning: ")})
	}
	for _, s := range in.sources {
		s.files = slices.DeleteFunc(s.files, func(file string) bool {
			at := absolute(file)
			switch {
			case s.plain.Name != s.name, // it is named
				slices.ContainsFunc(inputs, func(i string) bool { return at == i || strings.HasPrefix(at, i+"/") }):
				return false
			case listed[at], isKustomization(file):
				return true
			case dirs[filepath.Dir(at)]:
				in.skipped["file that no kustomization lists|files that no kustomization lists"]++
				return true
			}
			return false
		})
	}
}

// besideCause is what errors of kustomize repeat: the way to the directory with the cause, and the configuration of a plugin.
var besideCause = regexp.MustCompile("^.* recursed accumulation of path ('[^']*': )| with config: `.*`")

// fetched finds in an error what kustomize may read and this program does not: another repository, or too much.
var fetched = regexp.MustCompile(`://|"[^"]*(@|github\.com|\.git\b)[^"]*" in | (more|longer) than `)

// command returns the command that judges what a kustomization makes; empty if kustomize cannot build it either.
func (k *kustomization) command() string {
	flags := ""
	switch cause := k.err.Error(); {
	case strings.Contains(cause, "external plugin"):
		flags = "--enable-alpha-plugins --enable-exec "
	case strings.Contains(cause, "enable-helm"):
		flags = "--enable-helm "
	case !fetched.MatchString(cause):
		return ""
	}
	return "; judge what it makes: kustomize build " + flags + k.dir + " | opgate check -p POLICIES -"
}
