package release

import (
	"context"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/opgate/opgate/tools/image"
	"github.com/opgate/opgate/tools/release/helmchart"
	"github.com/opgate/opgate/tools/release/oci"
	"github.com/opgate/opgate/tools/release/signing"
)

// chartRepository is where charts are published; Helm adds the name.
const chartRepository = "ghcr.io/opgate/charts/" + chartName

// chartLayout writes the packaged chart as a layout, with what the repository states about itself on Artifact Hub.
func (b *build) chartLayout(ctx context.Context, file string) error {
	layout, err := oci.NewLayout(filepath.Join(b.dir, chartDir))
	if err != nil {
		return err
	}
	err = b.Helm.Artifact(ctx, file, b.Version.Number(), func(img v1.Image) error {
		return layout.Add(img, b.Version.Number())
	})
	if err != nil {
		return err
	}
	described := filepath.Join(b.Checkout.Manifests(), "chart", hubFile)
	repository, err := helmchart.Repository(described)
	if err != nil {
		return err
	}
	if err := layout.Add(repository, helmchart.RepositoryTag); err != nil {
		return err
	}
	data, err := os.ReadFile(described)
	if err != nil {
		return err
	}
	return writeFile(b.dir, hubFile, data)
}

// sign writes the checksums and signs everything: the checksums, the files that they name, the image and the chart.
func (b *build) sign(ctx context.Context) error {
	if err := writeFile(b.dir, keyFile, b.Key.PublicPEM()); err != nil {
		return err
	}
	document, err := os.ReadFile(filepath.Join(b.dir, sbomFile))
	if err != nil {
		return err
	}
	contents := func(subjects ...*intoto.ResourceDescriptor) (*intoto.Statement, error) {
		return sbom(document, subjects...)
	}
	for _, target := range []struct {
		dir, repository, tag string
		statements           []about
	}{
		{imageDir, image.Name, b.Version.Tag, []about{signatureOnly, b.provenance, contents}},
		{chartDir, chartRepository, b.Version.Number(), []about{signatureOnly, b.provenance}},
	} {
		if err := b.signLayout(ctx, filepath.Join(b.dir, target.dir), target.repository, target.tag,
			target.statements); err != nil {
			return err
		}
	}
	return b.signFiles(ctx)
}

// about makes a statement about subjects.
type about func(...*intoto.ResourceDescriptor) (*intoto.Statement, error)

func signatureOnly(subjects ...*intoto.ResourceDescriptor) (*intoto.Statement, error) {
	return signatureStatement(subjects...), nil
}

// signLayout signs the entry of a layout with a tag, and adds the signature and the statements about it.
func (b *build) signLayout(ctx context.Context, dir, published, tag string, statements []about) error {
	layout, err := oci.OpenLayout(dir)
	if err != nil {
		return err
	}
	entry, err := layout.Find(tag)
	if err != nil {
		return err
	}
	repository, err := name.NewRepository(published)
	if err != nil {
		return err
	}
	signature, err := b.Key.Image(repository, entry.Digest)
	if err != nil {
		return err
	}
	if err := layout.Add(signature, signing.Tag(entry.Digest)); err != nil {
		return err
	}
	for _, about := range statements {
		statement, err := about(subject(published, entry.Digest.Hex))
		if err != nil {
			return err
		}
		bundle, err := b.Key.Attest(ctx, statement)
		if err != nil {
			return err
		}
		referrer, err := signing.Referrer(bundle, statement.GetPredicateType(), entry)
		if err != nil {
			return err
		}
		if err := layout.Add(referrer, ""); err != nil {
			return err
		}
	}
	return nil
}

// signFiles writes SumsFile, its signature, and the provenance of all files in it.
func (b *build) signFiles(ctx context.Context) error {
	sums, err := sumFiles(b.dir)
	if err != nil {
		return err
	}
	text := []byte(formatSums(sums))
	if err := writeFile(b.dir, SumsFile, text); err != nil {
		return err
	}
	signed, err := b.Key.Blob(ctx, text)
	if err != nil {
		return err
	}
	if err := writeFile(b.dir, bundleFile, signed); err != nil {
		return err
	}
	subjects := make([]*intoto.ResourceDescriptor, len(sums))
	for i, sum := range sums {
		subjects[i] = subject(sum.File, sum.SHA256)
	}
	provenance, err := b.provenance(subjects...)
	if err != nil {
		return err
	}
	bundle, err := b.Key.Attest(ctx, provenance)
	if err != nil {
		return err
	}
	return writeFile(b.dir, ProvenanceFile, bundle)
}
