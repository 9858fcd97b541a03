package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/clusterversion"
	"github.com/opgate/opgate/snapshot/packages"
)

// Options select what is read. The zero value reads all that the gate judges by, in all namespaces.
type Options struct {
	// Namespace restricts what OLM stores to one namespace, for commands that judge only there. Policies, Constraints
	// and catalogs are read whole. Default: all namespaces.
	Namespace string
	// Kinds are all that is read, for commands that judge nothing. Default: the kinds that the gate judges by, and what
	// the policies found there refer to.
	Kinds []*snapshot.Kind
	// Seen is called with the JSON of each object, from a goroutine for each kind. The JSON is valid until it returns.
	// Default: not called.
	Seen func(kind *snapshot.Kind, raw []byte)
	// Subscriptions is a label selector of Subscriptions. Default: all.
	Subscriptions string
}

// undated is when snapshots were built here: no age of theirs is read.
var undated time.Time

// State is what was read.
type State struct {
	// Snapshot is what the gate would hold.
	Snapshot *snapshot.Snapshot
	// Scope is the namespace that was asked for; "" for all.
	Scope string
	// Notes are what could not be read of which the rules know that it is not known, so that they hold what depends on
	// it: the gate may answer otherwise. They name rights and roles, and may have text that tenants wrote.
	Notes []string

	builder snapshot.Builder
	listed  listing
	// files has the objects if they are those of files; else nil.
	files *manifests.Unit
}

// With returns what the snapshot would be with other states of objects, which is for questions such as what an edit
// would change. An edit of a policy that is completed on the cluster has no effect.
func (s *State) With(objects ...*snapshot.Object) *State {
	with := *s // a copy: the next one is made of this state again
	with.Snapshot = with.builder.Put(undated, objects...)
	return &with
}

// Config returns the client configuration of the cluster. It must not be modified.
func (s *State) Config() *rest.Config { return s.listed.config }

// Builder returns a copy of what built the snapshot, which is for questions such as what an upgrade would change.
func (s *State) Builder() snapshot.Builder { return s.builder }

// Namespace returns a namespace for judging, as the gate judges a write in it.
func (s *State) Namespace(name string) *state.Namespace { return s.Snapshot.Namespace(name) }

// Package returns a package of a catalog; nil if it cannot be read. It sends a request each time that it is called.
func (s *State) Package(ctx context.Context, pkg string, source olm.Catalog) *catalog.Package {
	found, err := packages.Fetch(ctx, s.listed.objects, pkg, source)
	if err != nil {
		return nil
	}
	return found
}

// Get returns the JSON of one object; nil if there is none, or the kind is not served.
func (s *State) Get(ctx context.Context, kind *snapshot.Kind, key types.NamespacedName) ([]byte, error) {
	if s.files != nil {
		return s.get(kind, key), nil
	}
	raw, err := s.listed.streams.Get(ctx, kind.GroupVersionResource(), key)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("it needs the right to get %s.%s", kind.Resource, kind.Group)
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", kind.Resource, explained(err, s.listed.config.Host))
	}
	return raw, nil
}

// decisive are the kinds without which a verdict could be another one; optional are those of which the rules know that
// they are not known.
var (
	decisive = []*snapshot.Kind{snapshot.OperatorPolicies, snapshot.Constraints, snapshot.Subscriptions,
		snapshot.InstallPlans,
		snapshot.ClusterServiceVersions, snapshot.OperatorGroups, snapshot.OperatorConditions}
	optional = []*snapshot.Kind{snapshot.Namespaces, snapshot.CatalogSources, snapshot.Policies, snapshot.PolicySets}
)

// Read reads the cluster: each kind once, all at the same time, then what the policies found there refer to. Errors are
// *Forbidden with all rights that are missing, *NotServed, or say that the API server cannot be reached.
func (r *Reader) Read(ctx context.Context, o Options) (*State, error) {
	if o.Kinds != nil {
		in := &input{listing: listing{Reader: r, options: o}}
		if err := in.readKinds(ctx, o.Kinds, nil); err != nil {
			return nil, err
		}
		var b snapshot.Builder
		return &State{Snapshot: b.Put(undated, in.stored...), builder: b}, nil
	}
	versions, err := clusterversion.Read(ctx, r.config)
	if err != nil && versions.Version == "" {
		return nil, explained(err, r.config.Host)
	}
	in := &input{listing: listing{Reader: r, options: o, versions: versions}}
	if err != nil {
		in.note("the version of OpenShift", err, "get", RoleReader)
	}
	if err := in.readKinds(ctx, decisive, optional); err != nil {
		return nil, err
	}
	return in.finish(ctx)
}

// finish reads what the listed objects refer to.
func (in *input) finish(ctx context.Context) (*State, error) {
	listed := in.listing
	listed.stored, listed.notes = slices.Clone(in.stored), slices.Clone(in.notes)
	in.questions = questions{completions: map[types.NamespacedName]*snapshot.Completion{},
		packages: map[packageQuestion]*catalog.Package{}, changes: map[string]*state.PlanChanges{}}
	state := in.build()
	if kinds := imagesOfCatalogs(state.Snapshot); len(kinds) > 0 {
		if err := in.readKinds(ctx, nil, kinds); err != nil {
			return nil, err
		}
		state = in.build()
	}
	for in.answer(ctx) {
		state = in.build()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.Sort(in.notes)
	state.Notes, state.listed = slices.Compact(in.notes), listed
	return state, nil
}

// imagesOfCatalogs returns the kinds with the images that catalogs run, and with what these changed, as far as
// something judges by them.
func imagesOfCatalogs(s *snapshot.Snapshot) []*snapshot.Kind {
	for ns := range s.All() {
		if ns.JudgesByCatalogImage() {
			return []*snapshot.Kind{snapshot.Pods, snapshot.Services, snapshot.Records}
		}
	}
	if s.Constraints().Reads(constraint.CatalogImage) {
		return []*snapshot.Kind{snapshot.Pods, snapshot.Services}
	}
	return nil
}

// listing is what was listed, before anything that it refers to was read.
type listing struct {
	*Reader
	options  Options
	versions facts.Cluster
	stored   []*snapshot.Object
	notes    []string
}

// input is what has been read so far.
type input struct {
	listing
	mu sync.Mutex
	questions
}

// readKinds lists kinds, all at the same time: those that are needed, and those that may be missing.
func (in *input) readKinds(ctx context.Context, needed, optional []*snapshot.Kind) error {
	kinds := slices.Concat(needed, optional)
	lists, faults := make([][]*snapshot.Object, len(kinds)), make([]error, len(kinds))
	var running sync.WaitGroup
	for i, kind := range kinds {
		running.Go(func() { lists[i], faults[i] = in.objectsOf(ctx, kind, in.options) })
	}
	running.Wait()
	var missing Forbidden
	var others []error
	for i, err := range faults {
		forbidden, isForbidden := errors.AsType[*Forbidden](err)
		_, isNotServed := errors.AsType[*NotServed](err)
		switch {
		case err == nil:
			in.stored = append(in.stored, lists[i]...)
		case isNotServed && (kinds[i].Optional || !slices.Contains(needed, kinds[i])):
		case isForbidden && slices.Contains(needed, kinds[i]):
			missing.Rights = append(missing.Rights, forbidden.Rights...)
		case isForbidden:
			in.note(kinds[i].Resource, err, "list", RoleReader)
		default:
			others = append(others, err)
		}
	}
	switch {
	case len(others) > 0:
		return others[0]
	case len(missing.Rights) > 0:
		return &missing
	}
	return nil
}

// note records what could not be read.
func (in *input) note(what string, err error, verb, role string) {
	if forbidden := asForbidden(err, verb, role); forbidden != nil {
		err = forbidden
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.notes = append(in.notes, fmt.Sprintf("%s not read, and what depends on it is shown as held: %v", what, err))
}

// build returns the state of what is known so far, and records what else is asked for.
func (in *input) build() *State {
	b := snapshot.Builder{Unjudged: []string{releaseNamespace}, Needed: in.needed, Packages: in.packageOf,
		Changes: in.changesOf}
	b.SetCluster(undated, in.versions)
	b.Put(undated, in.stored...)
	return &State{Snapshot: b.Complete(undated, in.completions), builder: b}
}

// Again returns the state of the same listing with other objects: instead replaces those of the same kind, namespace and
// name, and gone are left out. What these refer to is read, as by Read; nothing is listed a second time.
func (s *State) Again(ctx context.Context, instead, gone []*snapshot.Object) (*State, error) {
	type identity struct {
		*snapshot.Kind
		types.NamespacedName
	}
	without := map[identity]bool{}
	for _, o := range slices.Concat(instead, gone) {
		without[identity{o.Kind(), o.Key()}] = true
	}
	in := &input{listing: s.listed}
	in.stored, in.notes = slices.Clone(instead), slices.Clone(s.listed.notes)
	for _, o := range s.listed.stored {
		if !without[identity{o.Kind(), o.Key()}] {
			in.stored = append(in.stored, o)
		}
	}
	return in.finish(ctx)
}
