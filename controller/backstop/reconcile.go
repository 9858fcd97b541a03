package backstop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/watched"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// maxNamed bounds the policies that a message names.
const maxNamed = 10

// retryDelay is the requeue delay while the user name of this process is not known.
const retryDelay = time.Second

// compileInterval is how long what was compiled stays, unless an exception in it ends: API servers look for new
// policies once a second, and each of them compiles what it finds.
const compileInterval = time.Second

// reconciler reconciles for one manager. There is one worker.
type reconciler struct {
	*Controller
	discovery discovery.DiscoveryInterface
	writer    apply.Writer
	// owner is the ClusterRole that owns the objects, watches are the objects by kind.key.
	owner   *owned.Owner
	watches map[string]*watched.Object
	reader  client.Reader
	// current is set once the snapshot had everything that was stored when this replica began to lead.
	current bool
	// seen are the inputs of the last change of the snapshot, by the namespace that they govern, and protecting the
	// Constraints.
	seen       map[string]input
	protecting []*constraint.Definition
	// features are nil until they are detected, and after the API server may have changed. version is the version of
	// Kubernetes in the last change of the snapshot.
	features atomic.Pointer[backstop.Features]
	version  string
	// compiled is the last result.
	compiled compiled
	// written is what was last written, or found to be stored, by kind.key.
	written map[string]*written
}

// input is what the objects depend on in one namespace.
type input struct {
	policies  []*operatorpolicy.Policy
	accounts  []string
	operators []string
	kept      []bundle.Kept
	catalogs  []olm.Catalog
}

// inputOf returns the input of a namespace; accounts count only where policies govern something, and operators only if
// a policy or a Constraint protects some.
func inputOf(ns *state.Namespace, protecting []*constraint.Definition) (in input) {
	in.kept = bundle.KeptIn(ns)
	if len(protecting) > 0 || ns.Protects() {
		in.operators, in.catalogs = ns.Operators(), ns.ProtectedCatalogs()
	}
	if len(ns.Policies()) > 0 {
		in.policies, in.accounts = ns.Policies(), ns.StepAccounts()
	}
	return in
}

func (i input) equal(other input) bool {
	return slices.Equal(i.policies, other.policies) && slices.Equal(i.accounts, other.accounts) &&
		slices.Equal(i.operators, other.operators) && slices.Equal(i.kept, other.kept) &&
		slices.Equal(i.catalogs, other.catalogs)
}

// protecting returns the Constraints that restrict deletions.
func protecting(s *snapshot.Snapshot) []*constraint.Definition {
	return slices.DeleteFunc(slices.Clone(s.Constraints().Definitions()),
		func(d *constraint.Definition) bool { return d.Deletion == nil })
}

// compiled are objects with what they were compiled from.
type compiled struct {
	policies    []*operatorpolicy.Policy
	constraints []*constraint.Definition
	// accounts and operators are by namespace.
	accounts, operators map[string][]string
	catalogs            []olm.Catalog
	// kept are what may not be replaced, by namespace.
	kept     map[string][]bundle.Kept
	features backstop.Features
	user     string
	// objects are those to store, by kind.key; nil until something was compiled.
	objects map[string]*unstructured.Unstructured
	// at is when they were compiled.
	at time.Time
	// until is when the first exception ends that they contain; zero if they contain none. behind is set if they are to
	// be compiled again at the end of compileInterval, since their inputs have changed.
	until  time.Time
	behind bool
	// left are the policies of which something is left to the webhooks, unprotected those, and the Constraints, of
	// which deletions are not refused.
	left, unprotected []string
}

// Reconcile makes the stored objects those that the policies compile to.
func (r *reconciler) Reconcile(ctx context.Context, _ item) (reconcile.Result, error) {
	if r.Mode == Off {
		r.Metrics.set(stateOff)
		return reconcile.Result{}, r.deleteAll(ctx)
	}
	state, err := r.reconcile(ctx)
	if err != nil {
		r.Metrics.set(stateFailed)
		if apierrors.IsInvalid(err) || meta.IsNoMatchError(err) {
			r.features.Store(nil) // the API server may be another version than before
		}
		return reconcile.Result{}, err
	}
	if state == "" {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	r.Metrics.set(state)
	if next := r.compiled.next(); !next.IsZero() {
		return reconcile.Result{RequeueAfter: max(next.Sub(r.Now()), time.Millisecond)}, nil
	}
	return reconcile.Result{}, nil
}

// next returns when to compile again; zero if that depends on a change.
func (c *compiled) next() time.Time {
	again := c.at.Add(compileInterval)
	if c.behind && (c.until.IsZero() || again.Before(c.until)) {
		return again
	}
	return c.until
}

// reconcile returns the state that was reached; "" if the input is not complete.
func (r *reconciler) reconcile(ctx context.Context) (state string, err error) {
	user := r.User()
	if user == "" {
		return "", nil
	}
	features, err := r.detect(ctx)
	if err != nil {
		return "", err
	}
	if !features.ValidatingAdmissionPolicy && !features.MutatingAdmissionPolicy {
		return stateUnsupported, nil
	}
	if err := r.openWatches(ctx, features); err != nil {
		return "", err
	}
	owner := r.owner.Reference()
	if owner == nil {
		return stateUnowned, nil // its event enqueues the item
	}
	if err := r.catchUp(ctx); err != nil {
		return "", err
	}
	r.compile(user, features)
	if err := r.store(ctx, owner); err != nil {
		return "", err
	}
	if r.Mode == Audit {
		return stateAudited, nil
	}
	return stateEnforced, nil
}

// openWatches starts the watches of the kinds that are served, and waits until they show what is stored.
func (r *reconciler) openWatches(ctx context.Context, features backstop.Features) error {
	err := r.owner.Open(ctx)
	for _, k := range kinds {
		served := features.ValidatingAdmissionPolicy
		if k == kinds[0] || k == kinds[1] {
			served = features.MutatingAdmissionPolicy
		}
		if served && err == nil {
			err = r.watches[k.key()].Open(ctx)
		}
	}
	return err
}

// compile compiles the policies of the snapshot, if they or what else the objects depend on changed, at once if the
// last time is long enough ago.
func (r *reconciler) compile(user string, features backstop.Features) {
	var policies []*operatorpolicy.Policy
	accounts, operators, kept := map[string][]string{}, map[string][]string{}, map[string][]bundle.Kept{}
	var catalogs []olm.Catalog
	current := r.Store.Load()
	constraints := protecting(current)
	for ns := range current.All() {
		in := inputOf(ns, constraints)
		policies, catalogs = append(policies, in.policies...), append(catalogs, in.catalogs...)
		if len(in.accounts) > 0 {
			accounts[ns.Name()] = in.accounts
		}
		if len(in.operators) > 0 {
			operators[ns.Name()] = in.operators
		}
		if len(in.kept) > 0 {
			kept[ns.Name()] = in.kept
		}
	}
	last, now := &r.compiled, r.Now()
	ended := !last.until.IsZero() && !now.Before(last.until)
	if !ended && last.user == user && last.features == features && slices.Equal(last.policies, policies) &&
		slices.Equal(last.constraints, constraints) && maps.EqualFunc(last.accounts, accounts, slices.Equal) &&
		maps.EqualFunc(last.operators, operators, slices.Equal) && maps.EqualFunc(last.kept, kept, slices.Equal) &&
		slices.Equal(last.catalogs, catalogs) {
		last.behind = false
		return
	}
	if since := now.Sub(last.at); !ended && last.objects != nil && since >= 0 && since < compileInterval {
		last.behind = true
		return
	}
	objects := backstop.Compile(backstop.Input{Policies: policies, Constraints: constraints, Operators: operators,
		Kept: kept, Catalogs: catalogs,
		OLM: r.OLM, Opgate: user, Namespace: r.Namespace, ApprovalMode: r.ApprovalMode,
		ExcludedNamespaces: r.ExcludedNamespaces, Accounts: accounts, Features: features, Now: now,
		Audit: r.Mode == Audit, Labels: owned.Labels})
	next := compiled{policies: policies, constraints: constraints, accounts: accounts, operators: operators, kept: kept,
		catalogs: catalogs,
		features: features, user: user, left: objects.Left, unprotected: objects.Unprotected, at: now,
		objects: map[string]*unstructured.Unstructured{}}
	for _, p := range policies {
		if end := p.Exceptions().End(now); !end.IsZero() && (next.until.IsZero() || end.Before(next.until)) {
			next.until = end
		}
	}
	r.reportIncomplete(&next)
	for _, o := range objects.All() {
		u := owned.Unstructured(o)
		next.objects[u.GetKind()+"/"+u.GetName()] = u
	}
	r.compiled = next
}

// reportIncomplete reports what is left to the webhooks and what is not protected, unless it was before.
func (r *reconciler) reportIncomplete(next *compiled) {
	report := func(table string, left, before []string, logged, note string) {
		r.Writes.Left(table, len(left))
		if len(left) > 0 && !slices.Equal(left, before) {
			names := text.Names(left, maxNamed)
			r.Log.Info(logged, "policies", names)
			r.event(r.owner.Get(), "BackstopIncomplete", events.Compile, fmt.Sprintf(note, names), "")
		}
	}
	report("backstop", next.left, r.compiled.left,
		"policies exceed what the API server evaluates, leaving a part of them to the webhooks",
		"the API server holds a part of these OperatorPolicies only, and the webhooks the rest: %s; shorten their lists "+
			"of versions, or have fewer policies in their namespaces")
	report("deletion", next.unprotected, r.compiled.unprotected,
		"policies and Constraints exceed what an object holds, not all that they protect is protected",
		"what these OperatorPolicies govern, or a part of what these Constraints protect, is not protected from "+
			"deletion: %s; have fewer with spec.deletion")
}
