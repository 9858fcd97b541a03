package node

import (
	"context"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// lag is how long the proxy takes to act on a change of endpoints. On a real cluster that is up to about a second, in
// which a terminating pod still receives connections: a pod that ends at once must lose some here as well.
const lag = 500 * time.Millisecond

// endpoints are the EndpointSlices as they were before lag.
type endpoints struct {
	changes chan change

	mu     sync.Mutex
	slices map[string]*discoveryv1.EndpointSlice // by namespace/name
}

// change is the new state of an EndpointSlice, nil if it was deleted.
type change struct {
	due   *time.Timer
	key   string
	slice *discoveryv1.EndpointSlice
}

// watchEndpoints watches them until ctx ends.
func watchEndpoints(ctx context.Context, informer cache.SharedInformer) (*endpoints, error) {
	e := &endpoints{changes: make(chan change, 1000), slices: map[string]*discoveryv1.EndpointSlice{}}
	tell := func(object any, gone bool) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if err != nil {
			return // it is none that has a name
		}
		c := change{due: time.NewTimer(lag), key: key}
		if !gone {
			c.slice = object.(*discoveryv1.EndpointSlice)
		}
		select {
		case e.changes <- c:
		case <-ctx.Done():
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell(object, false) },
		UpdateFunc: func(_, object any) { tell(object, false) },
		DeleteFunc: func(object any) { tell(object, true) },
	})
	return e, err
}

// run applies changes when they are due.
func (e *endpoints) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-e.changes:
			select {
			case <-ctx.Done():
				return
			case <-c.due.C:
			}
			e.mu.Lock()
			if c.slice != nil {
				e.slices[c.key] = c.slice
			} else {
				delete(e.slices, c.key)
			}
			e.mu.Unlock()
		}
	}
}

// of returns the slices of a Service.
func (e *endpoints) of(namespace, service string) []*discoveryv1.EndpointSlice {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []*discoveryv1.EndpointSlice
	for _, slice := range e.slices {
		if slice.Namespace == namespace && slice.Labels[discoveryv1.LabelServiceName] == service {
			found = append(found, slice)
		}
	}
	return found
}
