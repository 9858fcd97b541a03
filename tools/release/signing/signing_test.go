package signing_test

import (
	"bytes"
	"crypto/elliptic"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/opgate/opgate/tools/release/signing"
)

func newKey(t *testing.T) (*signing.Key, *signing.Verifier) {
	t.Helper()
	key, err := signing.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key, verifier(t, key)
}

func verifier(t *testing.T, key *signing.Key) *signing.Verifier {
	t.Helper()
	v, err := signing.LoadVerifier(key.PublicPEM())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBlob(t *testing.T) {
	key, mine := newKey(t)
	_, other := newKey(t)
	data := []byte("what is signed")
	signed, err := key.Blob(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	if err := mine.Blob(signed, bytes.NewReader(data)); err != nil {
		t.Error(err)
	}
	if err := mine.Blob(signed, strings.NewReader("what is signeD")); err == nil {
		t.Error("other data is accepted")
	}
	if err := other.Blob(signed, bytes.NewReader(data)); err == nil {
		t.Error("another key is accepted")
	}
	if err := mine.Blob([]byte(`{}`), bytes.NewReader(data)); err == nil {
		t.Error("a bundle without a signature is accepted")
	}
}

func testStatement(predicateType string, digest v1.Hash) *intoto.Statement {
	return &intoto.Statement{
		Type: intoto.StatementTypeUri, PredicateType: predicateType, Predicate: &structpb.Struct{},
		Subject: []*intoto.ResourceDescriptor{{Name: "example",
			Digest: map[string]string{digest.Algorithm: digest.Hex}}},
	}
}

func TestStatement(t *testing.T) {
	key, mine := newKey(t)
	_, other := newKey(t)
	digest, _, err := v1.SHA256(strings.NewReader("what it is about"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := key.Attest(t.Context(), testStatement("https://example.com/said", digest))
	if err != nil {
		t.Fatal(err)
	}
	got, err := mine.Statement(signed, digest)
	if err != nil || got.GetPredicateType() != "https://example.com/said" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := other.Statement(signed, digest); err == nil {
		t.Error("another key is accepted")
	}
	about, _, err := v1.SHA256(strings.NewReader("something else"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Statement(signed, about); err == nil {
		t.Error("a statement about something else is accepted")
	}
	if _, err := key.Attest(t.Context(), &intoto.Statement{}); err == nil {
		t.Error("a statement about nothing is signed")
	}
}

// TestImage signs an image, in registries that list what refers to it, and in those that have a tag for that.
func TestImage(t *testing.T) {
	for _, lists := range []bool{true, false} {
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)),
			registry.WithReferrersSupport(lists)))
		t.Cleanup(server.Close)
		repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/example")
		if err != nil {
			t.Fatal(err)
		}
		key, mine := newKey(t)
		otherKey, other := newKey(t)
		signed, unsigned := push(t, repository), push(t, repository)
		sign(t, key, repository, signed)
		ref := repository.Digest(signed.Digest.String())

		got, err := mine.Image(t.Context(), ref)
		if err != nil || len(got) != 1 || got["https://example.com/said"] == nil {
			t.Errorf("got statements %v, %v, want one", got, err)
		}
		if _, err := other.Image(t.Context(), ref); err == nil {
			t.Error("another key is accepted")
		}
		if _, err := mine.Image(t.Context(), repository.Digest(unsigned.Digest.String())); err == nil {
			t.Error("an image without a signature is accepted")
		}
		// The signature of one image under the tag of another.
		moved, err := remote.Image(repository.Tag(signing.Tag(signed.Digest)))
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(repository.Tag(signing.Tag(unsigned.Digest)), moved); err != nil {
			t.Fatal(err)
		}
		_, err = mine.Image(t.Context(), repository.Digest(unsigned.Digest.String()))
		if err == nil || !strings.Contains(err.Error(), "it is of "+signed.Digest.String()) {
			t.Errorf("got error %v, want it to say what the signature is of", err)
		}
		// A bundle that another key signed is not left out silently.
		attest(t, otherKey, repository, signed)
		if _, err := mine.Image(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "verify a bundle") {
			t.Errorf("got error %v, want it to be about a bundle", err)
		}
	}
}

// push pushes an image and returns what describes it.
func push(t *testing.T, to name.Repository) v1.Descriptor {
	t.Helper()
	img, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	descriptor, err := partial.Descriptor(img)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to.Digest(descriptor.Digest.String()), img); err != nil {
		t.Fatal(err)
	}
	return *descriptor
}

// sign signs an image, and makes a statement about it.
func sign(t *testing.T, key *signing.Key, repository name.Repository, image v1.Descriptor) {
	t.Helper()
	signature, err := key.Image(repository, image.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(repository.Tag(signing.Tag(image.Digest)), signature); err != nil {
		t.Fatal(err)
	}
	attest(t, key, repository, image)
}

func attest(t *testing.T, key *signing.Key, repository name.Repository, image v1.Descriptor) {
	t.Helper()
	bundle, err := key.Attest(t.Context(), testStatement("https://example.com/said", image.Digest))
	if err != nil {
		t.Fatal(err)
	}
	referrer, err := signing.Referrer(bundle, "https://example.com/said", image)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := referrer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(repository.Digest(digest.String()), referrer); err != nil {
		t.Fatal(err)
	}
}

// TestLoadKey reads keys as "cosign generate-key-pair" writes them.
func TestLoadKey(t *testing.T) {
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(),
		cryptoutils.StaticPasswordFunc([]byte("secret")))
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.LoadKey(private, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(key.PublicPEM(), public) {
		t.Errorf("the public key is %s, want %s", key.PublicPEM(), public)
	}
	if _, err := signing.LoadKey(private, []byte("guess")); err == nil {
		t.Error("a wrong password is accepted")
	}
	rsa, _, err := cryptoutils.GeneratePEMEncodedRSAKeyPair(2048, cryptoutils.SkipPassword)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signing.LoadKey(rsa, nil); err == nil || !strings.Contains(err.Error(), "P-256") {
		t.Errorf("got error %v, want it to say which keys there are", err)
	}
}
