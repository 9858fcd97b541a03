package diff

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/opgate/opgate/internal/yamlsize"
)

// maxCatalogFile is the size in bytes above which a file of a catalog is not read. The largest in use have 200 MiB.
const maxCatalogFile = 1 << 30

// catalogFiles are the files of a catalog: regular ones, in which the aliases of no YAML document stand for too much.
type catalogFiles struct {
	fs.FS
	// naming leaves only the documents that have this text. Default: all.
	naming string
	// opened is called with the number of files that were opened. Default: not called.
	opened func(files int)
	files  *int
}

// Open opens a file that has been checked, or a directory.
func (c catalogFiles) Open(name string) (fs.File, error) {
	info, err := fs.Stat(c.FS, name)
	var documents []byte
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return c.FS.Open(name)
	case !info.Mode().IsRegular(): // reading a pipe would block, and a device may have no end
		err = errors.New("it is not a regular file")
	case info.Size() > maxCatalogFile:
		err = fmt.Errorf("it has more than the %d bytes that are read", maxCatalogFile)
	default:
		documents, err = c.check(name)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	if *c.files++; c.opened != nil {
		c.opened(*c.files)
	}
	if c.naming != "" {
		return &document{bytes.NewReader(documents), info}, nil
	}
	return c.FS.Open(name)
}

// document is a file in memory.
type document struct {
	*bytes.Reader
	info fs.FileInfo
}

// Stat implements fs.File.
func (d *document) Stat() (fs.FileInfo, error) { return d.info, nil }

// Close implements fs.File.
func (d *document) Close() error { return nil }

// check returns the documents of a file that have the text. It reports an error if a file has a YAML document that is
// too large once its aliases are replaced. JSON has no aliases.
func (c catalogFiles) check(name string) (kept []byte, err error) {
	keep := func(before string, document []byte) {
		if c.naming != "" && bytes.Contains(document, []byte(c.naming)) {
			kept = append(append(kept, before...), document...)
		}
	}
	isJSON := func(file io.Reader) error {
		decoder := json.NewDecoder(file)
		for {
			var value json.RawMessage
			if err := decoder.Decode(&value); err != nil {
				return err
			}
			keep("\n", value)
		}
	}
	if err := c.read(name, isJSON); errors.Is(err, io.EOF) {
		return kept, nil
	}
	kept = nil
	err = c.read(name, func(file io.Reader) error {
		documents := utilyaml.NewYAMLReader(bufio.NewReader(file))
		for {
			document, err := documents.Read()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case len(document) > maxBundle:
				return fmt.Errorf("a document has %d bytes, more than the %d that are read", len(document), maxBundle)
			}
			if err := yamlsize.CheckAliases(document, maxBundle); errors.Is(err, yamlsize.ErrTooLarge) {
				return fmt.Errorf("a document is %w", err)
			}
			keep("\n---\n", document)
		}
	})
	return kept, err
}

func (c catalogFiles) read(name string, do func(file io.Reader) error) error {
	file, err := c.FS.Open(name)
	if err != nil {
		return err
	}
	return cmp.Or(do(file), file.Close())
}
