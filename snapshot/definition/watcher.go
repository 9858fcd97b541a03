package definition

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// Watcher follows the definition. A nil Watcher stands for Opgate's own definition.
type Watcher struct {
	object   *watched.Object
	changed  chan struct{} // holds one token
	versions chan string   // holds the last one
	state    atomic.Pointer[State]
	log      logr.Logger
}

// NewWatcher returns a watcher. Start runs it.
func NewWatcher(client dynamic.Interface, log logr.Logger) (*Watcher, error) {
	w := &Watcher{changed: make(chan struct{}, 1), versions: make(chan string, 1), log: log}
	name := policyv1beta2.Resource + "." + policyv1beta2.Group
	var err error
	w.object, err = watched.New(client, definitions, "", name, w.notify, log)
	return w, err
}

// Versions returns the versions that policies are to be read in, the present one first, each when it replaces the last;
// "" where there is no definition. It is nil for Opgate's own definition, which has v1beta2 at all times.
func (w *Watcher) Versions() <-chan string {
	if w == nil {
		return nil
	}
	return w.versions
}

// Note describes the definition for readiness; "" for Opgate's own, and while it is not known.
func (w *Watcher) Note() string {
	if w == nil || w.state.Load() == nil {
		return ""
	}
	return w.state.Load().text()
}

// version returns the version that policies are read in.
func (w *Watcher) version() string {
	switch {
	case w == nil:
		return policyv1beta2.Version
	case w.state.Load() == nil:
		return ""
	}
	return w.state.Load().Version
}

func (w *Watcher) notify() { signal.Put(w.changed) }

// Start follows the definition until the context ends.
func (w *Watcher) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { w.object.Informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), w.object.Synced) {
		return nil
	}
	for {
		w.update()
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
		}
	}
}

// update stores the state, and passes on a version that is new.
func (w *Watcher) update() {
	last := w.state.Load()
	state := read(w.object.Get(), w.version())
	if last != nil && reflect.DeepEqual(*last, state) {
		return
	}
	w.state.Store(&state)
	w.log.Info("definition of OperatorPolicy is external", "version", state.Version, "served", state.Served,
		"lacks", state.Missing)
	if last != nil && last.Version == state.Version {
		return
	}
	select { // this is the only sender
	case <-w.versions:
	default:
	}
	w.versions <- state.Version
}
