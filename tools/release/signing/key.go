// Package signing signs what a release holds, and verifies it, with the libraries of Sigstore: images in cosign's
// layout, and files and statements about them as Sigstore bundles.
package signing

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// Key is a private key, ECDSA on P-256.
type Key struct {
	signer signature.Signer
	public crypto.PublicKey
	pem    []byte // of the public key
	hint   string
}

var _ sign.Keypair = (*Key)(nil)

// NewKey makes a key.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return newKey(private)
}

// LoadKey reads a private key in PEM: one that "cosign generate-key-pair" made, with its password, or PKCS#8.
func LoadKey(pem, password []byte) (*Key, error) {
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(pem, cryptoutils.StaticPasswordFunc(password))
	if err != nil {
		return nil, fmt.Errorf("read the private key: %w", err)
	}
	p256, ok := private.(*ecdsa.PrivateKey)
	if !ok || p256.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the private key is %T: give an ECDSA key on P-256, as \"cosign generate-key-pair\" makes", private)
	}
	return newKey(p256)
}

func newKey(private *ecdsa.PrivateKey) (*Key, error) {
	signer, err := signature.LoadSigner(private, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	der, err := cryptoutils.MarshalPublicKeyToDER(private.Public())
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(der)
	return &Key{
		signer: signer,
		public: private.Public(),
		pem:    cryptoutils.PEMEncode(cryptoutils.PublicKeyPEMType, der),
		hint:   base64.StdEncoding.EncodeToString(digest[:]),
	}, nil
}

// PublicPEM is the public key, as cosign reads it.
func (k *Key) PublicPEM() []byte { return bytes.Clone(k.pem) }

// GetHashAlgorithm implements sign.Keypair.
func (k *Key) GetHashAlgorithm() protocommon.HashAlgorithm {
	return protocommon.HashAlgorithm_SHA2_256
}

// GetSigningAlgorithm implements sign.Keypair.
func (k *Key) GetSigningAlgorithm() protocommon.PublicKeyDetails {
	return protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256
}

// GetHint implements sign.Keypair. It is the hash of the public key, by which bundles name it.
func (k *Key) GetHint() []byte { return []byte(k.hint) }

// GetKeyAlgorithm implements sign.Keypair.
func (k *Key) GetKeyAlgorithm() string { return "ECDSA" }

// GetPublicKey implements sign.Keypair.
func (k *Key) GetPublicKey() crypto.PublicKey { return k.public }

// GetPublicKeyPem implements sign.Keypair.
func (k *Key) GetPublicKeyPem() (string, error) { return string(k.pem), nil }

// SignData implements sign.Keypair. It returns the signature and the digest that was signed.
func (k *Key) SignData(_ context.Context, data []byte) (sig, digest []byte, err error) {
	if sig, err = k.signer.SignMessage(bytes.NewReader(data)); err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(data)
	return sig, sum[:], nil
}
