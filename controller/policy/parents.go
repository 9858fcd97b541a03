package policy

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
)

var (
	policies = policyv1.GroupVersion.WithResource(policyv1.Resource)
	sets     = policyv1beta1.GroupVersion.WithResource(policyv1beta1.PolicySetResource)
)

// byMember indexes PolicySets by the Policies that they name.
const byMember = "member"

// parents has all Policies and PolicySets.
type parents struct {
	policies, sets cache.SharedIndexInformer
	// kinds tell which of them have namespaces.
	kinds *watches.Kinds

	mu sync.Mutex
	// graph is what waits for what, nil until somebody asks.
	graph *dependency.Graph
}

func newParents(client dynamic.Interface, log logr.Logger) (*parents, error) {
	p := &parents{}
	var err error
	if p.policies, err = newInformer(client, policies, nil, readPolicy, log); err != nil {
		return nil, err
	}
	p.sets, err = newInformer(client, sets, cache.Indexers{byMember: members}, readSet, log)
	return p, err
}

func members(obj any) ([]string, error) {
	s, ok := obj.(*storedSet)
	if !ok || s.read == nil {
		return nil, nil
	}
	keys := make([]string, len(s.read.Policies))
	for i, name := range s.read.Policies {
		keys[i] = s.Namespace + "/" + name
	}
	return keys, nil
}

func newInformer(client dynamic.Interface, resource schema.GroupVersionResource, indexers cache.Indexers,
	read func(*unstructured.Unstructured) (any, error), log logr.Logger) (cache.SharedIndexInformer, error) {
	all := client.Resource(resource)
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, o)
		},
	}, client), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{Indexers: indexers})
	err := informer.SetTransform(func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil // transformed before, or a tombstone
		}
		stored, err := read(u)
		if err != nil {
			log.Error(err, "object cannot be read, its status stays as it is")
		}
		return stored, nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource.Resource, err)
	}
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Info("watch interrupted, it is tried again", "resource", resource.Resource, "error", err.Error())
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource.Resource, err)
	}
	return informer, nil
}

// Start follows Policies and PolicySets until the context ends.
func (p *parents) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.policies.RunWithContext(ctx) })
	p.sets.RunWithContext(ctx)
	return nil
}

// policy gives a Policy, nil if there is none. It must not be changed.
func (p *parents) policy(key types.NamespacedName) *storedPolicy {
	obj, ok, _ := p.policies.GetStore().GetByKey(key.String()) // a map has no errors
	if !ok {
		return nil
	}
	return obj.(*storedPolicy)
}

// set gives a PolicySet, nil if there is none. It must not be changed.
func (p *parents) set(key types.NamespacedName) *storedSet {
	obj, ok, _ := p.sets.GetStore().GetByKey(key.String())
	if !ok {
		return nil
	}
	return obj.(*storedSet)
}

// head gives a Policy or a PolicySet, nil if there is none.
func (p *parents) head(of schema.GroupVersionResource, key types.NamespacedName) metav1.Object {
	if of == sets {
		if s := p.set(key); s != nil {
			return s
		}
	} else if stored := p.policy(key); stored != nil {
		return stored
	}
	return nil
}

// scoped is what was read of a Policy, with namespaces only where kinds have them.
func (p *parents) scoped(read *dependency.Policy) *dependency.Policy {
	return read.Scoped(func(group, kind string) bool {
		k, served := p.kinds.Lookup(group, kind)
		return served && !k.Namespaced
	})
}

// setsWith gives the PolicySets that name a Policy.
func (p *parents) setsWith(policy types.NamespacedName) []types.NamespacedName {
	found, _ := p.sets.GetIndexer().ByIndex(byMember, policy.String()) // only another index has an error
	keys := make([]types.NamespacedName, len(found))
	for i, obj := range found {
		keys[i] = obj.(*storedSet).key()
	}
	return keys
}

// policyEdited takes an edit of a Policy, nil if it is gone or cannot be read.
func (p *parents) policyEdited(key types.NamespacedName, now *dependency.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.graph == nil: // it is made when it is needed
	case now == nil:
		p.graph = p.graph.WithoutPolicy(key.Namespace, key.Name)
	default:
		p.graph = p.graph.WithPolicy(p.scoped(now))
	}
}

// setEdited takes an edit of a PolicySet, nil if it is gone or cannot be read.
func (p *parents) setEdited(key types.NamespacedName, now *dependency.Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.graph == nil:
	case now == nil:
		p.graph = p.graph.WithoutSet(key.Namespace, key.Name)
	default:
		p.graph = p.graph.WithSet(now)
	}
}

// order is what waits for what. Edits alone change it: that a status has changed makes no cycle.
func (p *parents) order() *dependency.Graph {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.graph == nil {
		var all []*dependency.Policy
		for _, obj := range p.policies.GetStore().List() {
			if read := obj.(*storedPolicy).read; read != nil {
				all = append(all, p.scoped(read))
			}
		}
		var groups []*dependency.Set
		for _, obj := range p.sets.GetStore().List() {
			if read := obj.(*storedSet).read; read != nil {
				groups = append(groups, read)
			}
		}
		p.graph = dependency.NewGraph(all, groups)
	}
	return p.graph
}
