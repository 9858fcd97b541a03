package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// standardInput is the name that stands for standard input on the command line and in JSON.
const standardInput = cli.StandardInput

// maxInput is the size in bytes above which an input is not read: far more than a cluster's worth of
// manifests, and a bound for what reads without end.
const maxInput = 64 << 20

// maxInputs bounds the size of all inputs together, which are in memory at once: a repository holds many files of
// blanks in few bytes (threat G36).
const maxInputs = 512 << 20

// input is what one file holds.
type input struct {
	name string
	data []byte
}

func displayFile(name string) string {
	if name == standardInput {
		return "stdin"
	}
	return name
}

// gathered is everything that the names on the command line stand for.
type gathered struct {
	inputs []input
	// builds are the kustomizations that no other one is built from.
	builds   []*build
	skipped  skipped
	problems []problem
}

// gather reads every file that the names stand for, in the order of the names, directories in the order of their files' names, and builds
// the kustomizations in directories.
func gather(names []string, stdin io.Reader, s *search) *gathered {
	g := &gathered{}
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
			data, err = asText(data)
		}
		if err != nil {
			g.problems = append(g.problems, faultOf(name, err))
			return
		}
		g.inputs = append(g.inputs, input{name, data})
	}
	found := map[string][]string{}
	for _, name := range names {
		if name == standardInput {
			continue
		}
		files, err := s.filesIn(name)
		if err != nil {
			g.problems = append(g.problems, faultOf(name, err))
		}
		found[name] = files
	}
	var problems []problem
	g.builds, problems = buildAll(s.kustomizations)
	g.problems = append(g.problems, problems...)
	for _, name := range names {
		if name == standardInput {
			add(name, func() ([]byte, error) { return readLimited(stdin) })
			continue
		}
		for _, file := range s.unbuilt(found[name], g.builds) {
			add(file, func() ([]byte, error) { return readFile(file) })
		}
	}
	g.skipped = s.skipped
	return g
}

// faultOf makes a problem of what went wrong with a whole file, without the path that the error repeats.
func faultOf(name string, err error) problem {
	if bad, ok := errors.AsType[*encodingError](err); ok {
		return problem{place{file: name, line: bad.line}, bad.Error()}
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		name, err = filepath.ToSlash(filepath.Clean(path.Path)), path.Err
	}
	return problem{place{file: name}, "cannot be read: " + err.Error()}
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
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("it is larger than %d MiB", maxInput>>20)
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
