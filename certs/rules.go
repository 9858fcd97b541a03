package certs

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// rulesAnnotation holds the rules of a webhook configuration, in YAML, by the name of the entry. Manifests leave rules out of the
// entries: without rules an entry matches nothing, so that the webhooks take effect only when a replica has written them. Since no
// manifest sets the field, applying one again does not take it away.
const rulesAnnotation = "opgate.io/webhook-rules"

// ShippedRules returns the rules in the annotation of a webhook configuration, by the name of the entry; none if it has no
// such annotation. The API server bounds the size of annotations.
func ShippedRules(configuration metav1.Object) (map[string][]admissionregistrationv1.RuleWithOperations, error) {
	text, ok := configuration.GetAnnotations()[rulesAnnotation]
	if !ok {
		return nil, nil
	}
	shipped := map[string][]admissionregistrationv1.RuleWithOperations{}
	if err := yaml.UnmarshalStrict([]byte(text), &shipped); err != nil {
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

// entryRules returns the rules that an entry has.
func entryRules(entry map[string]any) ([]admissionregistrationv1.RuleWithOperations, error) {
	var typed struct {
		Rules []admissionregistrationv1.RuleWithOperations `json:"rules"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"rules": entry["rules"]}, &typed)
	return typed.Rules, err
}

// missingRules returns the operations that set the rules in the annotation in every entry of an object, which may be nil; none if they
// all have them. An entry that the annotation does not name keeps its own.
func missingRules(current *unstructured.Unstructured) ([]operation, error) {
	if current == nil {
		return nil, nil
	}
	shipped, err := ShippedRules(current)
	if err != nil {
		return nil, err
	}
	var operations []operation
	entries, _, _ := unstructured.NestedSlice(current.Object, "webhooks")
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		name, _ := entry["name"].(string)
		wanted, ok := shipped[name]
		if !ok || len(wanted) == 0 {
			continue
		}
		if has, err := entryRules(entry); err != nil || !reflect.DeepEqual(has, wanted) {
			operations = append(operations, operation{"add", fmt.Sprintf("/webhooks/%d/rules", i), wanted})
		}
	}
	return operations, nil
}

// reconcileRules writes the rules of the webhooks once this replica has been ready and the API server can call it. That a replica has
// been ready before is in the rules themselves: they stay while none is.
func (l *leadership) reconcileRules(ctx context.Context) error {
	var failed []error
	for _, r := range l.registrations {
		current := r.Get() // the operations are for this version of it
		missing, err := missingRules(current)
		if err != nil {
			failed = append(failed, err)
		}
		if len(missing) == 0 {
			continue
		}
		if !l.answers(r) {
			if !l.waiting[r.label] {
				l.waiting[r.label] = true
				l.options.Log.Info("webhooks without effect until a replica is ready", "kind", r.kind.Kind, "name", r.name, "webhooks", len(missing))
			}
			continue
		}
		if err := l.limiter.Wait(ctx); err != nil {
			return err
		}
		switch written, err := r.patch(ctx, current, "write the rules of", missing); {
		case err != nil:
			failed = append(failed, err)
		case written:
			delete(l.waiting, r.label)
			l.options.Log.Info("wrote rules", "kind", r.kind.Kind, "name", r.name)
		}
	}
	return errors.Join(failed...)
}

// answers reports whether this replica has been ready and the API server can call what an object says: every path has a token that
// is accepted, every caBundle trusts the serving certificate.
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
