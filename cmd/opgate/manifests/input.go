// Package manifests reads manifests as they would be sent to an API server, with the file and the line of each object
// and field. What it cannot read, build or understand is a problem, and it reads all else. It judges nothing.
package manifests

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
)

// MaxInput is the size in bytes above which an input is not read: far more than a cluster's worth of
// manifests, and a bound for what reads without end.
const MaxInput = 64 << 20

// maxInputs bounds the size of all inputs together, which are in memory at once: a repository holds many files of
// blanks in few bytes.
const maxInputs = 512 << 20

// Options select what is read, and how.
type Options struct {
	// Namespace is that of objects that name none. Default: the Application or the Flux Kustomization that names their
	// path has it, else "default", of which is warned.
	Namespace string
	// Policies are further inputs, whose policies judge everything.
	Policies []string
	// Exclude are patterns of the command line of what to leave out, as those of .dockerignore; one without a slash
	// counts in every directory.
	Exclude []string
	// Ignore are such patterns of a file of the input. They leave out nothing that the command line names.
	Ignore []string
	// Strict makes problems of what is recognised and not judged.
	Strict bool
	// Together reads everything as objects of one cluster. Default: each kustomization is judged apart.
	Together bool
	// Progress is called with the number of files that have been read. Default: none is called.
	Progress func(files int)
}

// Input is everything that names on a command line stand for.
type Input struct {
	// Units are what is judged apart.
	Units []*Unit
	// Problems are in the order of the input, each once.
	Problems []Problem
	Notes    []Note

	options Options
	sources []*source
	// size is what was read, in bytes, and files the number of files.
	size, files int
	// excluded are the files that name operators or policies and are left out.
	excluded []string
	// templates has those of other programs by directory.
	templates map[string]*templates
	skipped   map[string]int
	unjudged  map[string]int
	foreign   map[Place]bool
	reported  map[string]bool
	deployers []deployer
}

// source is a directory that the command line names, or all files that it names.
type source struct {
	// name is as on the command line; "." for files.
	name string
	// policies is set for one of Options.Policies.
	policies bool
	// files are read as they are; inputs of them that a PolicyGenerator names and no other file are marked.
	files          []string
	kustomizations []*kustomization
	documents      []document
	plain          *Unit
}

// templates are files of one directory that are templates of another program.
type templates struct {
	first Place
	files int
	// names is set if a text names operators or policies.
	names bool
}

// Gather reads every file that names stand for, in the order of the names, directories in the order of their files'
// names, and builds kustomizations. Its error is about the names and the patterns, which are looked at first.
func Gather(names []string, stdin io.Reader, o Options) (*Input, error) {
	in := &Input{options: o, templates: map[string]*templates{}, skipped: map[string]int{}, unjudged: map[string]int{},
		foreign: map[Place]bool{}, reported: map[string]bool{}}
	for i, list := range [][]string{o.Policies, names} {
		files := &source{name: ".", policies: i == 0}
		for _, name := range list {
			info, err := os.Stat(filepath.FromSlash(name))
			switch {
			case name == cli.StandardInput:
				files.files = append(files.files, name)
			case err != nil && strings.Contains(name, "://"):
				return nil, fmt.Errorf("%s is not loaded: give files, or pipe it and name -", text.Escape(name))
			case err != nil:
				return nil, errors.New(faultOf(name, err).String())
			case info.IsDir():
				in.sources = append(in.sources, &source{name: clean(name), policies: i == 0})
				continue
			default:
				files.files = append(files.files, clean(name))
			}
			if len(files.files) == 1 {
				in.sources = append(in.sources, files)
			}
		}
	}
	if err := in.search(); err != nil {
		return nil, err
	}
	in.build()
	for _, s := range in.sources {
		for _, file := range s.files {
			in.read(s, file, stdin)
		}
	}
	in.load()
	in.describe()
	return in, nil
}

func clean(name string) string { return filepath.ToSlash(filepath.Clean(name)) }

// read reads the documents of one file of a source.
func (in *Input) read(s *source, file string, stdin io.Reader) {
	if in.size > maxInputs {
		return
	}
	data, err := in.readFile(s, file, stdin)
	if in.size += len(data); err == nil && in.size > maxInputs {
		err = fmt.Errorf("the files are larger than %d MiB in all", maxInputs>>20)
	}
	if err != nil { // it may hold anything
		p := faultOf(file, err)
		p.Operators, p.hides = true, true
		in.problem(s.plain, p)
		return
	}
	documents, problems := documentsOf(file, data)
	if len(problems) > 0 && opensTemplate.Match(data) {
		in.template(Place{File: file, Line: problems[0].Line}, data)
		return
	}
	s.documents = append(s.documents, documents...)
	for _, p := range problems {
		p.Operators, p.hides = concerning(data), hiding(data)
		in.problem(s.plain, p)
	}
}

// readFile reads a file of a source. One that the command line names may be a pipe.
func (in *Input) readFile(s *source, name string, stdin io.Reader) ([]byte, error) {
	if in.files++; in.options.Progress != nil {
		in.options.Progress(in.files)
	}
	switch {
	case name == cli.StandardInput:
		return readLimited(stdin)
	case s != nil && s.plain.Name != s.name:
		return readAny(name)
	}
	return readFile(name)
}

// template counts a file that is a template of another program.
func (in *Input) template(at Place, data []byte) {
	dir := filepath.ToSlash(filepath.Dir(at.File))
	t := in.templates[dir]
	if t == nil {
		t = &templates{first: at}
		in.templates[dir] = t
	}
	t.files++
	if concerning(data) && !t.names {
		t.first, t.names = at, true
	}
}

// problem records a problem that was found in a unit; nil for one that nothing depends on.
func (in *Input) problem(u *Unit, p Problem) {
	p.Operators = p.Operators || in.options.Strict
	if p.hides && u != nil {
		u.hidden = cmp.Or(u.hidden, p.Place.String())
	}
	if text := p.String(); !in.reported[text] {
		in.reported[text] = true
		in.Problems = append(in.Problems, p)
	}
}

// recognised records what is recognised and not judged.
func (in *Input) recognised(at Place, what string) {
	what = "recognised, not judged: " + what
	switch n := (Note{Warning: true, Place: at, Text: what}); {
	case in.options.Strict:
		in.problem(nil, Problem{Place: at, Text: what, Operators: true})
	case !in.reported[n.String()]:
		in.reported[n.String()] = true
		in.Notes = append(in.Notes, n)
	}
}

// subjects are what a text has that may be about operators: an API group or a kind that is judged.
var subjects = words{"open-cluster-management.io", "operators.coreos.com", "olm.operatorframework.io", "OperatorPolicy",
	"PolicySet", "Subscription", "InstallPlan", "CatalogSource", "OperatorGroup", "ClusterServiceVersion",
	"ClusterExtension", "ClusterCatalog"}

// words are texts of which one is looked for.
type words []string

// Match reports whether a text has one of the words.
func (w words) Match(data []byte) bool {
	return slices.ContainsFunc(w, func(word string) bool { return bytes.Contains(data, []byte(word)) })
}

// judges are the kinds by which others are judged.
var judges = regexp.MustCompile(`OperatorPolicy|\b(Policy|PolicySet|Constraint|Namespace)(List)?\b|CatalogSource|PackageManifest|` +
	`ClusterServiceVersion|OperatorCondition`)

// encodings are what parsers decode into any name.
var encodings = regexp.MustCompile(`\\[uUx\r\n]|\\[^\x00-\x7f]|binary|![^\s]*%|(?m:^%TAG)`)

// concerning reports whether a text that cannot be read may be about operators.
func concerning(data []byte) bool { return found(subjects, data) }

// hiding reports whether a text that cannot be read may be about what others are judged by.
func hiding(data []byte) bool { return found(judges, data) }

// found reports whether a text may have a name if a parser takes it otherwise than this program. UTF-16 is ASCII with
// zeros, which parsers of YAML read.
func found(what interface{ Match(data []byte) bool }, data []byte) bool {
	data = slices.DeleteFunc(bytes.Clone(data), func(b byte) bool { return b == 0 })
	return what.Match(data) || encodings.Match(data)
}

// opensTemplate begins what makes a text that cannot be read a template of Go, Helm or Jinja.
var opensTemplate = words{"{{", "{%"}

// faultOf makes a problem of what went wrong with a whole file, without the path that the error repeats.
func faultOf(name string, err error) Problem {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		name, err = clean(path.Path), path.Err
	}
	return Problem{Place: Place{File: name}, Text: "cannot be read: " + err.Error()}
}

// readFile reads a regular file: to read a pipe would block, and a device may have no end.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(filepath.FromSlash(name))
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("it is not a regular file")}
	}
	if err != nil {
		return nil, err
	}
	return readAny(name)
}

func readAny(name string) ([]byte, error) {
	file, err := os.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	data, err := readLimited(file)
	return data, errors.Join(err, file.Close())
}

func readLimited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxInput+1))
	if err == nil && len(data) > MaxInput {
		err = fmt.Errorf("it is larger than %d MiB", MaxInput>>20)
	}
	return data, err
}
