package backstop

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/events"
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
	// Store provides the snapshot that admission judges by.
	Store *snapshot.Store
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
	// Metrics export the state, Writes count the writes.
	Metrics *Metrics
	Writes  *apply.Metrics
	// Events records that objects were restored, and for which policies they have no room. Default: nothing is recorded.
	Events *events.Recorder
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	queue manager.Queue[item]
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
	kinds = []kind{
		{"MutatingAdmissionPolicy", "mutatingadmissionpolicies", backstop.Name},
		{"MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", backstop.Name},
		{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", backstop.DeletionName},
		{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", backstop.DeletionName},
		{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", backstop.Name},
		{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", backstop.Name},
		{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", backstop.UnpackedName},
		{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", backstop.UnpackedName},
		{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", backstop.EvidenceName},
		{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", backstop.EvidenceName},
	}
)

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	config := mgr.GetConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make a discovery client: %w", err)
	}
	r := &reconciler{Controller: c, discovery: served, watches: map[string]*watched.Object{},
		written: map[string]*written{},
		reader:  mgr.GetAPIReader(),
		left:    apply.Left{Metrics: c.Writes, Events: c.Events, Log: c.Log},
		writer:  apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}}
	changed := func() { c.queue.Add(item{}) }
	if r.owner, err = owned.NewOwner(client, OwnerName, "the admission policies", changed, c.Log); err != nil {
		return err
	}
	if err := mgr.Add(r.owner); err != nil {
		return fmt.Errorf("add the watch of ClusterRole %s: %w", OwnerName, err)
	}
	for _, k := range kinds {
		w, err := watched.New(client, group.WithResource(k.resource), "", k.object, changed, c.Log)
		if err != nil {
			return err
		}
		if err := mgr.Add(w); err != nil {
			return fmt.Errorf("add the watch of %s: %w", k.key(), err)
		}
		r.watches[k.key()] = w
	}
	return manager.Registration[item]{
		Name:       "backstop",
		Reconciler: r,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed:    r.changed,
	}.AddTo(mgr)
}

// changed enqueues the item if an input changed, and the first time.
func (r *reconciler) changed(change *snapshot.Change) {
	notify := r.seen == nil
	if notify {
		r.seen = map[string]input{}
		r.Metrics.set(statePending)
	}
	if r.Mode == Off && !notify {
		return // there is nothing left to delete
	}
	// After an upgrade of the API server what it supports is detected again.
	if facts := change.Snapshot.Facts(); change.Constraints && facts.Version != r.version {
		r.version, notify = facts.Version, true
		r.features.Store(nil)
	}
	if constraints := protecting(change.Snapshot); change.Constraints && !slices.Equal(constraints, r.protecting) {
		r.protecting, notify = constraints, true
	}
	for _, name := range change.Namespaces {
		if now := inputOf(change.Snapshot.Namespace(name), r.protecting); !reflect.DeepEqual(r.seen[name], now) {
			r.seen[name], notify = now, true
		}
	}
	if notify {
		r.queue.Add(item{})
	}
}
