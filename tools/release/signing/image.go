package signing

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/opgate/opgate/tools/release/oci"
)

const (
	// SignPredicate is the type of statements that are nothing but a signature, as cosign 3 makes them.
	SignPredicate = "https://sigstore.dev/cosign/sign/v1"

	simpleSigning       = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	bundleType          = types.MediaType("application/vnd.dev.sigstore.bundle.v0.3+json")
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
	contentAnnotation   = "dev.sigstore.bundle.content"
)

// Tag is the tag in the repository of an image under which cosign looks for its signatures.
func Tag(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex + ".sig" }

// Image signs an image, or another artifact, that is published in a repository, and returns what to store beside it
// under Tag: a layer with what was signed, and the signature as an annotation of it. All versions of cosign, and the
// controllers that verify for a cluster, read this.
func (k *Key) Image(repository name.Repository, digest v1.Hash) (v1.Image, error) {
	signed, err := json.Marshal(payload.Cosign{Image: repository.Digest(digest.String())})
	if err != nil {
		return nil, err
	}
	sig, err := k.signer.SignMessage(bytes.NewReader(signed))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(signed, simpleSigning),
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(sig)},
	})
}

// Referrer returns a bundle as an artifact that refers to the subject of its statement, which is how cosign 3 finds it.
func Referrer(bundleJSON []byte, predicateType string, subject v1.Descriptor) (v1.Image, error) {
	return oci.Artifact{
		Type:        string(bundleType),
		Data:        bundleJSON,
		DataType:    bundleType,
		Subject:     &subject,
		Annotations: map[string]string{predicateAnnotation: predicateType, contentAnnotation: "dsse-envelope"},
	}.Image()
}

// Image verifies all that is signed about an image in a registry: the signature, and every bundle that refers to it. It
// returns the statements of the bundles by the types of their predicates.
func (v *Verifier) Image(
	ctx context.Context, ref name.Digest, opts ...remote.Option,
) (map[string]*intoto.Statement, error) {
	opts = append([]remote.Option{remote.WithContext(ctx)}, opts...)
	digest, err := v1.NewHash(ref.DigestStr())
	if err != nil {
		return nil, err
	}
	// What is stored under the digest must have it.
	found, err := remote.Get(ref, opts...)
	if err != nil {
		return nil, err
	}
	if found.Digest != digest {
		return nil, fmt.Errorf("%s has digest %s", ref, found.Digest)
	}
	if err := v.signature(ref, digest, opts); err != nil {
		return nil, fmt.Errorf("verify the signature of %s: %w", ref, err)
	}
	referrers, err := remote.Referrers(ref, opts...)
	if err != nil {
		return nil, fmt.Errorf("look for bundles about %s: %w", ref, err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		return nil, err
	}
	statements := map[string]*intoto.Statement{}
	for _, descriptor := range manifest.Manifests {
		bundled, err := readBundle(ref.Context().Digest(descriptor.Digest.String()), opts)
		if err != nil {
			return nil, fmt.Errorf("read what refers to %s: %w", ref, err)
		}
		if bundled == nil {
			continue
		}
		statement, err := v.Statement(bundled, digest)
		if err != nil {
			return nil, fmt.Errorf("verify a bundle about %s: %w", ref, err)
		}
		statements[statement.GetPredicateType()] = statement
	}
	return statements, nil
}

// signature verifies that one of the signatures of an image is by the key, and of this digest.
func (v *Verifier) signature(ref name.Digest, digest v1.Hash, opts []remote.Option) error {
	img, err := remote.Image(ref.Context().Tag(Tag(digest)), opts...)
	if err != nil {
		return err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	errs := []error{errors.New("no signature is valid")}
	for _, descriptor := range manifest.Layers {
		if descriptor.MediaType != simpleSigning {
			continue
		}
		if err := v.layer(img, descriptor, digest); err != nil {
			errs = append(errs, err)
			continue
		}
		return nil
	}
	return errors.Join(errs...)
}

func (v *Verifier) layer(img v1.Image, descriptor v1.Descriptor, digest v1.Hash) error {
	layer, err := img.LayerByDigest(descriptor.Digest)
	if err != nil {
		return err
	}
	signed, err := readLayer(layer)
	if err != nil {
		return err
	}
	sig, err := base64.StdEncoding.DecodeString(descriptor.Annotations[signatureAnnotation])
	if err != nil {
		return err
	}
	if err := v.key.VerifySignature(bytes.NewReader(sig), bytes.NewReader(signed)); err != nil {
		return err
	}
	var claim payload.Cosign
	if err := json.Unmarshal(signed, &claim); err != nil {
		return err
	}
	if claim.Image.DigestStr() != digest.String() {
		return fmt.Errorf("it is of %s", claim.Image.DigestStr())
	}
	return nil
}

// readBundle returns the bundle in an artifact, nil if it holds something else. Its layer states what it is: registries
// differ in what they list as its type.
func readBundle(ref name.Digest, opts []remote.Option) ([]byte, error) {
	img, err := remote.Image(ref, opts...)
	if err != nil {
		return nil, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != bundleType {
		return nil, nil
	}
	layer, err := img.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		return nil, err
	}
	return readLayer(layer)
}

func readLayer(layer v1.Layer) ([]byte, error) {
	r, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}
