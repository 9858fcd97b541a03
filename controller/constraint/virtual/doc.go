// Package virtual decides on virtual operators: the ClusterServiceVersions that pass the properties of Constraints to
// OLM's resolver. It decides which namespaces need them, what they contain, and what to do if something else exists. It
// has no client and writes nothing.
package virtual
