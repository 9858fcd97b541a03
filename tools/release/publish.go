package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/opgate/opgate/tools/release/helmchart"
	"github.com/opgate/opgate/tools/release/oci"
	"github.com/opgate/opgate/tools/release/signing"
)

// Registry is where releases are published.
const Registry = "ghcr.io/opgate"

// Published are the image and the chart of a release in a registry, by their digests.
type Published struct{ Image, Chart name.Digest }

// layouts are the directories of a release and the repositories below a registry that they are pushed to.
var layouts = []struct{ dir, repository string }{{imageDir, "opgate"}, {chartDir, "charts/" + chartName}}

// Find returns where the image and the chart of the release in dir are in a registry, once they are pushed.
func Find(dir, registry string) (Published, error) {
	var found [2]name.Digest
	for i, l := range layouts {
		layout, err := oci.OpenLayout(filepath.Join(dir, l.dir))
		if err != nil {
			return Published{}, err
		}
		entry, err := layout.Main(signing.Tag, helmchart.RepositoryTag)
		if err != nil {
			return Published{}, err
		}
		repository, err := name.NewRepository(registry + "/" + l.repository)
		if err != nil {
			return Published{}, fmt.Errorf("registry %q: %w", registry, err)
		}
		found[i] = repository.Digest(entry.Digest.String())
	}
	return Published{Image: found[0], Chart: found[1]}, nil
}

// Push uploads the image and the chart of the release in dir, with all that is signed about them, below a registry,
// with the credentials of "docker login".
func Push(ctx context.Context, dir, registry string) (Published, error) {
	for _, l := range layouts {
		repository, err := name.NewRepository(registry + "/" + l.repository)
		if err != nil {
			return Published{}, fmt.Errorf("registry %q: %w", registry, err)
		}
		layout, err := oci.OpenLayout(filepath.Join(dir, l.dir))
		if err != nil {
			return Published{}, err
		}
		if err := layout.Push(ctx, repository, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return Published{}, err
		}
	}
	return Find(dir, registry)
}

// VerifyFiles verifies the files of the release in dir by a public key: the signature of the checksums, each checksum,
// and that the provenance is about each file.
func VerifyFiles(dir string, verifier *signing.Verifier) error {
	sums, err := os.ReadFile(filepath.Join(dir, SumsFile))
	if err != nil {
		return err
	}
	signed, err := os.ReadFile(filepath.Join(dir, bundleFile))
	if err != nil {
		return err
	}
	if err := verifier.Blob(signed, bytes.NewReader(sums)); err != nil {
		return fmt.Errorf("%s: %w", bundleFile, err)
	}
	if err := CheckSums(dir); err != nil {
		return err
	}
	provenance, err := os.ReadFile(filepath.Join(dir, ProvenanceFile))
	if err != nil {
		return err
	}
	files, err := ReadSums(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		statement, err := verifier.Statement(provenance, v1.Hash{Algorithm: "sha256", Hex: file.SHA256})
		if err != nil {
			return fmt.Errorf("%s: about %s: %w", ProvenanceFile, file.File, err)
		}
		if statement.GetPredicateType() != ProvenancePredicate {
			return fmt.Errorf("%s is of type %s", ProvenanceFile, statement.GetPredicateType())
		}
	}
	return nil
}

// Verify verifies the image and the chart of a release in a registry by a public key: their signatures, that each has
// its provenance, and the image the list of its contents.
func (p Published) Verify(ctx context.Context, verifier *signing.Verifier, opts ...remote.Option) error {
	var errs []error
	for _, want := range []struct {
		ref   name.Digest
		types []string
	}{
		{p.Image, []string{signing.SignPredicate, ProvenancePredicate, SBOMPredicate}},
		{p.Chart, []string{signing.SignPredicate, ProvenancePredicate}},
	} {
		statements, err := verifier.Image(ctx, want.ref, opts...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, missing(want.ref, statements, want.types))
	}
	return errors.Join(errs...)
}

func missing(ref name.Digest, statements map[string]*intoto.Statement, types []string) error {
	for _, t := range types {
		if statements[t] == nil {
			return fmt.Errorf("%s has no statement of type %s", ref, t)
		}
	}
	return nil
}
