// Package backstop writes what rules/backstop compiles from the OperatorPolicies: admission policies by which the API
// server holds the core of the gate by itself.
//
// The leader writes the objects when what they say differs from what is stored, restores them when another client
// changes or deletes them, and deletes them when there is nothing to hold. A ClusterRole of the release owns them, so
// that the garbage collector deletes them with the release; without that ClusterRole nothing is written.
package backstop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/snapshot"
)

// Mode is what the API server does by itself.
type Mode string

const (
	// Off deletes the objects.
	Off Mode = "off"
	// Compiled leaves the objects to whoever applies the output of `opgate compile`: the controller does not run.
	Compiled Mode = "compiled"
	// Audit makes the API server record and warn of what it would refuse.
	Audit Mode = "audit"
	// Enforce makes it refuse.
	Enforce Mode = "enforce"
)

// OwnerName is the ClusterRole that grants the rights to the objects, and owns them.
const OwnerName = backstop.Name

// Controller keeps the admission policies on the leader. All fields are required unless they have a default.
type Controller struct {
	apply.Shared
	// Mode is what the API server does by itself.
	Mode Mode
	// OLM are the user names that OLM writes as.
	OLM []string
	// User returns the user name that Opgate writes as; "" while it is not known, and then nothing is written.
	User func() string
	// Namespace is Opgate's own, in which its records are kept.
	Namespace string
	// ApprovalMode is what to do about a wrong installPlanApproval.
	ApprovalMode rules.ApprovalMode
	// ExcludedNamespaces are those that the webhook configurations exclude.
	ExcludedNamespaces []string
	// Metrics export the state.
	Metrics *Metrics

	// What follows is of the one worker, but for the queue.
	queue     manager.Queue[item]
	manager   ctrl.Manager
	discovery discovery.DiscoveryInterface
	// owner is the ClusterRole that owns the objects, watches are the objects by kind.key.
	owner   *owned.Owner
	watches map[string]*watched.Object
	reader  client.Reader
	// current is set once the snapshot had everything that was stored when this replica began to lead.
	current bool
	// seen is the snapshot of the last change, nil before the first. edited is set if what is compiled has changed since.
	seen   *snapshot.Snapshot
	edited atomic.Bool
	// features are nil until they are detected, and after the API server may have changed.
	features atomic.Pointer[backstop.Features]
	// compiled is the last result.
	compiled compiled
	// written is what was last written, or found to be stored, by kind.key.
	written map[string]*written
}

// item is the only item of the queue: all objects are compiled from all policies.
type item struct{}

// kind is the kind and the name of one of the objects.
type kind struct{ name, resource, object string }

// key identifies the object.
func (k kind) key() string { return k.name + "/" + k.object }

func (k kind) gvk() schema.GroupVersionKind { return group.WithKind(k.name) }

var (
	group = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	// kinds are the objects, each policy before its binding. The policy that changes Subscriptions precedes the one
	// that would refuse them.
	kinds = slices.Concat(pairs("Mutating", backstop.Name), pairs("Validating", backstop.DeletionName, backstop.Name,
		backstop.UnpackedName, backstop.EvidenceName))
)

// pairs returns policies of a type by their names, each with its binding.
func pairs(policyType string, names ...string) (all []kind) {
	resource := strings.ToLower(policyType) + "admissionpolic"
	for _, name := range names {
		all = append(all, kind{policyType + "AdmissionPolicy", resource + "ies", name},
			kind{policyType + "AdmissionPolicyBinding", resource + "ybindings", name})
	}
	return all
}

// AddTo adds the controller to the manager of the leader.
func (r *Controller) AddTo(mgr ctrl.Manager) error {
	config := mgr.GetConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make a discovery client: %w", err)
	}
	r.manager, r.discovery, r.Client, r.reader = mgr, served, mgr.GetClient(), mgr.GetAPIReader()
	r.watches, r.written = map[string]*watched.Object{}, map[string]*written{}
	changed := func(any) { r.queue.Add(item{}) }
	r.owner = owned.NewOwner(client, OwnerName, "the admission policies", changed, r.Log)
	for _, k := range kinds {
		r.watches[k.key()] = watched.New(client, group.WithResource(k.resource), "", k.object, changed, r.Log)
	}
	return manager.Registration[item]{
		Name:       "backstop",
		Reconciler: r,
		Queue:      &r.queue,
		Store:      r.Store,
		Changed:    r.changed,
	}.AddTo(mgr)
}

// changed enqueues the item if an input changed, and the first time.
func (r *Controller) changed(change *snapshot.Change) {
	before := r.seen
	if r.seen = change.Snapshot; before == nil {
		r.Metrics.set(statePending)
	} else if r.Mode == Off || !r.differs(before, change) {
		return // where the mode is off there is nothing left to delete
	}
	r.edited.Store(true)
	r.queue.Add(item{})
}

// differs reports whether a change is one of an input. After an upgrade of the API server what it supports is detected
// again.
func (r *Controller) differs(before *snapshot.Snapshot, change *snapshot.Change) bool {
	now := change.Snapshot
	upgraded, restricts := now.Facts().Version != before.Facts().Version, protecting(now)
	if upgraded {
		r.features.Store(nil)
	}
	return upgraded || !slices.Equal(restricts, protecting(before)) ||
		slices.ContainsFunc(change.Namespaces, func(name string) bool {
			return !inputOf(now.Namespace(name), restricts).same(inputOf(before.Namespace(name), restricts))
		})
}

// The states. They are labels of a metric, so the set is closed.
const (
	// stateEnforced and stateAudited are those in which the API server has all that the policies compile to.
	stateEnforced = "enforced"
	stateAudited  = "audited"
	stateOff      = "off"
	// statePending means that nothing was compared yet: this replica has just started to lead, or may not watch the
	// objects.
	statePending = "pending"
	// stateUnsupported means that the API server serves no admission policies.
	stateUnsupported = "unsupported"
	// stateUnowned means that the ClusterRole that has to own the objects does not exist.
	stateUnowned = "unowned"
	// stateFailed means that the last write failed, and is repeated.
	stateFailed = "failed"
)

// Metrics export the state of the backstop, while this replica leads.
type Metrics struct {
	state, features *prometheus.GaugeVec
	restored        prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_backstop_active",
			Help: "Whether the API server holds by itself what the policies compile to (1) or not (0), by state."},
			[]string{"state"}),
		features: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_backstop_supported",
			Help: "Whether the API server supports a feature that the backstop uses (1) or not (0)."},
			[]string{"feature"}),
		restored: prometheus.NewCounter(prometheus.CounterOpts{Name: "opgate_backstop_restored_total",
			Help: "Total number of times that an object of the backstop was restored after another client changed or deleted it."}),
	}
	registry.MustRegister(m.state, m.features, m.restored)
	return m
}

func (m *Metrics) set(state string) {
	m.state.Reset()
	value := 0.0
	if state == stateEnforced || state == stateAudited {
		value = 1
	}
	m.state.WithLabelValues(state).Set(value)
}

func (m *Metrics) supported(f backstop.Features) {
	for feature, supported := range map[string]bool{"validatingadmissionpolicy": f.ValidatingAdmissionPolicy,
		"mutatingadmissionpolicy": f.MutatingAdmissionPolicy, "semver": f.Semver} {
		value := 0.0
		if supported {
			value = 1
		}
		m.features.WithLabelValues(feature).Set(value)
	}
}

// pageSize bounds what is read of policies at a time.
const pageSize = 500

// catchUp waits, before the first write of a term, until the snapshot has every policy and every Constraint that the API
// server stores. From then on it is never older than what the last leader wrote.
func (r *Controller) catchUp(ctx context.Context) error {
	if r.current {
		return nil
	}
	for _, kind := range []*snapshot.Kind{snapshot.OperatorPolicies, snapshot.Constraints} {
		stored, newest, err := r.storedOf(ctx, kind)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, signal.Timeout)
		err = r.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return includes(s, kind, stored, newest) })
		cancel()
		if err != nil {
			return fmt.Errorf("wait until the watches show every stored %s: %w", kind.Kind, err)
		}
	}
	r.current = true
	return nil
}

// storedOf returns the resourceVersions of all stored objects of a kind, and that of the list, as the API server has
// them now.
func (r *Controller) storedOf(
	ctx context.Context, of *snapshot.Kind,
) (stored map[types.UID]string, newest string, err error) {
	// Another program may own the definition, with another version.
	mapping, err := r.Writer.Client.RESTMapper().RESTMapping(of.GroupKind())
	stored = map[types.UID]string{}
	page := &metav1.PartialObjectMetadataList{}
	for err == nil {
		page.SetGroupVersionKind(mapping.GroupVersionKind)
		if err = r.reader.List(ctx, page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			break
		}
		for i := range page.Items {
			stored[page.Items[i].UID] = page.Items[i].ResourceVersion
		}
		if page.Continue == "" {
			return stored, page.ResourceVersion, nil
		}
	}
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, "0", nil // no definition, no objects
	}
	return nil, "", fmt.Errorf("list objects of kind %s: %w", of.Kind, err)
}

// includes reports whether a snapshot is not older than a list of all objects of a kind.
func includes(s *snapshot.Snapshot, kind *snapshot.Kind, stored map[types.UID]string, newest string) bool {
	found := 0
	for o := range s.AllObjects(kind) {
		version, listed := stored[o.UID]
		switch {
		case listed && !snapshot.Older(o.ResourceVersion, version):
			found++
		case listed, !snapshot.Older(newest, o.ResourceVersion): // it was changed, or deleted, before the list
			return false
		}
	}
	return found == len(stored)
}

// detect returns what the API server supports. It asks once after the controller started, and after each change of the
// cluster's version.
func (r *Controller) detect(ctx context.Context) (backstop.Features, error) {
	if known := r.features.Load(); known != nil {
		return *known, nil
	}
	var served metav1.APIResourceList
	err := r.discovery.RESTClient().Get().AbsPath("/apis", group.Group, group.Version).Do(ctx).Into(&served)
	if err != nil && !apierrors.IsNotFound(err) {
		return backstop.Features{}, fmt.Errorf("discover the admission policies that the API server serves: %w", err)
	}
	serves := func(k string) bool {
		return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == k })
	}
	f := backstop.Features{
		ValidatingAdmissionPolicy: serves("ValidatingAdmissionPolicy") && serves("ValidatingAdmissionPolicyBinding"),
		MutatingAdmissionPolicy:   serves("MutatingAdmissionPolicy") && serves("MutatingAdmissionPolicyBinding"),
	}
	if f.ValidatingAdmissionPolicy {
		if f.Semver, err = r.detectSemver(ctx); err != nil {
			return backstop.Features{}, err
		}
	}
	r.Metrics.supported(f)
	r.Log.Info("detected what the API server supports of the backstop",
		"validatingAdmissionPolicy", f.ValidatingAdmissionPolicy,
		"mutatingAdmissionPolicy", f.MutatingAdmissionPolicy, "semver", f.Semver)
	if !f.ValidatingAdmissionPolicy {
		r.Log.Info("the API server does not serve ValidatingAdmissionPolicy v1 and refuses nothing by itself: the gate holds only while Opgate answers")
	}
	r.features.Store(&f)
	r.edited.Store(true)
	return f, nil
}

// detectSemver reports whether expressions may call semver(). A version does not tell: an API server accepts new
// expressions only with what the one that it may be rolled back to has as well, and it may emulate another version. So
// it is asked to validate a policy, without storing it, which needs no right but to create one.
func (r *Controller) detectSemver(ctx context.Context) (bool, error) {
	err := r.Writer.Client.Create(ctx, owned.Unstructured(semverProbe()), client.DryRunAll)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return true, nil
	case apierrors.IsInvalid(err):
		return false, nil
	case apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		// For example by a webhook that does not support dry runs. Version ranges are left to the gate then.
		r.Log.Info("whether the API server supports semver() cannot be detected, continuing without it",
			"error", err.Error())
		return false, nil
	}
	return false, fmt.Errorf("detect whether the API server supports semver(): %w", err)
}

// semverProbe is a policy that applies to nothing.
func semverProbe() *admissionv1.ValidatingAdmissionPolicy {
	ignore := admissionv1.Ignore
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: group.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: backstop.Name + "-semver"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &ignore,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{"probe.opgate.io"}, APIVersions: []string{"v1"},
						Resources: []string{"probes"}},
				}}}},
			Validations: []admissionv1.Validation{{
				Expression: "isSemver('1.0.0') && semver('1.0.0').compareTo(semver('2.0.0')) < 0"}},
		},
	}
}
