package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"sigs.k8s.io/kustomize/api/konfig"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
)

const (
	// IgnoreFile is the name of the file with patterns of what a repository leaves out.
	IgnoreFile = ".opgateignore"
	// chartFile makes a directory a Helm chart.
	chartFile = "Chart.yaml"
)

// matcher returns one for patterns, of which those without a slash count in every directory.
func matcher(patterns []string) (*patternmatcher.PatternMatcher, error) {
	anywhere := make([]string, 0, len(patterns))
	for _, p := range patterns {
		pattern, but := strings.CutPrefix(p, "!")
		if !strings.Contains(strings.TrimSuffix(pattern, "/"), "/") {
			pattern = "**/" + pattern
		}
		if but {
			pattern = "!" + pattern
		}
		anywhere = append(anywhere, pattern)
	}
	m, err := patternmatcher.New(anywhere)
	if err == nil {
		_, err = m.MatchesOrParentMatches("x") // compiles the patterns
	}
	return m, err
}

// search finds the manifests and the kustomizations of all sources.
func (in *Input) search() error {
	exclude, err := matcher(in.options.Exclude)
	if err != nil {
		return fmt.Errorf("--exclude %q: %w", in.options.Exclude, err)
	}
	ignore, err := matcher(in.options.Ignore)
	if err != nil {
		return fmt.Errorf("%s: %w", IgnoreFile, err)
	}
	matches := func(m *patternmatcher.PatternMatcher, name string) bool {
		match, err := m.MatchesOrParentMatches(name)
		return match && err == nil
	}
	for _, s := range in.sources {
		s.plain = &Unit{Name: s.name, source: s}
		in.Units = append(in.Units, s.plain)
		if len(s.files) > 0 {
			s.plain.Name = strings.Join(s.files, ", ")
			s.files = slices.DeleteFunc(s.files, func(name string) bool {
				return matches(exclude, name) && in.exclude(name)
			})
			continue
		}
		named := matches(ignore, s.name)
		w := &walk{Input: in, source: s, excluded: func(name string) bool {
			return matches(exclude, name) || !named && matches(ignore, name)
		}}
		// The separator makes a link to a directory count as the directory.
		root := filepath.FromSlash(s.name) + string(filepath.Separator)
		if err := filepath.WalkDir(root, w.visit); err != nil {
			return err
		}
		if !w.any {
			// A directory named by mistake must not pass as one without problems.
			in.problem(s.plain, Problem{Place: Place{File: s.name}, Operators: true,
				Text: "cannot be read: no *.yaml, *.yml or *.json file in this directory"})
		}
	}
	return nil
}

// walk finds the manifests of one directory.
type walk struct {
	*Input
	source   *source
	excluded func(name string) bool
	// any is set once there is anything that is read, or left out.
	any bool
}

// visit looks at a file or a directory.
func (w *walk) visit(name string, entry fs.DirEntry, err error) error {
	at := clean(name)
	root := at == w.source.name
	switch {
	case err != nil: // it may hold anything
		p := faultOf(at, err)
		p.Operators, p.hides, w.any = true, true, true
		w.problem(w.source.plain, p)
		if entry == nil || entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	case !root && w.excluded(at):
		if entry.IsDir() || isManifest(at) {
			w.any = true
			w.exclude(at)
		}
		if !entry.IsDir() {
			return nil
		}
		return fs.SkipDir
	case !entry.IsDir():
		w.file(name, at)
		return nil
	case !root && strings.HasPrefix(entry.Name(), "."):
		w.any = true
		w.skipped["hidden directory|hidden directories"]++
		return fs.SkipDir
	case !root && entry.Name() == "templates" && exists(path.Join(at, "..", chartFile)):
		w.any = true
		w.countTemplates(name)
		return fs.SkipDir
	case slices.ContainsFunc(konfig.RecognizedKustomizationFileNames(),
		func(file string) bool { return exists(path.Join(at, file)) }):
		w.any = true
		w.source.kustomizations = append(w.source.kustomizations, newKustomization(at))
	}
	return nil
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

// isManifestTemplate reports whether a file has the name of a template that another program makes a manifest of.
func isManifestTemplate(name string) bool {
	extension := path.Ext(name)
	return slices.Contains([]string{".j2", ".jinja", ".jinja2", ".tmpl", ".tpl", ".gotmpl"}, strings.ToLower(extension)) &&
		isManifest(strings.TrimSuffix(name, extension))
}

// file adds a file of the directory if it is one that is read.
func (w *walk) file(name, at string) {
	if isManifestTemplate(at) {
		w.any = true
		w.countTemplates(name)
	}
	if !isManifest(at) || path.Base(at) == chartFile {
		return
	}
	w.any = true
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere holds nothing
		w.problem(w.source.plain, faultOf(at, err))
		return
	}
	w.source.files = append(w.source.files, at)
}

// countTemplates counts the templates of another program in a directory, or in a file.
func (w *walk) countTemplates(name string) {
	w.each(name, func(file string, data []byte) { w.template(Place{File: file}, data) })
}

// exclude counts the files of what is left out that name operators or policies.
func (in *Input) exclude(name string) bool {
	in.skipped["excluded path|excluded paths"]++
	in.each(name, func(file string, data []byte) {
		if subjects.Match(data) {
			in.excluded = append(in.excluded, file)
		}
	})
	return true
}

// each passes on the text of the manifests in a directory, or of one file. What cannot be read is passed over.
func (in *Input) each(name string, see func(file string, data []byte)) {
	_ = filepath.WalkDir(filepath.FromSlash(name), func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && (isManifest(file) || isManifestTemplate(file)) {
			if data, err := in.readFile(nil, file, nil); err == nil {
				see(clean(file), data)
			}
		}
		return nil //nolint:nilerr // it is left out
	})
}

// absolute returns the path by which a build reads a file.
func absolute(file string) string {
	path, err := filepath.Abs(filepath.FromSlash(file))
	if err != nil {
		return file
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}

func exists(name string) bool {
	_, err := os.Stat(filepath.FromSlash(name))
	return err == nil
}

// isKustomization reports whether a file has the name of one.
func isKustomization(file string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(file))
}

// mayHold reports whether a JSON text may have an object of a kind that is judged, or one in a text.
func mayHold(raw []byte) bool {
	return bytes.Contains(raw, []byte("kind")) && (subjects.Match(raw) || bytes.Contains(raw, []byte(constraintv1.Kind)))
}
