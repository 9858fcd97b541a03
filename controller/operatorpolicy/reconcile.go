package operatorpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// Reconcile approves what may be approved in a namespace and evaluates its policies. A failure of one policy does not
// stop the evaluation of the others.
func (r *Controller) Reconcile(ctx context.Context, namespace string) (reconcile.Result, error) {
	current := r.Store.Load()
	ns := current.Namespace(namespace)
	// One that holds in every namespace is reported once, with those that govern nothing.
	own := slices.DeleteFunc(slices.Clone(ns.Policies()), func(p *operatorpolicy.Policy) bool {
		return p.Concerns() != namespace
	})
	r.state.replace(namespace, own, r.Now())
	if !rules.MayHaveCandidates(ns) {
		r.Metrics.judge(namespace, current.Built(), r.Now).end()
		return reconcile.Result{RequeueAfter: r.state.forget(namespace, r.Now(), createdBy(current))}, nil
	}
	// Approve first, in every namespace that waits: the status is left to the pass after, which the change of an
	// approved plan enqueues behind the others.
	ungoverned := rules.UngovernedIn(current.NamespaceAnnotations(namespace), r.Ungoverned)
	approvals, err := r.approve(ctx, current, ns, ungoverned,
		r.Metrics.judge(namespace, current.Built(), r.Now))
	again := earlier(r.reportHolds(namespace, approvals.held), approvals.after)
	if len(approvals.done) > 0 {
		return reconcile.Result{RequeueAfter: again}, errors.Join(err, r.Writer.Approved(ctx, approvals.done))
	}
	if approvals.stale {
		return reconcile.Result{RequeueAfter: again}, err
	}
	if len(own) == 0 {
		after, failed := r.resync(ctx, namespace, ns, observe(current, namespace))
		return reconcile.Result{RequeueAfter: earlier(after, again)}, errors.Join(err, failed)
	}
	after, failed := r.evaluateAll(ctx, current, ns, own, approvals.byPlan)
	return reconcile.Result{RequeueAfter: earlier(after, again)}, errors.Join(err, failed)
}

// evaluateAll evaluates policies of a namespace.
func (r *Controller) evaluateAll(ctx context.Context, current *snapshot.Snapshot, ns *state.Namespace,
	policies []*operatorpolicy.Policy, approvals map[string]compliance.Approval) (after time.Duration, err error) {
	namespace := ns.Name()
	if after := r.behind(ns); after > 0 {
		return after, nil
	}
	w := observe(current, namespace)
	var errs []error
	for _, p := range policies {
		acted, again, err := r.evaluate(ctx, p, w, approvals)
		errs = append(errs, err)
		if acted { // the observed state is outdated
			w = observe(r.Store.Load(), namespace)
		}
		after = earlier(after, again)
	}
	again, err := r.resync(ctx, namespace, ns, w)
	return earlier(after, again), errors.Join(append(errs, err)...)
}

// earlier returns the shorter of two delays, of which 0 stands for never.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// evaluate evaluates one policy, carries out its actions, and writes the status if it changed. After is the
// delay until the next evaluation without an event, 0 for never.
func (r *Controller) evaluate(
	ctx context.Context, p *operatorpolicy.Policy, shared *compliance.Input,
	approvals map[string]compliance.Approval,
) (acted bool, after time.Duration, err error) {
	if p.Object == nil || p.AnyPackage || p.AnyNamespace {
		r.reportUnreadable(p)
	}
	if p.Object == nil {
		return false, 0, nil // it does not decode: writing a status could lose fields
	}
	if p.Incomplete {
		return false, 0, nil // it is being resolved: a status about its template text would be outdated at once
	}
	op, current := p.Object, r.Store.Load()
	in := new(*shared)
	in.Policy, in.Rules, in.Problems, in.Approvals = op, p, p.Problems, approvals
	in.Cluster = op.Labels[metakey.ClusterName]
	in.Grants, in.Key, in.Escaped, in.Now = r.Grants, r.Key(), r.Escaped(p.Namespace, p.Name), r.Now()
	in.Unverified = rules.UnverifiedAuthor(r.Key(), p.Object)
	in.Package = func(c olm.Catalog) *catalog.Package { return r.Packages.Get(p.Package, c) }
	if overlap := rules.Overlapping(in.Namespace, p.Package); p.Enforced && len(overlap) > 1 {
		for _, other := range overlap {
			in.Overlaps = append(in.Overlaps, other.Name+"."+other.Namespace)
		}
	}
	in.Before = r.before(p)
	r.setOrigins(p, in)
	in.OLMv1 = r.Grants.Missing(grant.ClusterExtensions) == "" && current.Serves(snapshot.ClusterExtensions)
	if p.Concerns() != "" {
		in.Migrated = migrated(current, p.Package, p.TargetNamespace)
		in.CRDs = crds(current, p.Package, p.TargetNamespace)
	}
	out := compliance.Evaluate(in)
	acted, failed := r.act(ctx, op, &out)
	if outdated(failed) && !acted {
		return false, 0, failed // by what was observed there is no status to write, and nothing was done to report
	}
	status, event := compliance.Finish(in, out, r.HistoryLength)
	state := p.Exceptions().At(in.Now)
	regarding := p.Ref().Reference()
	regarding.UID = op.UID
	r.Events.Exceptions(*regarding, state.Ending, state.Ended)
	if event != nil {
		r.report(ctx, op, *event)
	}
	return acted, out.After, errors.Join(failed, r.writeStatus(ctx, p, status, acted))
}

// reportUnreadable reports on a policy that it holds what it may govern, since that, or more of it, cannot be read.
func (r *Controller) reportUnreadable(p *operatorpolicy.Policy) {
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	stored := r.Store.Load().Object(snapshot.OperatorPolicies, snapshot.InNamespace(p.Concerns()), key)
	if stored == nil {
		return
	}
	regarding := p.Ref().Reference()
	regarding.UID = stored.UID
	r.Events.Record(events.Event{Regarding: *regarding, Reason: events.Unreadable, Action: events.Update, Warning: true,
		Note: fmt.Sprintf("%s cannot be read, so that %s is held (%s): %s", p.Source(), p.Target(),
			bundle.RulePolicyUnreadable,
			p.Unreadable())})
}

// report sends a compliance event, best effort: the status has the message too, so a failure is only
// logged.
func (r *Controller) report(ctx context.Context, op *policyv1beta2.OperatorPolicy, e compliance.Event) {
	event := compliance.ComplianceEvent(op, e, r.Identity)
	if event == nil {
		return
	}
	if err := r.Writer.Put(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).Error(err, "compliance event not sent", "policy", client.ObjectKeyFromObject(op).String())
	}
}

// writeStatus writes a status that differs. One that reports actions that were carried out is written even if the
// policy has changed since, since no other does. Any other is left to the next evaluation then: a policy that gets
// another namespace is evaluated in both for a moment, and the status of the one must not replace that of the other.
func (r *Controller) writeStatus(
	ctx context.Context, p *operatorpolicy.Policy, status policyv1beta2.OperatorPolicyStatus, acted bool,
) error {
	observed := &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}
	if !acted {
		observed.ResourceVersion = p.Object.ResourceVersion
	}
	written, err := r.Writer.Status(ctx, snapshot.OperatorPolicies, snapshot.InNamespace(p.Concerns()), observed,
		p.Object.Status, status)
	if written {
		log.FromContext(ctx).Info("status written", "policy", client.ObjectKeyFromObject(p.Object).String(),
			"compliant", status.Compliant)
	}
	return err
}

// act carries out the actions of an outcome until one fails, and updates its conditions accordingly. It waits until the
// snapshot shows each write, so that nothing is done twice.
func (r *Controller) act(
	ctx context.Context, op *policyv1beta2.OperatorPolicy, out *compliance.Outcome,
) (acted bool, err error) {
	for _, a := range out.Actions {
		live, object := unstructuredOf(a.Live), unstructuredOf(a.Object).DeepCopy()
		var subresource []string
		if a.Status {
			subresource = []string{"status"}
		}
		err := r.Writer.Do(ctx, live, object, subresource...)
		verb, about := apply.Verb(live, object), cmp.Or(object, live)
		logger := log.FromContext(ctx).WithValues("policy", client.ObjectKeyFromObject(op), "verb", verb,
			"kind", about.GetKind(), "namespace", about.GetNamespace(), "name", about.GetName())
		if err != nil {
			if reason := apierrors.ReasonForError(err); a.Failed != nil && !outdated(err) && reason != "" {
				out.Replace(a.Failed(err.Error()))
			}
			return acted, fmt.Errorf("%s %s %s/%s for OperatorPolicy %s/%s: %w", verb, about.GetKind(),
				about.GetNamespace(), about.GetName(), op.Namespace, op.Name, err)
		}
		logger.Info("written")
		acted = true
		out.Replace(a.Done.For(about.GetName(), string(about.GetUID())))
		if err := r.Writer.Done(ctx, live, object); err != nil {
			return acted, err
		}
	}
	return acted, nil
}

// unstructuredOf returns an object with this content, nil for none.
func unstructuredOf(content map[string]any) *unstructured.Unstructured {
	if content == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: content}
}

// outdated reports whether an action failed because another client has written the object since it was observed. What
// is reported of it stays as it was observed, until the next evaluation.
func outdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// observe returns the input that all policies of a namespace share, from a snapshot, without requests to the API server.
func observe(s *snapshot.Snapshot, namespace string) *compliance.Input {
	in := &compliance.Input{Namespace: s.Namespace(namespace), Deployments: map[string]compliance.Deployment{},
		CatalogSource: func(c olm.Catalog) *olm.CatalogSource { return catalogSource(s, c) }}
	if namespace == "" {
		return in
	}
	for _, o := range s.Objects(snapshot.Deployments, snapshot.InNamespace(namespace)) {
		d := o.Deployment()
		in.Deployments[o.Name] = compliance.Deployment{ObjectMeta: o.Metadata(), Available: d.Available,
			Stalled: d.Stalled}
	}
	for o := range s.AllObjects(snapshot.CatalogSources) {
		in.Catalogs = append(in.Catalogs, olm.Catalog{Namespace: o.Namespace, Name: o.Name})
	}
	slices.SortFunc(in.Catalogs, func(a, b olm.Catalog) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return in
}

// crds returns the CustomResourceDefinitions that OLM labelled as an operator's, sorted by name.
func crds(s *snapshot.Snapshot, pkg, namespace string) []compliance.CRD {
	var found []compliance.CRD
	for o := range s.AllObjects(snapshot.CustomResourceDefinitions) {
		if d := o.Definition(); belongs(d, pkg, namespace) {
			crd := compliance.CRD{ObjectMeta: d.Metadata, Operators: d.Operators}
			crd.ResourceVersion = o.ResourceVersion
			found = append(found, crd)
		}
	}
	slices.SortFunc(found, func(a, b compliance.CRD) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// migrated returns what shows that OLM v1 manages an operator, sorted by kind and name.
func migrated(s *snapshot.Snapshot, pkg, namespace string) []*olm.Migrated {
	var found []*olm.Migrated
	for _, kind := range extensionKinds {
		for o := range s.AllObjects(kind) {
			if m := o.Migrated(); m != nil && m.Of(pkg, namespace) {
				found = append(found, m)
			}
		}
	}
	slices.SortFunc(found, func(a, b *olm.Migrated) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// belongs reports whether OLM has labelled a CustomResourceDefinition as an operator's.
func belongs(d *snapshot.Definition, pkg, namespace string) bool {
	return d != nil && len(d.Operators) > 0 && slices.Contains(d.Operators, compliance.OperatorLabel(pkg, namespace))
}

// catalogSource returns a CatalogSource, or nil.
func catalogSource(s *snapshot.Snapshot, c olm.Catalog) *olm.CatalogSource {
	if o := s.Find(snapshot.CatalogSources, types.NamespacedName{Namespace: c.Namespace, Name: c.Name}); o != nil {
		return o.CatalogSource()
	}
	return nil
}
