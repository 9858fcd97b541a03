// Package apply sends the writes of controllers and waits until the snapshot shows them, so that nothing is decided,
// and done, a second time. Every patch applies only to the state that was judged, and its response is limited to
// metadata: objects may be large.
package apply
