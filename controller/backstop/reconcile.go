package backstop

import (
	"context"
	"reflect"
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
	"github.com/opgate/opgate/internal/watched"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

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
	// compiled is the last result, left what it has no room for.
	compiled compiled
	left     apply.Left
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

// protecting returns the Constraints that restrict deletions.
func protecting(s *snapshot.Snapshot) []*constraint.Definition {
	return slices.DeleteFunc(slices.Clone(s.Constraints().Definitions()),
		func(d *constraint.Definition) bool { return d.Deletion == nil })
}

// compiled are objects with what they were compiled from, but for the time.
type compiled struct {
	from backstop.Input
	// objects are those to store, by kind.key; nil until something was compiled.
	objects map[string]*unstructured.Unstructured
	// at is when they were compiled.
	at time.Time
	// until is when the first exception ends that they contain; zero if they contain none. behind is set if they are to
	// be compiled again at the end of compileInterval, since their inputs have changed.
	until  time.Time
	behind bool
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
	current := r.Store.Load()
	from := backstop.Input{Constraints: protecting(current), Operators: map[string][]string{}, Kept: map[string][]bundle.Kept{},
		Accounts: map[string][]string{}, OLM: r.OLM, Opgate: user, Namespace: r.Namespace, ApprovalMode: r.ApprovalMode,
		ExcludedNamespaces: r.ExcludedNamespaces, Features: features, Audit: r.Mode == Audit, Labels: owned.Labels}
	for ns := range current.All() {
		in := inputOf(ns, from.Constraints)
		from.Policies, from.Catalogs = append(from.Policies, in.policies...), append(from.Catalogs, in.catalogs...)
		if len(in.accounts) > 0 {
			from.Accounts[ns.Name()] = in.accounts
		}
		if len(in.operators) > 0 {
			from.Operators[ns.Name()] = in.operators
		}
		if len(in.kept) > 0 {
			from.Kept[ns.Name()] = in.kept
		}
	}
	last, now := &r.compiled, r.Now()
	ended := !last.until.IsZero() && !now.Before(last.until)
	if !ended && last.objects != nil && reflect.DeepEqual(last.from, from) {
		last.behind = false
		return
	}
	if since := now.Sub(last.at); !ended && last.objects != nil && since >= 0 && since < compileInterval {
		last.behind = true
		return
	}
	r.compiled = compiled{from: from, at: now, objects: map[string]*unstructured.Unstructured{}}
	from.Now = now
	objects := backstop.Compile(from)
	for _, p := range from.Policies {
		if end := p.Exceptions().End(now); !end.IsZero() && (r.compiled.until.IsZero() || end.Before(r.compiled.until)) {
			r.compiled.until = end
		}
	}
	r.left.Set("backstop", "", objects.Left)
	r.left.Set("deletion", "", objects.Unprotected)
	for _, o := range objects.All {
		u := owned.Unstructured(o)
		r.compiled.objects[u.GetKind()+"/"+u.GetName()] = u
	}
}
