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
	"strings"

	"github.com/operator-framework/operator-registry/alpha/declcfg"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
	"github.com/opgate/opgate/rules/change"
)

// maxBundle is the size in bytes above which a bundle of a catalog is not read: far more than OLM can unpack.
const maxBundle = 32 << 20

// bundle is an entry of a catalog for a ClusterServiceVersion.
type bundle struct {
	declcfg.Bundle
	// deprecated is what the catalog says of it, and packageDeprecated of its package, if that is deprecated.
	deprecated, packageDeprecated string
}

// fromCatalog compares two ClusterServiceVersions of a file-based catalog; from is empty for a first installation.
func fromCatalog(ctx context.Context, o *options) (*result, error) {
	root, err := CatalogFS(o.catalog, "", nil)
	if err != nil {
		return nil, err
	}
	found, err := readBundles(ctx, root, o.pkg, o.from, o.to)
	if err != nil {
		return nil, fmt.Errorf("read catalog %s: %w", text.Quote(o.catalog), err)
	}
	for _, name := range []string{o.from, o.to} {
		if name != "" && found[name] == nil {
			return nil, fmt.Errorf("catalog %s has no bundle %s%s", text.Quote(o.catalog), text.Name(name),
				inPackage(o.pkg))
		}
	}
	after := found[o.to]
	r, err := compareVersions(found[o.from], after)
	if err != nil {
		return nil, err
	}
	if after.deprecated != "" {
		r.Notes = append(r.Notes, "the catalog deprecates "+text.Name(o.to)+": "+after.deprecated)
	}
	if after.packageDeprecated != "" {
		r.Notes = append(r.Notes, "the catalog deprecates package "+text.Name(after.Package)+": "+
			after.packageDeprecated)
	}
	return r, nil
}

// compareVersions compares two bundles of one package; before is nil for a first installation.
func compareVersions(before, after *bundle) (*result, error) {
	if before != nil && before.Package != after.Package {
		return nil, fmt.Errorf("%s is of package %s, and %s is of package %s: no version replaces one of another package",
			text.Name(before.Name), text.Name(before.Package), text.Name(after.Name), text.Name(after.Package))
	}
	return compareBundles(before, after), nil
}

func inPackage(pkg string) string {
	if pkg == "" {
		return ""
	}
	return " in package " + text.Name(pkg)
}

// CatalogFS returns the directory of a catalog, or one with the only file of it. naming, if it is not empty, leaves only
// the documents that have this text, such as a package: a catalog has hundreds of megabytes. opened, if it is not nil,
// is called with the number of files that were opened.
func CatalogFS(path, naming string, opened func(files int)) (fs.FS, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	files := catalogFiles{naming: naming, opened: opened, files: new(int)}
	if info.IsDir() {
		files.FS = os.DirFS(path)
		return files, nil
	}
	files.FS = os.DirFS(filepath.Dir(path))
	return oneFile{files, filepath.Base(path)}, nil
}

// oneFile is a directory in which nothing but one file is listed.
type oneFile struct {
	fs.FS
	name string
}

// ReadDir implements fs.ReadDirFS.
func (f oneFile) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() != f.name }), err
}

// readBundles reads the bundles of some names. Only these are decoded: a catalog has hundreds of megabytes.
func readBundles(ctx context.Context, root fs.FS, pkg string, names ...string) (map[string]*bundle, error) {
	found := map[string]*bundle{}
	var deprecations []declcfg.Deprecation
	err := declcfg.WalkMetasFS(ctx, root, func(path string, meta *declcfg.Meta, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		case meta.Schema == "":
			return fmt.Errorf("%s: an object has no schema, so it is not of a file-based catalog", path)
		case meta.Schema == declcfg.SchemaDeprecation:
			var d declcfg.Deprecation
			if err := json.Unmarshal(meta.Blob, &d); err != nil {
				return fmt.Errorf("%s: deprecations of package %s: %w", path, text.Name(meta.Package), err)
			}
			deprecations = append(deprecations, d)
			return nil
		case meta.Schema != declcfg.SchemaBundle || meta.Name == "" || !slices.Contains(names, meta.Name) ||
			pkg != "" && meta.Package != pkg:
			return nil
		case len(meta.Blob) > maxBundle:
			return fmt.Errorf("%s: bundle %s has %d bytes, more than the %d that are read", path, text.Name(meta.Name),
				len(meta.Blob), maxBundle)
		}
		b := &bundle{}
		if err := json.Unmarshal(meta.Blob, &b.Bundle); err != nil {
			return fmt.Errorf("%s: bundle %s: %w", path, text.Name(meta.Name), err)
		}
		if other := found[meta.Name]; other != nil {
			if other.Package == b.Package {
				return fmt.Errorf("%s: bundle %s appears twice", path, text.Name(meta.Name))
			}
			return fmt.Errorf("bundle %s is in packages %s: name one by --package", text.Name(meta.Name),
				strings.Join([]string{text.Name(min(other.Package, b.Package)),
					text.Name(max(other.Package, b.Package))}, " and "))
		}
		found[meta.Name] = b
		return nil
	}, declcfg.WithConcurrency(1))
	if err != nil {
		return nil, err
	}
	for _, b := range found {
		b.deprecate(deprecations)
	}
	return found, nil
}

// deprecate sets what the catalog says of a bundle and its package.
func (b *bundle) deprecate(all []declcfg.Deprecation) {
	for _, d := range all {
		if d.Package != b.Package {
			continue
		}
		for _, e := range d.Entries {
			switch {
			case e.Reference.Schema == declcfg.SchemaBundle && e.Reference.Name == b.Name:
				b.deprecated = cmp.Or(b.deprecated, e.Message)
			case e.Reference.Schema == declcfg.SchemaPackage:
				b.packageDeprecated = cmp.Or(b.packageDeprecated, e.Message)
			}
		}
	}
}

// compareBundles compares what the catalog has of both. Where one has no manifests, the comparison is about the rest:
// else everything that the other one has would be a difference, or nothing.
func compareBundles(before, after *bundle) *result {
	was, is := before.read(), after.read()
	r := &result{}
	if missing := without(was, is); missing != nil {
		r.notCompared, r.why = missing.parts, missing.why
		was.partial(missing)
		is.partial(missing)
	}
	r.Set = change.Compare(was.contents(), is.contents())
	r.CSV, r.Package = after.Name, after.Package
	if before != nil {
		r.From = before.Name
	}
	if len(r.notCompared) > 0 {
		r.Notes = nil // they are about what was not compared
		r.Differences = slices.DeleteFunc(r.Differences, func(d change.Difference) bool {
			return !slices.Contains([]change.Class{change.Images, change.Scope, change.Requirements}, d.Class)
		})
	}
	return r
}

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
