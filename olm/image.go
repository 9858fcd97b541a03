package olm

import "strings"

// DigestSize is the length of an image digest, "sha256:" and 64 hexadecimal digits.
const DigestSize = len(digestPrefix) + 64

const digestPrefix = "sha256:"

// ImageDigest returns the digest at the end of an image reference, such as quay.io/example/etcd@sha256:…; "" if it has
// none.
func ImageDigest(image string) string {
	_, digest := CutDigest(image)
	if !ValidDigest(digest) {
		return ""
	}
	return digest
}

// CutDigest cuts a name or an image reference before the last "@". The digest is "" without one, and may be no valid
// one.
func CutDigest(s string) (name, digest string) {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+1:]
}

// ValidDigest reports whether a text is the digest of an image: "sha256:" and 64 hexadecimal digits in lower case.
func ValidDigest(s string) bool {
	return len(s) == DigestSize && strings.HasPrefix(s, digestPrefix) &&
		strings.Trim(s[len(digestPrefix):], "0123456789abcdef") == ""
}
