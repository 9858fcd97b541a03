// Package supply has what the caches share that read in the background what a snapshot is judged by: they answer from
// memory, and queue what is not known.
package supply

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NewQueue returns a queue whose failures are retried with exponential backoff.
func NewQueue[K comparable](first, last time.Duration) workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, last))
}

// Run handles the keys of a queue, with a number of workers, until the context ends. Then it shuts the queue down.
func Run[K comparable](ctx context.Context, queue workqueue.TypedInterface[K], workers int, handle func(K)) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for key, ended := queue.Get(); !ended; key, ended = queue.Get() {
				if ctx.Err() == nil {
					handle(key)
				}
				queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}

// MakeRoom drops an entry, whichever, if there are as many as a limit: what is asked for again is read again.
func MakeRoom[K comparable, E any](entries map[K]E, limit int) {
	for key := range entries {
		if len(entries) < limit {
			return
		}
		delete(entries, key)
	}
}
