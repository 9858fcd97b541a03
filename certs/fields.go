package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	// maxNamed bounds the fields that a message names, maxValue the length of a value in it.
	maxNamed, maxValue = 5, 80
)

// owned are the fields of an entry that are set, and set back, by their names in JSON. Manifests have but those that are
// required, so that no client that applies them owns another. clientConfig is written by reconcilePaths and
// reconcileBundles. The namespaceSelector is the release's, and a change is reported: controllers of platforms, as that of
// AKS, write it again and again.
var owned = []struct {
	name     string
	value    func(*webhooks.Entry) any
	required bool
}{
	{name: "rules", value: func(w *webhooks.Entry) any { return w.Rules }},
	{name: "failurePolicy", value: func(w *webhooks.Entry) any { return w.FailurePolicy }},
	{name: "timeoutSeconds", value: func(w *webhooks.Entry) any { return w.TimeoutSeconds }},
	{name: "objectSelector", value: func(w *webhooks.Entry) any { return w.ObjectSelector }},
	{name: "matchConditions", value: func(w *webhooks.Entry) any { return w.MatchConditions }},
	{name: "matchPolicy", value: func(w *webhooks.Entry) any { return w.MatchPolicy }},
	{name: "reinvocationPolicy", value: func(w *webhooks.Entry) any { return w.ReinvocationPolicy }},
	{name: "sideEffects", value: func(w *webhooks.Entry) any { return w.SideEffects }, required: true},
	{name: "admissionReviewVersions", value: func(w *webhooks.Entry) any { return w.AdmissionReviewVersions }, required: true},
}

// change is a field of an entry that differs from that of the release.
type change struct {
	verdict.PatchOperation
	// text names the field and the entry, with the value that it had.
	text string
	// foreign is whether a client other than Opgate has written that value.
	foreign bool
}

// changedFields returns the changes that set the fields of every entry of an object, which may be nil, to the wanted
// ones; none if they are the same. An entry that is not Opgate's keeps its own.
func changedFields(current *unstructured.Unstructured, wanted []webhooks.Entry) []change {
	if current == nil {
		return nil
	}
	var changes []change
	entries, _, _ := unstructured.NestedSlice(current.Object, "webhooks")
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		has := &webhooks.Entry{} // without what cannot be read
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(entry, has)
		known := slices.IndexFunc(wanted, func(w webhooks.Entry) bool { return w.Name == has.Name })
		if known < 0 {
			continue
		}
		for _, f := range owned {
			if value, was := f.value(&wanted[known]), f.value(has); !equality.Semantic.DeepEqual(was, value) {
				changes = append(changes, change{verdict.PatchOperation{Op: "add",
					Path: fmt.Sprintf("/webhooks/%d/%s", i, f.name), Value: value},
					fmt.Sprintf("%s of %s (it was %s)", f.name, has.Name, asText(was)),
					foreign(current, has.Name, f.name)})
			}
		}
	}
	return changes
}

// foreign reports whether a client other than Opgate has changed a field of an entry: it owns one, or Opgate, which has
// completed the entry before, no longer owns this one. A release that Opgate has not completed yet has neither.
func foreign(u *unstructured.Unstructured, entry, field string) bool {
	own := map[string]bool{}
	completed := false
	for _, m := range u.GetManagedFields() {
		var fields struct {
			Webhooks map[string]map[string]any `json:"f:webhooks"`
		}
		if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.Raw, &fields) != nil {
			continue
		}
		for _, f := range owned {
			switch manages := fields.Webhooks[fmt.Sprintf(`k:{"name":%q}`, entry)]["f:"+f.name] != nil; {
			case manages && m.Manager == bundleManager:
				own[f.name] = true
				completed = completed || f.name != "rules" // which was all that an earlier version wrote
			case manages && !f.required:
				return true
			}
		}
	}
	return completed && !own[field]
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
func (k *Controller) reconcileFields(ctx context.Context) error {
	var failed []error
	for _, r := range k.registrations {
		current := r.Get() // the operations are for this version of it
		changes := changedFields(current, r.entries)
		if len(changes) == 0 {
			continue
		}
		if !k.answers(r) {
			if !k.waiting[r.label] {
				k.waiting[r.label] = true
				k.options.Log.Info("webhooks without effect until a replica is ready", "kind", r.kind.Kind,
					"name", r.name, "fields", len(changes))
			}
			continue
		}
		if err := k.limiter.Wait(ctx); err != nil {
			return err
		}
		var operations []verdict.PatchOperation
		var texts, restored []string
		for _, c := range changes {
			operations, texts = append(operations, c.PatchOperation), append(texts, c.text)
			if c.foreign {
				restored = append(restored, c.text)
			}
		}
		switch written, err := r.patch(ctx, current, bundleManager, "write the fields of", operations); {
		case err != nil:
			failed = append(failed, err)
		case written:
			delete(k.waiting, r.label)
			k.options.Log.Info("wrote fields of webhooks", "kind", r.kind.Kind, "name", r.name, "fields", texts)
			if len(restored) > 0 {
				k.reportRestored(current, restored)
			}
		}
	}
	return errors.Join(failed...)
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

// answers reports whether this replica has been ready and the API server can call what an object states: every path has
// a token that is accepted, every caBundle trusts the serving certificate.
func (k *Controller) answers(r *registration) bool {
	if k.options.Ready != nil {
		select {
		case <-k.options.Ready:
		default:
			return false
		}
	}
	return k.routed(r) && k.trusted(r)
}

// trusted reports whether an object exists and each of its caBundles trusts the serving certificate.
func (k *Controller) trusted(r *registration) bool {
	callers, now := r.callers(), k.options.Now()
	for _, c := range callers {
		if !trusts(c.bundle, k.source, now) {
			return false
		}
	}
	return len(callers) > 0
}
