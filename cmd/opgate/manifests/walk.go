package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
)

// chartFile makes a directory a Helm chart.
const chartFile = "Chart.yaml"

// search finds the manifests in directories. A repository has other files as well: what is recognizably no manifest is
// skipped and counted, unless strict is set.
type search struct {
	// strict skips nothing.
	strict bool
	// config is the file of the configuration, which is no manifest.
	config  string
	exclude *exclusions
	skipped skipped
	// dangling are the links that lead nowhere.
	dangling []Problem
	// kustomizations are the directories that have one, in the order of the input.
	kustomizations []string
}

func newSearch(o *Options) (*search, error) {
	exclude, err := newExclusions(o.Exclude)
	return &search{strict: o.Strict, config: o.Config, exclude: exclude}, err
}

// excluded reports whether a path, as it is printed, is left out.
func (s *search) excluded(path string) bool { return s.exclude.match(path, &s.skipped.excluded) }

// filesIn returns the file itself, or the manifests in a directory and below, and notes the kustomizations there.
func (s *search) filesIn(name string) ([]string, error) {
	s.exclude.named(name)
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		file := filepath.ToSlash(filepath.Clean(name))
		if s.excluded(file) {
			return nil, nil
		}
		return []string{file}, nil
	}
	before, kustomizations, excluded := s.skipped, len(s.kustomizations), s.exclude.count
	var files []string
	// The separator makes a link to a directory count as the directory.
	root := name + string(filepath.Separator)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		clean := filepath.ToSlash(filepath.Clean(path))
		if entry.IsDir() {
			return s.directory(clean, entry.Name(), path == root)
		}
		isFile, err := s.file(path, clean)
		if isFile {
			files = append(files, clean)
		}
		return err
	})
	if err == nil && len(files) == 0 && len(s.kustomizations) == kustomizations && s.skipped == before &&
		s.exclude.count == excluded {
		// A directory named by mistake must not pass as one without faults.
		err = fmt.Errorf("no *.yaml, *.yml or *.json file in this directory")
	}
	return files, err
}

// directory decides whether a directory is read.
func (s *search) directory(path, name string, named bool) error {
	switch {
	case !named && s.excluded(path):
		return fs.SkipDir
	case !named && !s.strict && strings.HasPrefix(name, "."):
		s.skipped.hidden++
		return fs.SkipDir
	case !named && !s.strict && name == "templates" && exists(filepath.Join(path, "..", chartFile)):
		s.skipped.templates++
		return fs.SkipDir
	case slices.ContainsFunc(konfig.RecognizedKustomizationFileNames(),
		func(file string) bool { return exists(filepath.Join(path, file)) }):
		s.kustomizations = append(s.kustomizations, path)
	}
	return nil
}

// file reports whether a file in a directory is read.
func (s *search) file(path, clean string) (bool, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
	default:
		return false, nil
	}
	if clean == s.config || s.excluded(clean) || !s.strict && filepath.Base(path) == chartFile {
		return false, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !s.strict {
		s.dangling = append(s.dangling, faultOf(clean, err))
		return false, nil
	}
	// Reading a pipe would block.
	if err != nil || !info.Mode().IsRegular() {
		return false, cmp.Or(err,
			error(&fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")}))
	}
	return true, nil
}

// unbuilt returns the files that are read by themselves: no kustomization was built from them. Those in the directory
// of a kustomization that does not list them are skipped, since applying the directory does not apply them.
func (s *search) unbuilt(files []string, builds []*build) (rest []string) {
	for _, file := range files {
		switch {
		case slices.ContainsFunc(builds, func(b *build) bool { return b.read[absolute(file)] }):
		case !slices.Contains(s.kustomizations, filepath.ToSlash(filepath.Dir(file))):
			rest = append(rest, file)
		case slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(file)):
		case s.strict:
			rest = append(rest, file)
		default:
			s.skipped.unlisted++
		}
	}
	return rest
}

// absolute returns the path by which a build reads a file.
func absolute(file string) string {
	path, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// skipped counts what was not read, or read and found to be no manifest.
type skipped struct{ hidden, templates, excluded, unlisted, documents int }

// String lists what was skipped, or is empty.
func (s skipped) String() string {
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{
		{s.documents, "document without apiVersion and kind", "documents without apiVersion and kind"},
		{s.hidden, "hidden directory", "hidden directories"},
		{s.templates, "directory of chart templates", "directories of chart templates"},
		{s.unlisted, "file that its kustomization does not list", "files that their kustomizations do not list"},
		{s.excluded, "excluded path", "excluded paths"},
	} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	return strings.Join(parts, ", ")
}
