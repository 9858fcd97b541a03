// Package supply has what the caches share that read in the background what a snapshot is judged by: they answer from
// memory, and queue what is not known.
package supply

import (
	"context"
	"maps"
	"slices"
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
			for next(ctx, queue, handle) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}

// next handles the next key. It returns false once the queue is shut down.
func next[K comparable](ctx context.Context, queue workqueue.TypedInterface[K], handle func(K)) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() == nil {
		handle(key)
	}
	return true
}

// MakeRoom drops the entry that was asked for least recently, with its retries, if there are as many as a limit.
func MakeRoom[K comparable, E any](
	entries map[K]E, limit int, queue workqueue.TypedRateLimitingInterface[K], asked func(E) time.Time,
) {
	if len(entries) < limit {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(entries)), func(a, b K) int {
		return asked(entries[a]).Compare(asked(entries[b]))
	})
	delete(entries, oldest)
	queue.Forget(oldest)
}
