package certs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/watched"
)

const (
	// fieldManager owns what this package writes.
	fieldManager = "opgate-certs"
	// maxNamed bounds the fields that a message names, maxValue the length of a value in it.
	maxNamed, maxValue = 5, 80
)

// ownedFields are the fields of an entry that are written, and set back. Manifests have but those that are required, so
// that no client that applies them owns another. Of clientConfig, caBundle and the path are written. The
// namespaceSelector is the release's: controllers of platforms, as that of AKS, write it again and again.
var ownedFields = []string{"rules", "failurePolicy", "timeoutSeconds", "objectSelector", "matchConditions", "matchPolicy",
	"reinvocationPolicy", "sideEffects", "admissionReviewVersions"}

// registration is an object through which the API server calls us. It belongs to the release: neither it nor its
// entries are created here.
type registration struct {
	*watched.Object
	kind schema.GroupVersionKind
	name string
	// label identifies it in metrics.
	label string
	// verb is the first segment of the paths of a webhook configuration; empty for a definition, whose path is constant.
	verb string
	// entries are those of a webhook configuration as they have to be, by their names.
	entries map[string]map[string]any
	// What follows is of the leader: the names of the entries that it has seen complete, and whether it has logged that
	// they wait for a ready replica.
	completed map[string]bool
	waiting   bool
}

// newRegistration returns an object to watch. Changed is called after each change.
func (k *Controller) newRegistration(
	kind schema.GroupVersionKind, name, verb string, entries []webhooks.Entry,
) *registration {
	r := &registration{kind: kind, name: name, label: strings.ToLower(kind.Kind), verb: verb,
		entries: map[string]map[string]any{}, completed: map[string]bool{}}
	for i := range entries {
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&entries[i])
		utilruntime.Must(err) // its fields have values of JSON
		r.entries[entries[i].Name] = entry
	}
	resource := kind.GroupVersion().WithResource(r.label + "s")
	r.Object = watched.New(k.options.Client, resource, "", name, k.registrationChanged, k.options.Log)
	return r
}

// entriesOf returns the entries of a webhook configuration, which are parts of it.
func entriesOf(u *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "webhooks")
	items, _ := list.([]any)
	var entries []map[string]any
	for _, item := range items {
		if entry, ok := item.(map[string]any); ok {
			entries = append(entries, entry)
		}
	}
	return entries
}

// clients returns the client configurations of an object, which are parts of it: one for each entry of a webhook
// configuration, and one of a definition that converts by a webhook.
func clients(u *unstructured.Unstructured) []map[string]any {
	var all []map[string]any
	add := func(of map[string]any, path ...string) {
		field, _, _ := unstructured.NestedFieldNoCopy(of, path...)
		if config, ok := field.(map[string]any); ok {
			all = append(all, config)
		}
	}
	for _, entry := range entriesOf(u) {
		add(entry, "clientConfig")
	}
	if strategy, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "strategy"); strategy == "Webhook" {
		add(u.Object, "spec", "conversion", "webhook", "clientConfig")
	}
	return all
}

// bundles returns the caBundles of the object as last observed; none if it does not exist.
func (r *registration) bundles() (all [][]byte) {
	if live := r.Get(); live != nil {
		for _, config := range clients(live) {
			encoded, _ := config["caBundle"].(string)
			bundle, _ := base64.StdEncoding.DecodeString(encoded) // the API server stores nothing else
			all = append(all, bundle)
		}
	}
	return all
}

// apply writes what Opgate owns of an object, in one patch, if it differs: the caBundles, from a bundle unless that is
// nil; the owner; and the fields of the entries.
//
// The latter wait until this replica has been ready and the API server can call it: an entry without rules matches
// nothing. That a replica has been ready before is in the rules themselves, which stay while none is.
func (k *Controller) apply(ctx context.Context, r *registration, bundle []byte) error {
	live := r.Get()
	if live == nil {
		clear(r.completed)
		k.options.Metrics.registration.WithLabelValues(r.label).Set(0)
		return nil
	}
	wanted := live.DeepCopy()
	changed, restored := r.setFields(wanted)
	k.observe(r, live, len(changed) == 0)
	pending := len(changed) > 0 && !k.answers(r)
	if pending && !r.waiting {
		k.options.Log.Info("webhooks without effect until a replica is ready", "kind", r.kind.Kind, "name", r.name,
			"fields", len(changed))
	}
	if r.waiting = pending; pending {
		wanted, changed, restored = live.DeepCopy(), nil, nil
	}
	setBundles(wanted, bundle)
	owned := r.verb != "" && k.setOwner(wanted)
	written, err := k.write(ctx, r, live, wanted)
	if owned && apierrors.IsForbidden(err) {
		// Some clusters require the right to delete an object for changing its owners. Retrying would not help.
		k.ownerRefused = true
		k.options.Log.Error(err, "owner not changed", "kind", r.kind.Kind, "name", r.name)
		return k.apply(ctx, r, bundle)
	}
	if written {
		k.options.Log.Info("wrote registration", "kind", r.kind.Kind, "name", r.name, "fields", changed)
	}
	if written && len(restored) > 0 {
		k.reportRestored(live, restored)
	}
	return err
}

// setBundles sets the caBundles of an object, unless the bundle is nil. Where the annotation makes cert-manager write
// them, it adds its CA to the existing ones, so that CAs overlap when the source of certificates changes.
func setBundles(u *unstructured.Unstructured, bundle []byte) {
	if bundle == nil || u.GetAnnotations()[metakey.InjectedCA] != "" {
		return
	}
	for _, config := range clients(u) {
		config["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
	}
}

// setFields sets the fields of every entry of an object, and returns what it changed, with the values that were there,
// and of that what another client must have changed, since the entry was complete before. An entry that is not Opgate's
// keeps its own.
func (r *registration) setFields(u *unstructured.Unstructured) (changed, restored []string) {
	for _, entry := range entriesOf(u) {
		name, _ := entry["name"].(string)
		wanted, known := r.entries[name]
		if !known {
			continue
		}
		before := len(changed)
		for _, field := range ownedFields {
			was, value := entry[field], wanted[field]
			if equality.Semantic.DeepEqual(was, value) {
				continue
			}
			if entry[field] = value; value == nil {
				delete(entry, field)
			}
			changed = append(changed, fmt.Sprintf("%s of %s (it was %s)", field, name, asText(was)))
		}
		if r.completed[name] {
			restored = append(restored, changed[before:]...)
		}
		r.completed[name] = r.completed[name] || len(changed) == before
	}
	return changed, restored
}

// asText returns a value for a message.
func asText(value any) string {
	data, _ := json.Marshal(value) // which was read from JSON
	return text.Truncate(string(data), maxValue)
}

// setOwner adds Opgate's namespace to the owners of an object, or removes it, and reports whether it did.
func (k *Controller) setOwner(u *unstructured.Unstructured) bool {
	owners := slices.DeleteFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == k.owner })
	owned := len(owners) < len(u.GetOwnerReferences())
	if k.owner == "" || k.ownerRefused || owned != k.options.Unowned {
		return false
	}
	if !owned {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: k.options.Namespace,
			UID: k.owner})
	}
	u.SetOwnerReferences(owners)
	return true
}

// write writes an object as it is wanted, and reports whether it did. It does not if nothing differs from what was
// observed, or if the object has changed since, or is gone: a replica that was paused must not revert what the current
// leader has written.
//
// It does not use server-side apply: a field manager that has applied a part of an entry still owns it when the release
// removes the entry, and the API server would then reject the release.
func (k *Controller) write(ctx context.Context, r *registration, live, wanted *unstructured.Unstructured) (bool, error) {
	if equality.Semantic.DeepEqual(live.Object, wanted.Object) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	data, err := patch.Data(wanted)
	if err != nil {
		return false, err
	}
	_, err = r.Client.Patch(ctx, r.name, patch.Type(), data, metav1.PatchOptions{FieldManager: fieldManager})
	if apply.Outdated(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s %s: %w", r.kind.Kind, r.name, err)
	}
	return true, nil
}

// reportRestored records an event that another client changed fields.
func (k *Controller) reportRestored(u *unstructured.Unstructured, changed []string) {
	k.options.Events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(),
			UID: u.GetUID()},
		Reason: events.WebhookRestored, Action: events.Restore, Warning: true, Occurrence: u.GetResourceVersion(),
		Note: fmt.Sprintf("another client changed %s; Opgate has set back what the release has (values webhooks of the chart change it)",
			text.Join(changed, maxNamed)),
	})
}

// observe updates the metrics of an object.
func (k *Controller) observe(r *registration, live *unstructured.Unstructured, complete bool) {
	m := k.options.Metrics
	if r.verb == "" && len(clients(live)) == 0 { // a definition need not convert by a webhook
		m.registration.DeleteLabelValues(r.label)
		return
	}
	m.registration.WithLabelValues(r.label).Set(number(complete && k.trusted(r)))
	if r.verb != "" {
		m.selector.WithLabelValues(r.label).Set(number(slices.ContainsFunc(entriesOf(live), selectsByLabel)))
	}
}

// selectsByLabel reports whether the namespaceSelector of an entry goes by other labels than the name: who may set these
// exempts namespaces. Manifests have no such selectors. A controller adds them, as AKS does.
func selectsByLabel(entry map[string]any) bool {
	fields, _ := entry["namespaceSelector"].(map[string]any)
	selector := &metav1.LabelSelector{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector)
	return err != nil || len(selector.MatchLabels) > 0 || slices.ContainsFunc(selector.MatchExpressions,
		func(x metav1.LabelSelectorRequirement) bool { return x.Key != metakey.NamespaceName })
}

// answers reports whether this replica has been ready and the API server can call what an object states: every path has
// a token that is accepted, every caBundle trusts the serving certificate.
func (k *Controller) answers(r *registration) bool {
	select {
	case <-k.options.Ready:
		return k.routed(r) && k.trusted(r)
	default:
		return false
	}
}

// trusted reports whether an object exists and each of its caBundles trusts the serving certificate.
func (k *Controller) trusted(r *registration) bool {
	bundles, now := r.bundles(), k.options.Now()
	return len(bundles) > 0 && !slices.ContainsFunc(bundles,
		func(bundle []byte) bool { return !trusts(bundle, k.source, now) })
}

// Metrics report when certificates expire and whether the API server trusts them.
type Metrics struct {
	registry     prometheus.Registerer
	registration *prometheus.GaugeVec
	selector     *prometheus.GaugeVec
}

// NewMetrics registers the metrics of certificates.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{registry: registry, registration: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "opgate_webhook_registration",
		Help: "Whether an object through which the API server calls Opgate exists, has its rules and trusts its certificate (1) or not (0).",
	}, []string{"object"}), selector: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "opgate_webhook_selector_changed",
		Help: "Whether a namespaceSelector of a webhook configuration goes by other labels than the name of the namespace (1), which exempts namespaces, or not (0).",
	}, []string{"object"})}
	registry.MustRegister(m.registration, m.selector)
	return m
}

// Serving reports when the serving certificate of a source expires.
func (m *Metrics) Serving(source Source) {
	m.expiration("serving", func() time.Time { return expiry(source) })
}

// expiration reports when a certificate expires, evaluated at each scrape.
func (m *Metrics) expiration(certificate string, end func() time.Time) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "opgate_certificate_expiration_timestamp_seconds",
		Help:        "Seconds since 1970 at which the certificate expires; 0 while there is none.",
		ConstLabels: prometheus.Labels{"certificate": certificate},
	}, func() float64 {
		if t := end(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	}))
}

// number is the value of a metric that is 1 or 0.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
