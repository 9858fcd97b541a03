package diff

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/operator-framework/operator-registry/alpha/declcfg"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
)

// maxBundle is the size in bytes above which a bundle of a catalog is not read: far more than OLM can unpack.
const maxBundle = 32 << 20

// fromCatalog compares two ClusterServiceVersions of a file-based catalog; from is empty for a first installation.
func fromCatalog(ctx context.Context, o *options) (*result, error) {
	names := slices.DeleteFunc([]string{o.from, o.to}, func(name string) bool { return name == "" })
	root, err := CatalogFS(o.catalog, nil, names...)
	if err != nil {
		return nil, err
	}
	found, err := readBundles(ctx, root, o.pkg, names)
	if err != nil {
		return nil, fmt.Errorf("read catalog %s: %w", text.Quote(o.catalog), err)
	}
	for _, name := range names {
		if found[name] == nil {
			in := ""
			if o.pkg != "" {
				in = " in package " + text.Name(o.pkg)
			}
			return nil, fmt.Errorf("catalog %s has no bundle %s%s", text.Quote(o.catalog), text.Name(name), in)
		}
	}
	return compareBundles(found[o.from], found[o.to])
}

// readBundles reads the bundles of some names. Only these are decoded: a catalog has hundreds of megabytes.
func readBundles(ctx context.Context, root fs.FS, pkg string, names []string) (map[string]*declcfg.Bundle, error) {
	found := map[string]*declcfg.Bundle{}
	err := declcfg.WalkMetasFS(ctx, root, func(path string, meta *declcfg.Meta, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		case meta.Schema == "":
			return fmt.Errorf("%s: an object has no schema, so it is not of a file-based catalog", path)
		case meta.Schema != declcfg.SchemaBundle || !slices.Contains(names, meta.Name) || pkg != "" && meta.Package != pkg:
			return nil
		case len(meta.Blob) > maxBundle:
			return fmt.Errorf("%s: bundle %s has %d bytes, more than the %d that are read", path, text.Name(meta.Name),
				len(meta.Blob), maxBundle)
		}
		b := &declcfg.Bundle{}
		if err := json.Unmarshal(meta.Blob, b); err != nil {
			return fmt.Errorf("%s: bundle %s: %w", path, text.Name(meta.Name), err)
		}
		if other := found[b.Name]; other != nil {
			return fmt.Errorf("bundle %s is defined twice, in packages %s and %s: name one by --package", text.Name(b.Name),
				text.Name(min(other.Package, b.Package)), text.Name(max(other.Package, b.Package)))
		}
		found[b.Name] = b
		return nil
	}, declcfg.WithConcurrency(1))
	return found, err
}

// CatalogFS returns the directory of a catalog, or one with the only file of it. Files have only the documents that have
// one of some texts, such as a package: a catalog has hundreds of megabytes. opened, if it is not nil, is called with the
// number of files that were opened.
func CatalogFS(path string, opened func(files int), naming ...string) (fs.FS, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	files := catalogFiles{naming: naming, opened: opened, files: new(int)}
	if info.IsDir() {
		files.FS = os.DirFS(path)
		return files, nil
	}
	files.FS, files.only = os.DirFS(filepath.Dir(path)), filepath.Base(path)
	return files, nil
}

// maxCatalogFile is the size in bytes above which a file of a catalog is not read. The largest in use have 200 MiB.
const maxCatalogFile = 1 << 30

// catalogFiles are the files of a catalog: regular ones, in which the aliases of no YAML document stand for too much.
type catalogFiles struct {
	fs.FS
	// only is the name of the only file that is listed; empty for all.
	only string
	// naming are the texts of which a document has one.
	naming []string
	// opened is called with the number of files that were opened. Default: not called.
	opened func(files int)
	files  *int
}

// ReadDir implements fs.ReadDirFS.
func (c catalogFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(c.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return c.only != "" && e.Name() != c.only }), err
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
	return &document{bytes.NewReader(documents), info}, nil
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

// check returns the documents of a file that have one of the texts. It reports an error if a file has a YAML document that is
// too large once its aliases are replaced. JSON has no aliases.
func (c catalogFiles) check(name string) (kept []byte, err error) {
	keep := func(separator string, document []byte) {
		if !slices.ContainsFunc(c.naming, func(text string) bool { return bytes.Contains(document, []byte(text)) }) {
			return
		}
		if len(kept) > 0 {
			kept = append(kept, separator...)
		}
		kept = append(kept, document...)
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
