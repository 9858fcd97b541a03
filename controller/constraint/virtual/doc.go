// Package virtual decides on virtual operators: the ClusterServiceVersions by which the properties of Constraints
// reach OLM's resolver. It says in which namespaces they are wanted, what they look like, and what is to be done
// where something else is found. It asks nobody and writes nothing.
package virtual
