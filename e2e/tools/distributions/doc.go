// Package distributions has tests alone: what docs/backstop.md has for a distribution is read by its own types.
// It is a module of its own, since they require most of Kubernetes.
package distributions
