// Package escape detects ClusterServiceVersions that OLM wrote while no replica of Opgate answered, and that admission
// would have refused. Their webhook has failurePolicy Ignore, since OLM fails a plan permanently when one of its steps
// fails for a minute.
//
// The start of an outage is known from the Lease of the background loop, which the leader renews every two seconds and
// which only Opgate may write. What was created between the last renewal by another process and shortly after the start
// of this one is judged once, by the rules of admission (rules.JudgeEscape). Refused ones are recorded in an annotation
// of the Lease, so that they are still handled after another restart.
package escape

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

const (
	// skew is the tolerated difference between the clocks of replicas and of the API server. Within it, objects are
	// judged again.
	skew = 5 * time.Second
	// settling is the time after its start in which a replica may not receive reviews yet: endpoints and proxies follow
	// its readiness.
	settling = time.Minute
	// retryDelay is the requeue delay while the input is not complete.
	retryDelay = time.Second
	// maxRecords bounds the records in the Lease; further ones are counted and reported until the next restart.
	maxRecords = 100
)

// Controller detects escapes on the leader. All fields are required unless they have a default.
type Controller struct {
	apply.Shared
	// Lease stores the escapes.
	Lease *manager.Lease
	// Streams reads complete ClusterServiceVersions.
	Streams *stream.Client
	// ExcludedNamespaces are those that the webhook configurations exclude.
	ExcludedNamespaces []string
	// Changed is called with the namespace of an escape that was found, or that is resolved.
	Changed func(namespace string)

	queue manager.Queue[types.NamespacedName]
	// started returns when this process had its first snapshot, which is the time of the first call.
	started func() time.Time
	// outage returns the time since when no replica may have answered reviews; zero if none ever did.
	outage func() time.Time
	// judged are the candidates that were judged. There is one worker.
	judged map[types.UID]bool
	// records are the known escapes, which other controllers read.
	records atomic.Pointer[[]record]
}

// AddTo adds the controller to the manager of the leader. The records are read when this replica has acquired the Lease,
// so that no status is written without them.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	c.started = sync.OnceValue(c.Now)
	c.Store.Subscribe(func(*snapshot.Change) { c.started() })
	c.outage, c.judged = c.Lease.LastRenewal, map[types.UID]bool{}
	c.records.Store(&[]record{})
	c.Lease.OnAcquired(func(annotations map[string]string) {
		var records []record
		if text := annotations[metakey.UnreviewedInstalls]; text != "" {
			if err := json.Unmarshal([]byte(text), &records); err != nil {
				c.Log.Error(err, "records of escapes cannot be read, starting without", "lease", manager.LeaseName,
					"annotation", metakey.UnreviewedInstalls)
				records = nil
			}
		}
		c.records.Store(&records)
	})
	return manager.Registration[types.NamespacedName]{Name: "escape", Reconciler: c, Queue: &c.queue, Store: c.Store,
		Changed: c.changed}.AddTo(mgr)
}

// RegisterMetrics registers the metric of the escapes.
func (c *Controller) RegisterMetrics(registry prometheus.Registerer, leading apply.Leading) {
	registry.MustRegister(leading.Gauge("opgate_escapes",
		"Number of ClusterServiceVersions that were installed while Opgate was not running and are not allowed, by kind of what refuses them (policy, constraint).",
		[]string{"kind"}, func(_ *snapshot.Snapshot, set func(float64, ...string)) {
			for label, kind := range map[string]string{"policy": verdict.KindOperatorPolicy, "constraint": verdict.KindConstraint} {
				set(float64(len(c.refused(func(by verdict.PolicyRef) bool { return by.Kind == kind }))), label)
			}
		}))
}

// changed enqueues the escapes, and the candidates, in namespaces that changed, and all escapes if Constraints changed.
func (c *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		for _, o := range change.Snapshot.Objects(snapshot.ClusterServiceVersions, snapshot.InNamespace(name)) {
			if c.candidate(o) {
				c.queue.Add(o.Key())
			}
		}
	}
	for _, one := range c.all() {
		if _, changed := slices.BinarySearch(change.Namespaces, one.Namespace); changed || change.Constraints {
			c.queue.Add(one.key())
		}
	}
}

// candidate reports whether admission may not have reviewed a ClusterServiceVersion. Creation times have a resolution
// of seconds.
func (c *Controller) candidate(o *snapshot.Object) bool {
	last := c.outage()
	if last.IsZero() || o.Copied() || slices.Contains(c.ExcludedNamespaces, o.Namespace) {
		return false
	}
	return !o.CreationTimestamp.Time.Before(last.Add(-skew)) && !o.CreationTimestamp.After(c.until())
}

// until returns the time from which this replica is sure to receive reviews.
func (c *Controller) until() time.Time { return c.started().Add(settling) }

// Reconcile judges one ClusterServiceVersion.
func (c *Controller) Reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	old, recorded := record{}, false
	for _, one := range c.all() {
		if one.key() == key {
			old, recorded = one, true
		}
	}
	current := c.Store.Load()
	head := current.Find(snapshot.ClusterServiceVersions, key)
	gone := head == nil || head.DeletionTimestamp != nil
	if recorded && (gone || head.UID != old.UID) {
		return reconcile.Result{}, c.store(ctx, record{Namespace: key.Namespace, Name: key.Name})
	}
	if gone || !recorded && (!c.candidate(head) || c.judged[head.UID]) {
		return reconcile.Result{}, nil
	}
	ns := current.Namespace(key.Namespace)
	if !ns.Decidable() {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	csv, err := c.read(ctx, head)
	if err != nil || csv == nil {
		return reconcile.Result{}, err
	}
	escapes, known := rules.JudgeEscape(csv, ns)
	next := record{UID: head.UID, Namespace: key.Namespace, Name: key.Name, Reasons: escapes}
	switch {
	case recorded && !known: // its plan was deleted: what it was refused for stays, unless the policy was edited
		next.Reasons = slices.DeleteFunc(slices.Clone(old.Reasons),
			func(why rules.Escape) bool { return ns.GenerationOf(why.PolicyRef) != why.Generation })
	case !recorded && !known && c.Now().Before(c.until()):
		return reconcile.Result{RequeueAfter: retryDelay}, nil // the snapshot may not have its plan yet
	case !recorded:
		next.Reasons = slices.DeleteFunc(next.Reasons,
			func(why rules.Escape) bool { return !before(current, ns, why.PolicyRef, head) })
	}
	found := !recorded && len(next.Reasons) > 0
	if found || recorded && !reflect.DeepEqual(old, next) {
		if err := c.store(ctx, next); err != nil {
			return reconcile.Result{}, err
		}
	}
	if c.judged[head.UID] = true; !found { // once it is recorded
		return reconcile.Result{}, nil
	}
	c.Log.Info("found an operator that was installed while Opgate was not running and is not allowed",
		"namespace", key.Namespace, "clusterserviceversion", key.Name, "reasons", next.message())
	c.Events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: olm.V1alpha1.String(), Kind: olm.KindClusterServiceVersion,
			Namespace: key.Namespace, Name: key.Name, UID: head.UID},
		Reason: "Escaped", Action: events.Install, Warning: true, Note: next.message(),
	})
	return reconcile.Result{}, nil
}

// store records an escape in place of the one of its ClusterServiceVersion, or that it is none any more if it has no
// reasons.
func (c *Controller) store(ctx context.Context, one record) error {
	all := slices.DeleteFunc(slices.Clone(c.all()), func(other record) bool { return other.key() == one.key() })
	if len(one.Reasons) > 0 {
		all = append(all, one)
	}
	claims := make([]fair.Claim[*record], len(all))
	for i := range all {
		of := fair.Origin{Namespace: all[i].Namespace, Name: all[i].Name}
		claims[i] = fair.Claim[*record]{Origin: of, Row: &all[i], Weight: 1}
	}
	kept, left := fair.Within(claims, maxRecords)
	c.Full("escapes", "", left)
	text, err := json.Marshal(fair.Rows(kept))
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		text = nil // removes it
	}
	err = c.Lease.Annotate(ctx, metakey.UnreviewedInstalls, string(text))
	c.Writer.Metrics.Wrote(apply.Update, "Lease", err)
	if err != nil {
		return err
	}
	c.records.Store(&all)
	c.Changed(one.Namespace)
	return nil
}

// read reads a complete ClusterServiceVersion; nil if it has changed.
func (c *Controller) read(ctx context.Context, head *snapshot.Object) (*olm.CSV, error) {
	raw, err := c.Streams.Get(ctx, snapshot.ClusterServiceVersions.GroupVersionResource(), head.Key())
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	csv, err := olm.Decode[olm.CSV](raw)
	if err == nil && csv.Metadata.UID != string(head.UID) {
		return nil, nil
	}
	return csv, err
}

// before reports whether a policy existed before a ClusterServiceVersion. Creation times have a resolution of seconds:
// one created in the same second as the policy is not reported.
func before(current *snapshot.Snapshot, ns *state.Namespace, by verdict.PolicyRef, csv *snapshot.Object) bool {
	for _, p := range ns.Policies() {
		if p.Object != nil && p.Ref() == by {
			return p.Object.CreationTimestamp.Before(&csv.CreationTimestamp)
		}
	}
	o := current.Find(snapshot.Constraints, types.NamespacedName{Name: by.Name})
	return by.Kind == verdict.KindConstraint && o != nil && o.CreationTimestamp.Before(&csv.CreationTimestamp)
}

// record is one ClusterServiceVersion that admission would have refused.
type record struct {
	UID       types.UID      `json:"uid"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Reasons   []rules.Escape `json:"reasons"`
}

func (r *record) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// message joins the reasons.
func (r *record) message() string {
	var reasons []string
	for _, why := range r.Reasons {
		reasons = append(reasons, why.Message)
	}
	return r.Name + " was installed while Opgate was not running, and is not allowed: " + strings.Join(reasons, "; ")
}

// all returns the known escapes.
func (c *Controller) all() []record { return *c.records.Load() }

// ByConstraint returns the number of ClusterServiceVersions that a Constraint refuses.
func (c *Controller) ByConstraint(name string) int {
	return len(c.refused(func(by verdict.PolicyRef) bool { return by.Kind == verdict.KindConstraint && by.Name == name }))
}

// ByPolicy returns a sentence for each ClusterServiceVersion that an OperatorPolicy refuses, sorted by name.
func (c *Controller) ByPolicy(namespace, name string) []string {
	policy := verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: namespace, Name: name}
	return c.refused(func(by verdict.PolicyRef) bool { return by == policy })
}

// refused returns a sentence for each escape with the reasons of some policies and Constraints, sorted.
func (c *Controller) refused(by func(verdict.PolicyRef) bool) (messages []string) {
	for _, one := range c.all() {
		one.Reasons = slices.DeleteFunc(slices.Clone(one.Reasons), func(why rules.Escape) bool { return !by(why.PolicyRef) })
		if len(one.Reasons) > 0 {
			messages = append(messages, one.message())
		}
	}
	slices.Sort(messages)
	return messages
}
