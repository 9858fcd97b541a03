// Package release builds what a release of Opgate consists of, signs it, and pushes it to a registry. docs/release.md
// describes the files.
package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
	"github.com/opgate/opgate/tools/image"
	"github.com/opgate/opgate/tools/release/helmchart"
	"github.com/opgate/opgate/tools/release/signing"
)

const (
	source = "https://github.com/opgate/opgate"
	// downloads is where the files of a release are published, below it the tag.
	downloads = source + "/releases/download/"
	// chartName is the name of the chart.
	chartName = "opgate"

	// Names in the directory of a release.
	imageDir   = "image"
	chartDir   = "chart"
	keyFile    = "opgate.pub"
	sbomFile   = image.Server + ".spdx.json"
	toolSBOM   = tool + ".spdx.json"
	krewFile   = "opgate.yaml"
	notesFile  = "NOTES.md"
	hubFile    = "artifacthub-repo.yml"
	bundleFile = SumsFile + ".sigstore.json"
	// ProvenanceFile is the signed statement about all files in SumsFile.
	ProvenanceFile = "provenance.sigstore.json"
)

// Options say what to build.
type Options struct {
	Checkout repo.Checkout
	Commit   Commit
	Version  Version
	// Created is the time of the commit, which all files have. The same commit makes the same files; signatures differ.
	Created time.Time
	// Platforms are those of the image, Targets those of the binaries.
	Platforms, Targets []v1.Platform
	// Base is the base image, or scratch.
	Base string
	// Helm packages the chart.
	Helm helmchart.Helm
	// Key signs everything.
	Key *signing.Key
	// Builder states in the provenance who built it, as a URI. Default: LocalBuilder.
	Builder string
	// Log receives progress lines.
	Log io.Writer
}

// build is a release in the making.
type build struct {
	Options
	dir    string // of the release, while it is not complete
	base   image.Base
	digest v1.Hash // of the image
}

// Build builds a release and puts it in the place of dir: all of it, or nothing.
func Build(ctx context.Context, dir string, opts Options) error {
	if err := replaceable(dir); err != nil {
		return err
	}
	if opts.Builder == "" {
		opts.Builder = LocalBuilder
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".release-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	b := &build{Options: opts, dir: filepath.Join(temp, "release")}
	if err := os.Mkdir(b.dir, 0o755); err != nil { //nolint:gosec // made to be published
		return err
	}
	if err := b.run(ctx, filepath.Join(temp, "work")); err != nil {
		return fmt.Errorf("build release %s: %w", opts.Version.Tag, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(b.dir, dir)
}

// replaceable returns an error if dir holds something else than a release, so that a typing error destroys nothing.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, SumsFile)); err != nil {
		return fmt.Errorf("%s holds something else than a release: name a directory with one, or that is empty or not there", dir)
	}
	return nil
}

// run builds into b.dir; work is for what is not published.
func (b *build) run(ctx context.Context, work string) error {
	if err := os.Mkdir(work, 0o750); err != nil {
		return err
	}
	notes, err := b.notes() // first, since it fails first
	if err != nil {
		return err
	}
	if b.base, err = image.FindBase(ctx, b.Base, b.Log); err != nil {
		return err
	}
	tools, err := image.Compile(ctx, tool, b.Checkout.Root, work, b.Version.Tag, image.FIPSOff, b.Targets, b.Log)
	if err != nil {
		return err
	}
	servers, err := image.Compile(ctx, image.Server, b.Checkout.Root, work, b.Version.Tag, image.FIPSOff, b.Platforms, b.Log)
	if err != nil {
		return err
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"archives of the kubectl plugin, and the manifest for krew", func() error { return b.plugins(tools) }},
		{"image", func() error { return b.image(servers) }},
		{"lists of contents (SBOM)", func() error {
			return errors.Join(b.sbom(sbomFile, servers), b.sbom(toolSBOM, tools))
		}},
		{"chart", func() error { return b.chart(ctx, notes) }},
		{"manifests for kubectl", b.manifests},
		{"checksums, signatures and provenance", func() error { return b.sign(ctx) }},
	}
	for _, step := range steps {
		watch := stopwatch.Start()
		fmt.Fprintf(b.Log, "making the %s\n", step.name)
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(b.Log, "made the %s in %s\n", step.name, watch)
	}
	return nil
}

// notes writes the notes of the release.
func (b *build) notes() (Notes, error) {
	changelog, err := os.ReadFile(filepath.Join(b.Checkout.Root, "CHANGELOG.md"))
	if err != nil {
		return Notes{}, err
	}
	notes, err := FindNotes(string(changelog), b.Version, b.Commit.Tag == b.Version.Tag && !b.Version.Prerelease())
	if err != nil {
		return Notes{}, err
	}
	return notes, writeFile(b.dir, notesFile, []byte(notes.Text))
}

func (b *build) plugins(binaries []image.Binary) error {
	license, err := os.ReadFile(filepath.Join(b.Checkout.Root, "LICENSE"))
	if err != nil {
		return err
	}
	for _, binary := range binaries {
		if err := writeBinary(b.dir, binary, license, b.Created); err != nil {
			return err
		}
	}
	manifest, err := krewManifest(b.dir, downloads+b.Version.Tag, b.Version, b.Targets)
	if err != nil {
		return err
	}
	return writeFile(b.dir, krewFile, manifest)
}

func (b *build) metadata() image.Metadata {
	return image.Metadata{Version: b.Version.Tag, Revision: b.Commit.Revision, Created: b.Created}
}

func (b *build) image(binaries []image.Binary) error {
	index, err := image.Assemble(b.base, binaries, b.metadata())
	if err != nil {
		return err
	}
	if b.digest, err = index.Digest(); err != nil {
		return err
	}
	return image.WriteLayout(filepath.Join(b.dir, imageDir), index, b.Version.Tag)
}

func (b *build) sbom(file string, binaries []image.Binary) error {
	var document bytes.Buffer
	if err := image.WriteSBOM(&document, binaries, b.metadata()); err != nil {
		return err
	}
	return writeFile(b.dir, file, document.Bytes())
}

// reference is the image by tag and digest.
func (b *build) reference() string { return image.Name + ":" + b.Version.Tag + "@" + b.digest.String() }

func (b *build) chart(ctx context.Context, notes Notes) error {
	var changes []helmchart.Change
	for _, change := range notes.Changes() {
		changes = append(changes, helmchart.Change{Kind: change.Kind, Description: change.Text})
	}
	annotations, err := helmchart.Annotations(b.reference(), b.Version.Prerelease(), changes)
	if err != nil {
		return err
	}
	file, err := b.Helm.Package(ctx, b.Checkout.Chart(), b.dir, helmchart.Options{
		Version: b.Version.Number(), AppVersion: b.Version.Tag, ImageDigest: b.digest.String(),
		Annotations: annotations, Created: b.Created,
	})
	if err != nil {
		return err
	}
	return b.chartLayout(ctx, file)
}

func (b *build) manifests() error {
	for name, overlay := range installFiles {
		built, err := buildManifests(b.Checkout.Manifests(), overlay, b.Version, b.digest.String())
		if err != nil {
			return err
		}
		if err := writeFile(b.dir, name, built); err != nil {
			return err
		}
	}
	return nil
}
