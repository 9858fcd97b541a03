// Package olm is OLM's vocabulary: its kinds and resources, labels, annotations and phases, the parts of its objects that are
// read here, the properties of bundles, versions and version ranges. It is pure and judges nothing: package rules does.
//
// Types hold the fields that somebody reads, and nothing more. They are decoded straight from the API server's JSON with
// sigs.k8s.io/json, which reads keys as the API server does (case-sensitive, the last of two duplicates counts);
// encoding/json would match keys in any case, and a key that the gate reads and the API server does not is a bypass
// (threat G19). Decoding is lenient: a part that is too large or of the wrong shape is kept as unreadable, with why, where
// the rest of the object can be judged without it.
package olm
