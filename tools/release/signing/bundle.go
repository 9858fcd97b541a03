package signing

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"
)

// statementType is the payload type of in-toto statements in envelopes.
const statementType = "application/vnd.in-toto+json"

// Blob signs data and returns the Sigstore bundle, in JSON.
func (k *Key) Blob(ctx context.Context, data []byte) ([]byte, error) {
	return k.bundle(ctx, &sign.PlainData{Data: data})
}

// Attest signs a statement, in an envelope (DSSE), and returns the Sigstore bundle, in JSON.
func (k *Key) Attest(ctx context.Context, statement *intoto.Statement) ([]byte, error) {
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("statement of type %s: %w", statement.GetPredicateType(), err)
	}
	data, err := protojson.Marshal(statement)
	if err != nil {
		return nil, err
	}
	// protojson adds spaces at random.
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, err
	}
	return k.bundle(ctx, &sign.DSSEData{Data: compact.Bytes(), PayloadType: statementType})
}

func (k *Key) bundle(ctx context.Context, content sign.Content) ([]byte, error) {
	signed, err := sign.Bundle(content, k, sign.BundleOptions{Context: ctx})
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return protojson.Marshal(signed)
}

// Verifier verifies by one public key.
type Verifier struct {
	key      signature.Verifier
	entities *verify.Verifier
}

// LoadVerifier reads a public key in PEM.
func LoadVerifier(pem []byte) (*Verifier, error) {
	public, err := cryptoutils.UnmarshalPEMToPublicKey(pem)
	if err != nil {
		return nil, fmt.Errorf("read the public key: %w", err)
	}
	key, err := signature.LoadDefaultVerifier(public)
	if err != nil {
		return nil, err
	}
	// The key is the only one, whatever a bundle calls it, and it does not expire.
	material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(key, time.Time{}, time.Time{}), nil
	})
	// A key of the project needs no proof of when it was used, which a certificate of minutes does.
	entities, err := verify.NewVerifier(material, verify.WithNoObserverTimestamps())
	if err != nil {
		return nil, err
	}
	return &Verifier{key: key, entities: entities}, nil
}

// Blob verifies that a bundle signs data.
func (v *Verifier) Blob(bundleJSON []byte, data io.Reader) error {
	_, err := v.verify(bundleJSON, verify.WithArtifact(data))
	return err
}

// Statement verifies that a bundle signs a statement with the digest among its subjects, and returns it.
func (v *Verifier) Statement(bundleJSON []byte, digest v1.Hash) (*intoto.Statement, error) {
	sum, err := hex.DecodeString(digest.Hex)
	if err != nil {
		return nil, err
	}
	result, err := v.verify(bundleJSON, verify.WithArtifactDigest(digest.Algorithm, sum))
	if err != nil {
		return nil, err
	}
	if result.Statement == nil {
		return nil, errors.New("the bundle signs no statement")
	}
	return result.Statement, nil
}

func (v *Verifier) verify(bundleJSON []byte, artifact verify.ArtifactPolicyOption) (*verify.VerificationResult, error) {
	var message protobundle.Bundle
	if err := protojson.Unmarshal(bundleJSON, &message); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	entity, err := bundle.NewBundle(&message)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	return v.entities.Verify(entity, verify.NewPolicy(artifact, verify.WithKey()))
}
