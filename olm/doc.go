// Package olm defines OLM's API as far as it is used here: kinds and resources, labels, annotations and phases, the
// parts of objects that are read, the properties of bundles, versions and version ranges. It is pure and judges
// nothing: package rules does.
//
// Types have only the fields that are read. They are decoded from the API server's JSON with sigs.k8s.io/json, which
// reads keys as the API server does (case-sensitive, the last of two duplicates counts); encoding/json would match keys
// in any case, and a key that the gate reads and the API server does not is a bypass. Decoding is lenient:
// a part that is too large or has the wrong shape is recorded as unreadable, with the reason, if the rest of the object
// can be judged without it.
package olm
