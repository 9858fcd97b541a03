// Package admission answers the API server's admission reviews. A handler decodes a review once, straight into the
// fields that rules read, takes the namespace from an immutable snapshot, calls rules and writes the answer. It
// compiles nothing for the review of an object of OLM, and lists nothing; the review of a Constraint compiles that
// Constraint.
//
// Two things take longer. A review waits for up to a second for what was admitted for its namespace and the snapshot
// does not show yet. SubjectAccessReviews decide about overrides and consent, about what the author of a Policy, or of
// an OperatorPolicy with templates, may look up and create, and about a user who writes as OLM does. Their number is
// bounded.
//
// Errors are always answers: what cannot be read is refused in an AdmissionReview of its own.
package admission
