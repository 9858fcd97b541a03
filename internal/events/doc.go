// Package events sends Kubernetes events on the objects that Opgate decides about. Recording never blocks and never
// calls out, so that the request path may do it; sending is asynchronous and best effort. An event is sent once for
// each reason, not for each time that the same reason is given, and nothing is sent at rest.
//
// It sends through the sink of k8s.io/client-go/tools/events, without the broadcaster of that package, for reasons in
// docs/decisions/2026-11-22-events.md.
package events
