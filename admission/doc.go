// Package admission answers the API server's admission reviews. A handler decodes a review once, straight
// into the fields that rules read, takes the namespace from an immutable snapshot, calls rules and writes
// the answer: it takes no lock, lists nothing, compiles nothing and makes no call. The one exception is
// break-glass: a refused approval that asks for an override costs a SubjectAccessReview.
//
// Errors are always answers: what cannot be read is refused in an AdmissionReview of its own.
package admission
