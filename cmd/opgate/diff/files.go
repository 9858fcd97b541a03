package diff

import (
	"bufio"
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
type catalogFiles struct{ fs.FS }

// Open opens a file that has been checked, or a directory.
func (c catalogFiles) Open(name string) (fs.File, error) {
	info, err := fs.Stat(c.FS, name)
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
		err = c.check(name)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return c.FS.Open(name)
}

// check reports an error if a file has a YAML document that is too large once its aliases are replaced. JSON has no
// aliases.
func (c catalogFiles) check(name string) error {
	isJSON := func(file io.Reader) error {
		decoder := json.NewDecoder(file)
		for {
			var value json.RawMessage
			if err := decoder.Decode(&value); err != nil {
				return err
			}
		}
	}
	if err := c.read(name, isJSON); errors.Is(err, io.EOF) {
		return nil
	}
	return c.read(name, func(file io.Reader) error {
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
		}
	})
}

func (c catalogFiles) read(name string, do func(file io.Reader) error) error {
	file, err := c.FS.Open(name)
	if err != nil {
		return err
	}
	return cmp.Or(do(file), file.Close())
}
