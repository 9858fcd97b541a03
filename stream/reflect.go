package stream

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// firstPause is the delay after the first failure of a reflector.
const firstPause = 800 * time.Millisecond

// Reflection lists and watches into a store, as an informer does, with bounded delays after failures.
type Reflection struct {
	// Name is that of the resource, for the reflector's own log.
	Name string
	// From lists and watches. Example is an object of the type that it returns.
	From    cache.ListerWatcher
	Example any
	// Into receives what is listed and watched.
	Into cache.ReflectorStore
	// Longest bounds the pause after a failure, which grows to it from a second; with jitter it is twice as long.
	Longest time.Duration
	// Failed is called with each error of listing or watching. It may wait.
	Failed func(error)
}

// Run lists and watches until the context ends.
func (r *Reflection) Run(ctx context.Context) {
	pause := wait.Backoff{Duration: min(firstPause, r.Longest), Factor: 2, Jitter: 1, Steps: 10, Cap: r.Longest}
	reflector := cache.NewReflectorWithOptions(r.From, r.Example, r.Into,
		cache.ReflectorOptions{Name: r.Name, TypeDescription: r.Name, Backoff: &pause})
	// the reflector has a state of its own for failures within a list or a watch
	again := pause
	// only the context ends it
	_ = again.DelayWithReset(clock.RealClock{}, 4*r.Longest).Until(ctx, true, true,
		func(ctx context.Context) (bool, error) {
			if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
				r.Failed(err)
			}
			return false, nil
		})
}
