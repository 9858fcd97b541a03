package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/text"
)

const (
	// maxNamed bounds the fields that a message names, maxValue the length of a value in it.
	maxNamed, maxValue = 5, 80
)

// rulesAnnotation holds the rules of a webhook configuration, in YAML, by the name of the entry. Manifests leave rules
// out of the entries: without rules an entry matches nothing, so that the webhooks take effect only when a replica has
// written them. Since no manifest sets the field, applying one again does not take it away.
const rulesAnnotation = "opgate.io/webhook-rules"

// ShippedRules returns the rules in the annotation of a webhook configuration, by the name of the entry; none if it has
// no such annotation. The API server bounds the size of annotations.
func ShippedRules(configuration metav1.Object) (map[string][]admissionregistrationv1.RuleWithOperations, error) {
	annotation, ok := configuration.GetAnnotations()[rulesAnnotation]
	if !ok {
		return nil, nil
	}
	shipped := map[string][]admissionregistrationv1.RuleWithOperations{}
	if err := yaml.UnmarshalStrict([]byte(annotation), &shipped); err != nil {
		return nil, fmt.Errorf("annotation %s of webhook configuration %s: want lists of rules by name of the webhook: %w", rulesAnnotation, configuration.GetName(), err)
	}
	for _, rules := range shipped {
		for i := range rules {
			if rules[i].Scope == nil { // the default of the API server
				rules[i].Scope = new(admissionregistrationv1.AllScopes)
			}
		}
	}
	return shipped, nil
}

// fieldsAnnotation holds the other fields of the entries that are Opgate's, as the release has them, in YAML: webhooks,
// by name of the entry, and olm, which replaces $(olm) in their matchConditions. Unlike the rules, manifests have these
// fields in the entries as well.
const fieldsAnnotation = "opgate.io/webhook-fields"

// webhook is an entry of either kind.
type webhook = admissionregistrationv1.MutatingWebhook

// owned are the fields of an entry that are set back, by their names in JSON. Of the others clientConfig is written by
// reconcilePaths and reconcileBundles, and the name identifies the entry. The namespaceSelector is left as it is, and
// reported: controllers of platforms, as that of AKS, write it again and again.
var owned = []struct {
	name  string
	value func(*webhook) any
}{
	{"rules", func(w *webhook) any { return w.Rules }},
	{"failurePolicy", func(w *webhook) any { return w.FailurePolicy }},
	{"timeoutSeconds", func(w *webhook) any { return w.TimeoutSeconds }},
	{"objectSelector", func(w *webhook) any { return w.ObjectSelector }},
	{"matchConditions", func(w *webhook) any { return w.MatchConditions }},
	{"matchPolicy", func(w *webhook) any { return w.MatchPolicy }},
	{"reinvocationPolicy", func(w *webhook) any { return w.ReinvocationPolicy }},
	{"sideEffects", func(w *webhook) any { return w.SideEffects }},
	{"admissionReviewVersions", func(w *webhook) any { return w.AdmissionReviewVersions }},
}

// shippedFields returns the fields in the annotation of a webhook configuration, by the name of the entry.
func shippedFields(configuration metav1.Object) (map[string]*webhook, error) {
	var shipped struct {
		OLM      string              `json:"olm"`
		Webhooks map[string]*webhook `json:"webhooks"`
	}
	if err := yaml.Unmarshal([]byte(configuration.GetAnnotations()[fieldsAnnotation]), &shipped); err != nil {
		return nil, fmt.Errorf("annotation %s of webhook configuration %s: want fields by name of the webhook: %w",
			fieldsAnnotation, configuration.GetName(), err)
	}
	for _, entry := range shipped.Webhooks {
		for i := range entry.MatchConditions {
			entry.MatchConditions[i].Expression = strings.ReplaceAll(entry.MatchConditions[i].Expression, "$(olm)",
				shipped.OLM)
		}
		for _, selector := range []**metav1.LabelSelector{&entry.NamespaceSelector, &entry.ObjectSelector} {
			if *selector == nil { // the default of the API server
				*selector = &metav1.LabelSelector{}
			}
		}
	}
	return shipped.Webhooks, nil
}

// change is a field of an entry that differs from that of the release.
type change struct {
	operation
	// field is its name in JSON, text names it and the entry, with the value that it had.
	field, text string
}

// changedFields returns the changes that set the fields of every entry of an object, which may be nil, to those in its
// annotations; none if they are the same. An entry that an annotation does not name keeps its own.
func changedFields(current *unstructured.Unstructured) ([]change, error) {
	if current == nil {
		return nil, nil
	}
	rules, err := ShippedRules(current)
	if err != nil {
		return nil, err
	}
	fields, err := shippedFields(current)
	if err != nil {
		return nil, err
	}
	var changes []change
	entries, _, _ := unstructured.NestedSlice(current.Object, "webhooks")
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		has := &webhook{} // without what cannot be read
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(entry, has)
		wanted, all := fields[has.Name]
		if !all {
			wanted = &webhook{}
		}
		wanted.Rules = rules[has.Name]
		for _, f := range owned {
			value, was := f.value(wanted), f.value(has)
			if f.name == "rules" && len(wanted.Rules) == 0 || f.name != "rules" && !all ||
				reflect.DeepEqual(was, value) {
				continue
			}
			changes = append(changes, change{operation{"add", fmt.Sprintf("/webhooks/%d/%s", i, f.name), value}, f.name,
				fmt.Sprintf("%s of %s (it was %s)", f.name, has.Name, asText(was))})
		}
	}
	return changes, nil
}

// asText returns a value for a message.
func asText(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "unreadable"
	}
	return text.Truncate(string(data), maxValue)
}

// reconcileFields writes the fields of the webhooks once this replica has been ready and the API server can call it.
// That a replica has been ready before is in the rules themselves: they stay while none is.
func (l *leadership) reconcileFields(ctx context.Context) error {
	var failed []error
	for _, r := range l.registrations {
		current := r.Get() // the operations are for this version of it
		changes, err := changedFields(current)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if len(changes) == 0 {
			if current != nil {
				l.complete[r.label] = shippedText(current)
			}
			continue
		}
		if !l.answers(r) {
			if !l.waiting[r.label] {
				l.waiting[r.label] = true
				l.options.Log.Info("webhooks without effect until a replica is ready", "kind", r.kind.Kind,
					"name", r.name, "fields", len(changes))
			}
			continue
		}
		if err := l.limiter.Wait(ctx); err != nil {
			return err
		}
		operations, texts := []operation{}, []string{}
		// Manifests leave out rules only: another field was as in the annotation once, whichever replica saw it.
		restored := l.complete[r.label] == shippedText(current)
		for _, c := range changes {
			restored = restored || c.field != "rules"
			operations, texts = append(operations, c.operation), append(texts, c.text)
		}
		switch written, err := r.patch(ctx, current, "write the fields of", operations); {
		case err != nil:
			failed = append(failed, err)
		case written:
			delete(l.waiting, r.label)
			l.options.Log.Info("wrote fields of webhooks", "kind", r.kind.Kind, "name", r.name, "fields", texts)
			if restored {
				l.reportRestored(current, texts)
			}
		}
	}
	return errors.Join(failed...)
}

// shippedText returns what the release has, as text.
func shippedText(current *unstructured.Unstructured) string {
	annotations := current.GetAnnotations()
	return annotations[rulesAnnotation] + annotations[fieldsAnnotation]
}

// reportRestored records an event that another client changed fields.
func (l *leadership) reportRestored(u *unstructured.Unstructured, changed []string) {
	l.options.Events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(),
			UID: u.GetUID()},
		Reason: events.WebhookRestored, Action: events.Restore, Warning: true, Occurrence: u.GetResourceVersion(),
		Note: fmt.Sprintf("another client changed %s; Opgate has set back what the release has (values webhooks of the chart change it)",
			text.Join(changed, maxNamed)),
	})
}

// answers reports whether this replica has been ready and the API server can call what an object states: every path has
// a token that is accepted, every caBundle trusts the serving certificate.
func (l *leadership) answers(r *registration) bool {
	if l.options.Ready != nil {
		select {
		case <-l.options.Ready:
		default:
			return false
		}
	}
	return l.routed(r) && l.trusted(r)
}

// trusted reports whether an object exists and each of its caBundles trusts the serving certificate.
func (l *leadership) trusted(r *registration) bool {
	callers, now := r.callers(), l.options.Now()
	for _, c := range callers {
		if !trusts(c.bundle, l.source, now) {
			return false
		}
	}
	return len(callers) > 0
}
