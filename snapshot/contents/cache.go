package contents

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot/supply"
)

const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Minute
	timeout    = 30 * time.Second
	// maxEntries bounds the memory; beyond it a plan is dropped for each that is asked for.
	maxEntries = 2000
	// maxReads is the number of plans that are read at the same time, each with up to a few MiB of manifests.
	maxReads = 2
)

// Options configure a Cache.
type Options struct {
	// Source reads objects. Required.
	Source Source
	// Watch calls changed with each ConfigMap that OLM manages, and each CustomResourceDefinition, that is written or
	// deleted, until the context ends. It is called when the first plan is asked for. Required.
	Watch func(ctx context.Context, changed func(resource string, key types.NamespacedName))
	// Changed is called with the namespace of each plan whose changes differ from before. It must not block. Required.
	Changed func(namespace string)
	// Panics records panics of reading hostile contents. Required.
	Panics *panics.Recorder
}

// Cache answers from memory and reads in the background. It is safe for concurrent use; nothing is read before Start.
type Cache struct {
	Options
	queue workqueue.TypedRateLimitingInterface[types.UID]
	// asked holds a token once a plan was asked for.
	asked chan struct{}

	mu      sync.Mutex
	entries map[types.UID]*entry
	// unpacked are the contents that each ConfigMap had when it was first read: OLM writes them once.
	unpacked map[types.UID][sha256.Size]byte
}

// entry is the state of one plan.
type entry struct {
	plan         types.NamespacedName
	digest       [sha256.Size]byte
	replacements []state.Replacement
	reading      *Reading
	// before is the last successful reading from before the plan was approved.
	before *Reading
}

// New returns a cache. Start runs it.
func New(o Options) *Cache {
	return &Cache{Options: o, asked: make(chan struct{}, 1), entries: map[types.UID]*entry{},
		unpacked: map[types.UID][sha256.Size]byte{}, queue: supply.NewQueue[types.UID](firstRetry, lastRetry)}
}

// Get returns what a plan changes; nil while that is not known, and then it is being read. It implements rules.Changes.
func (c *Cache) Get(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
	signal.Put(c.asked)
	id, digest := types.UID(plan.Metadata.UID), plan.ContentsDigest()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil {
		if len(c.unpacked) >= maxEntries {
			clear(c.unpacked)
		}
		supply.MakeRoom(c.entries, maxEntries)
		e = &entry{plan: types.NamespacedName{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name}}
		c.entries[id] = e
	}
	if e.digest != digest || !slices.Equal(e.replacements, replacements) {
		e.digest, e.replacements, e.reading, e.before = digest, replacements, nil, nil
		c.queue.Forget(id)
		c.queue.Add(id)
	}
	if e.reading == nil {
		return nil
	}
	return &e.reading.PlanChanges
}

// Start reads until the context ends.
func (c *Cache) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() {
		supply.Run(ctx, c.queue, maxReads, func(id types.UID) { c.process(ctx, id) })
	})
	select {
	case <-c.asked:
		c.Watch(ctx, c.objectChanged)
	case <-ctx.Done():
	}
	running.Wait()
	return nil
}

// process reads a plan.
func (c *Cache) process(ctx context.Context, id types.UID) {
	c.mu.Lock()
	e := c.entries[id]
	if e == nil { // dropped in the meantime
		c.mu.Unlock()
		c.queue.Forget(id)
		return
	}
	plan, replacements := e.plan, e.replacements
	c.mu.Unlock()

	requestContext, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var reading *Reading
	var err error
	if c.Panics.Run("contents", func() { reading, err = Read(requestContext, c.Source, plan, replacements) }) {
		reading, err = nil, fmt.Errorf("opgate failed while it read InstallPlan %s; its log says where", plan)
	}
	if c.update(id, reading, err) {
		c.Changed(plan.Namespace)
	}
}

// update stores a reading and reports whether it differs from the last one. What could not be read is read again, and a
// plan that was deleted, or that OLM is done with, is forgotten.
func (c *Cache) update(id types.UID, reading *Reading, err error) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, errDeleted) || reading != nil && reading.Finished {
		delete(c.entries, id)
		c.queue.Forget(id)
		return false
	}
	e := c.entries[id]
	if e == nil || err == nil && (reading.Plan != e.digest || !slices.Equal(reading.Replacements, e.replacements)) {
		return false // dropped, or asked for in another state, in the meantime: Get has queued it, or will
	}
	if err != nil {
		problem := err.Error()
		if apierrors.IsForbidden(err) {
			problem += ": chart values " + grant.Contents.Value() + " and " + grant.CatalogNamespacesValue + " grant it"
		}
		reading = &Reading{PlanChanges: *unread(e.digest, e.replacements, problem)}
		c.queue.AddRateLimited(id)
	} else {
		c.queue.Forget(id)
		if !reading.Approved {
			e.before = reading
		} else if e.before != nil {
			reading = e.beforeApproval(reading)
		}
		c.replaced(reading)
	}
	changed = e.reading == nil || !reflect.DeepEqual(e.reading.PlanChanges, reading.PlanChanges)
	e.reading = reading
	return changed
}

// beforeApproval returns what was read before a plan was approved, which is what a user has consented to: OLM writes
// definitions before the ClusterServiceVersion, and then they differ from nothing. Only the ConfigMaps are those of
// now.
func (e *entry) beforeApproval(now *Reading) *Reading {
	r := *e.before
	r.Unpacked, r.ByCSV, r.Bundles = now.Unpacked, map[string]*change.Set{}, maps.Clone(e.before.Bundles)
	for name, set := range e.before.ByCSV {
		kept := *set
		if now := now.ByCSV[name]; now != nil {
			kept.Fault = now.Fault // a ConfigMap is missing, or there again
		}
		r.ByCSV[name] = &kept
	}
	return &r
}

// unread returns change sets that say why they are not known.
func unread(plan [sha256.Size]byte, replacements []state.Replacement, problem string) *state.PlanChanges {
	p := &state.PlanChanges{Plan: plan, Replacements: replacements, ByCSV: map[string]*change.Set{},
		Bundles: map[string]*olm.Bundle{}}
	fault := "they are not read yet: " + text.Escape(problem)
	for _, c := range replacements {
		p.ByCSV[c.CSV] = &change.Set{CSV: c.CSV, Package: c.Package, Version: c.Version, From: c.From, Fault: fault}
		p.Bundles[c.CSV] = &olm.Bundle{Fault: fault}
	}
	return p
}

// replaced makes a ConfigMap whose contents differ from those that were read first a fault of everything that was read
// from it: OLM writes them once, so another user has written them since.
func (c *Cache) replaced(r *Reading) {
	for i := range r.Unpacked {
		u := &r.Unpacked[i]
		if u.UID == "" {
			continue
		}
		first, known := c.unpacked[u.UID]
		if !known {
			c.unpacked[u.UID] = u.Contents
			continue
		}
		if first == u.Contents {
			continue
		}
		fault := "ConfigMap " + text.Name(u.String()) +
			", which its bundle is unpacked into, was changed after OLM had written it; " +
			"delete the ConfigMap and the plan, and OLM unpacks the bundle again"
		for _, set := range r.ByCSV {
			set.Fault = fault
		}
		for csv := range r.Bundles {
			r.Bundles[csv] = &olm.Bundle{Fault: fault}
		}
	}
}

// objectChanged reads again the plans that an object was read for.
func (c *Cache) objectChanged(resource string, key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.entries {
		var reads bool
		switch {
		case e.reading == nil:
			reads = true // it may have been read before the change
		case resource == definitions.Resource:
			reads = slices.Contains(e.reading.Definitions, key.Name)
		default:
			reads = slices.ContainsFunc(e.reading.Unpacked, func(u Unpacked) bool { return u.NamespacedName == key })
		}
		if reads {
			c.queue.Forget(id)
			c.queue.Add(id)
		}
	}
}

// Watch returns a function for Options.Watch that watches the metadata of the objects: their contents are read only for
// plans. ConfigMaps are watched in namespaces, each by a watch of its own; nil is all.
func Watch(client metadata.Interface, namespaces []string) func(context.Context, func(string, types.NamespacedName)) {
	return func(ctx context.Context, changed func(string, types.NamespacedName)) {
		var running sync.WaitGroup
		watch := func(resource schema.GroupVersionResource, namespace, selector string) {
			informer := metadatainformer.NewFilteredMetadataInformer(client, resource, namespace, 0, nil,
				func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
			note := func(object any) {
				if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
					changed(resource.Resource, types.NamespacedName(name))
				}
			}
			_ = informer.SetTransform(onlyIdentity) // fails only for a running informer
			// Adding a handler fails only for a stopped informer.
			_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, DeleteFunc: note,
				UpdateFunc: func(_, now any) { note(now) }})
			running.Go(func() { informer.RunWithContext(ctx) })
		}
		watch(definitions, metav1.NamespaceAll, "")
		if namespaces == nil {
			namespaces = []string{metav1.NamespaceAll}
		}
		for _, namespace := range namespaces {
			watch(configMaps, namespace, metakey.OLMManaged+"=true")
		}
		running.Wait()
	}
}

// onlyIdentity drops the metadata that is not read.
func onlyIdentity(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations, m.Labels, m.OwnerReferences, m.Finalizers = nil, nil, nil, nil, nil
	}
	return object, nil
}
