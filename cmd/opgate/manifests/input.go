package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// MaxInput is the size in bytes above which an input is not read: far more than a cluster's worth of
// manifests, and a bound for what reads without end.
const MaxInput = 64 << 20

// maxInputs bounds the size of all inputs together, which are in memory at once: a repository holds many files of
// blanks in few bytes (threat G36).
const maxInputs = 512 << 20

// input is what one file holds.
type input struct {
	name string
	data []byte
}

// Options select what is read, and how.
type Options struct {
	// Namespace is that of objects that name none.
	Namespace string
	// Exclude are patterns of files and directories to leave out.
	Exclude []Pattern
	// Overlays are the clusters of the input; what no Pairing names is divided by itself.
	Overlays []Pairing
	// Config is the path of the configuration that was read, which is no manifest.
	Config string
	// Strict skips nothing, takes every document for an object, and makes faults of warnings. Default: repositories
	// have others, which are counted.
	Strict bool
}

// Input is everything that names on a command line stand for.
type Input struct {
	options Options
	inputs  []input
	// builds are the kustomizations that no other one is built from.
	builds   []*build
	skipped  skipped
	problems []Problem
	// warnings are faults of what is none of the gate's business, in the files and kustomizations that harmless has.
	warnings []Problem
	harmless map[string]bool
	reported map[Problem]bool
	// unpaired are warnings of clusters that are judged without others.
	unpaired []Problem
	// excluded are the patterns that leave out.
	excluded *exclusions
	// argument is the place on the command line of what a file or a kustomization was found for.
	argument map[string]int
	foreign  map[Place]bool
	unjudged map[unjudged]bool
}

// Gather reads every file that the names stand for, in the order of the names, directories in the order of their files'
// names, and builds the kustomizations in directories. Its error is about the patterns.
func Gather(names []string, stdin io.Reader, o Options) (*Input, error) {
	g := &Input{options: o, harmless: map[string]bool{}, reported: map[Problem]bool{}, foreign: map[Place]bool{},
		unjudged: map[unjudged]bool{}, argument: map[string]int{}}
	s, err := newSearch(&o)
	if err != nil {
		return nil, err
	}
	g.excluded = s.exclude
	size := 0
	add := func(name string, read func() ([]byte, error)) {
		if size > maxInputs {
			return // the input is refused
		}
		data, err := read()
		if size += len(data); size > maxInputs {
			err = fmt.Errorf("the files are larger than %d MiB in all", maxInputs>>20)
		}
		if err == nil {
			g.harmless[name] = g.found(names, name) && !concerning(data)
			data, err = asText(data)
		}
		if err != nil {
			g.fault(faultOf(name, err))
			return
		}
		g.inputs = append(g.inputs, input{name, data})
	}
	found := map[string][]string{}
	for i, name := range names {
		if name == cli.StandardInput {
			continue
		}
		before := len(s.kustomizations)
		files, err := s.filesIn(name)
		for _, at := range slices.Concat(files, s.kustomizations[before:]) {
			g.argument[at] = i + 1
		}
		if err != nil {
			g.problems = append(g.problems, faultOf(name, err))
		}
		found[name] = files
	}
	var problems []Problem
	g.builds, problems = buildAll(s.kustomizations)
	for _, p := range problems {
		g.harmless[p.File] = g.found(names, p.File) &&
			!slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(found))...), func(file string) bool {
				data, err := readFile(file)
				return strings.HasPrefix(file, p.File+"/") && (err != nil || concerning(generator.ReplaceAll(data, nil)))
			})
		g.fault(p)
	}
	g.warnings = append(g.warnings, s.dangling...)
	for _, name := range names {
		if name == cli.StandardInput {
			add(name, func() ([]byte, error) { return readLimited(stdin) })
			continue
		}
		for _, file := range s.unbuilt(found[name], g.builds) {
			add(file, func() ([]byte, error) { return readFile(file) })
		}
	}
	g.skipped = s.skipped
	return g, nil
}

// found reports whether a file or a directory was found in a directory that was named, and not named itself.
func (in *Input) found(names []string, name string) bool {
	return !in.options.Strict && !slices.ContainsFunc(names,
		func(other string) bool { return filepath.ToSlash(filepath.Clean(other)) == name })
}

// Fault records what is wrong at a place, which makes the input unusable.
func (in *Input) Fault(at Place, text string) { in.problems = append(in.problems, Problem{at, text}) }

// fault records problems, those of what is harmless as warnings.
func (in *Input) fault(problems ...Problem) {
	for _, p := range problems {
		switch {
		case in.reported[p]:
		case in.harmless[p.File]:
			in.warnings = append(in.warnings, p)
		default:
			in.problems = append(in.problems, p)
		}
		in.reported[p] = true
	}
}

// concern is what a text has that may be the gate's business if a parser takes it otherwise than this program: an API
// group or a kind that is judged, or what parsers decode into one.
var concern = regexp.MustCompile(
	`open-cluster-management\.io|operators\.coreos\.com|olm\.operatorframework\.io|OperatorPolicy|PolicySet|Subscription|` +
		`InstallPlan|CatalogSource|OperatorGroup|ClusterServiceVersion|ClusterExtension|ClusterCatalog|\\[uUx\r\n]|\\[^\x00-\x7f]|binary|![^\s]*%|(?m:^%TAG)`)

// generator is the head of the configuration of a plugin of kustomize, which every generator of Policies has, whatever
// it makes.
var generator = regexp.MustCompile(
	`(?m)^apiVersion: policy\.open-cluster-management\.io/v1\r?\nkind: PolicyGenerator\r?$`)

// concerning reports whether a text may be the gate's business. UTF-16 is ASCII with zeros, which parsers of YAML read.
func concerning(data []byte) bool {
	return concern.Match(slices.DeleteFunc(bytes.Clone(data), func(b byte) bool { return b == 0 }))
}

// faultOf makes a problem of what went wrong with a whole file, without the path that the error repeats.
func faultOf(name string, err error) Problem {
	if bad, ok := errors.AsType[*encodingError](err); ok {
		return Problem{Place{File: name, Line: bad.line}, bad.Error()}
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		name, err = filepath.ToSlash(filepath.Clean(path.Path)), path.Err
	}
	return Problem{Place{File: name}, "cannot be read: " + err.Error()}
}

func readFile(name string) ([]byte, error) {
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

// encodingError returns an error with the place of the first byte that is not UTF-8.
type encodingError struct {
	line   int
	octet  byte
	offset int
}

func (e *encodingError) Error() string {
	return fmt.Sprintf("is not UTF-8 text: byte 0x%02x at offset %d", e.octet, e.offset)
}

// asText takes off a byte order mark and refuses what is not UTF-8, which decoders would replace or guess at.
func asText(data []byte) ([]byte, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return nil, &encodingError{line: 1 + bytes.Count(data[:i], []byte("\n")), octet: data[i], offset: i}
		}
		i += size
	}
	return data, nil
}
