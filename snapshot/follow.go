package snapshot

import (
	"cmp"
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// followVersions watches a kind in the versions that it receives, one after another; "" is for no definition. The
// returned channel is closed once its objects have been read, or it is known that none can exist. While the version
// changes, they stay in force as they were last read.
func (f *Feed) followVersions(
	ctx context.Context, running *sync.WaitGroup, kind *Kind, versions <-chan string,
) <-chan struct{} {
	objects, progress := newMirror(f.note), f.Store.follow(kind, f.MaxStaleness)
	running.Go(func() {
		stop := func() {} // it ends the watch, and waits until it notes nothing any more
		for {
			select {
			case <-ctx.Done():
				stop()
				return
			case version := <-versions:
				stop()
				if version == "" {
					progress.Forget()
					_ = objects.Replace(nil, "") // returns no error
					stop = func() {}
					continue
				}
				resource := kind.GroupVersionResource()
				resource.Version = version
				watching, cancel := context.WithCancel(ctx)
				var one sync.WaitGroup
				one.Go(func() { f.reflect(watching, kind, resource, metav1.NamespaceAll, progress, objects) })
				stop = func() { cancel(); one.Wait() }
			}
		}
	})
	running.Go(func() {
		if wait(ctx, objects.known) {
			f.happened(event{synced: kind})
		}
	})
	return objects.known
}

// defined is the version in which an optional kind of the leader is served, "" for none.
type defined struct {
	versions chan string
	current  string
	known    bool
}

// define passes on the version in which an optional kind of the leader is served, if it is a new one.
func (f *Feed) define(kind *Kind, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.optional[kind]
	if d == nil || d.known && d.current == version {
		return
	}
	d.known, d.current = true, version
	select {
	case <-d.versions: // outdated, and not received yet
	default:
	}
	d.versions <- version
}

// undefined passes on that the optional kinds of which no CustomResourceDefinition was listed are not served.
func (f *Feed) undefined() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.optional {
		if !d.known {
			d.known = true
			d.versions <- ""
		}
	}
}

// noteDefinition follows the optional kind of the leader that a CustomResourceDefinition defines.
func (f *Feed) noteDefinition(old, now *Object) {
	for kind := range f.optional {
		if cmp.Or(now, old).Name == kind.definition() {
			f.define(kind, kind.definedBy(now))
		}
	}
}

// definition returns the name of the CustomResourceDefinition of the kind.
func (k *Kind) definition() string { return k.Resource + "." + k.Group }

// definedBy returns the version of the kind if a CustomResourceDefinition serves it; else "".
func (k *Kind) definedBy(o *Object) string {
	if o == nil {
		return ""
	}
	if d := o.Definition(); d != nil && d.Established && slices.Contains(d.Versions, k.Version) {
		return k.Version
	}
	return ""
}

// Serves reports whether an optional kind of the leader is defined on the cluster, as far as this replica knows.
func (s *Snapshot) Serves(kind *Kind) bool {
	return kind.definedBy(s.Find(CustomResourceDefinitions, types.NamespacedName{Name: kind.definition()})) != ""
}

// followLeader follows the kinds that only the leader needs. Those that are omitted count as listed: nothing waits for
// them.
func (f *Feed) followLeader(ctx context.Context, running *sync.WaitGroup, follow func(*Kind, string) <-chan struct{}) {
	for kind, d := range f.optional {
		f.followVersions(ctx, running, kind, d.versions)
	}
	for _, kind := range kinds {
		switch {
		case kind.Readers != Leader || f.optional[kind] != nil:
		case slices.Contains(f.Omitted, kind):
			f.happened(event{synced: kind})
		default:
			known := follow(kind, metav1.NamespaceAll)
			if kind != CustomResourceDefinitions {
				continue
			}
			running.Go(func() {
				if wait(ctx, known) {
					f.undefined()
				}
			})
		}
	}
}
