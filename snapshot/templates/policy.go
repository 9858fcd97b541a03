package templates

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
)

// same reports whether two completions are equal for a reader, whatever the status was when they were made.
func same(a, b *snapshot.Completion) bool {
	return b != nil && slices.Equal(a.Problems, b.Problems) &&
		a.Policy.UID == b.Policy.UID && a.Policy.Generation == b.Policy.Generation &&
		maps.Equal(a.Policy.Labels, b.Policy.Labels) && maps.Equal(a.Policy.Annotations, b.Policy.Annotations) &&
		reflect.DeepEqual(a.Policy.Spec, b.Policy.Spec)
}

// part is a part of the spec that may contain template text, and that is resolved as a whole.
type part struct {
	operatorpolicy.Templated
	// written is the part as generic JSON.
	written any
}

// templated lists the parts of a policy with template text to resolve.
func templated(op *policyv1beta2.OperatorPolicy) (parts []part) {
	if !operatorpolicy.TemplatesEnabled(op) {
		return nil
	}
	for _, t := range operatorpolicy.TemplatedParts {
		if written := generic(t.Field(&op.Spec)); contains(written, "{{") {
			parts = append(parts, part{t, written})
		}
	}
	return parts
}

// open reports whether an empty result at a path below the part would allow more than was intended. In spec.versions
// an entry may be empty, but not all of them; config and startingCSV are not conditions.
func (p *part) open(path string) bool {
	path = p.Path + path
	return !strings.HasPrefix(path, "spec.versions") && path != "spec.subscription.startingCSV" &&
		path != "spec.subscription.config" && !strings.HasPrefix(path, "spec.subscription.config.")
}

// put validates a resolved part and writes it into a policy, which is not modified on an error. It fails closed: an empty
// list of versions would allow every one.
func (p *part) put(op *policyv1beta2.OperatorPolicy, resolved any) error {
	resolved, err := p.fit("", p.written, resolved)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(resolved)
	if err != nil {
		return fmt.Errorf("%s resolves to what is not JSON", p.Path)
	}
	changed := op.DeepCopy()
	field := reflect.ValueOf(p.Field(&changed.Spec)).Elem()
	field.SetZero()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, field.Addr().Interface()); err != nil {
		return fmt.Errorf("%s resolves to a value of the wrong type", p.Path) // the cause may quote the value
	}
	if p.Path == "spec.versions" && len(operatorpolicy.SplitVersions(changed.Spec.Versions)) == 0 {
		return fmt.Errorf("%s resolves to no version at all, which would stand for every version", p.Path)
	}
	changed.DeepCopyInto(op)
	return nil
}

// fit compares what was written with its result: only template text may have changed. Templates are resolved
// in the text of a whole part, so a quote in a value that was looked up could otherwise end one field and begin
// another that the policy's author never wrote.
func (p *part) fit(path string, written, resolved any) (any, error) {
	switch written := written.(type) {
	case map[string]any:
		fields, ok := resolved.(map[string]any)
		if !ok || len(fields) > len(written) {
			return nil, p.misfit(path)
		}
		for name, value := range written {
			if strings.Contains(name, "{{") {
				continue // its name was resolved to another one, which len counts
			}
			got, ok := fields[name]
			if !ok {
				return nil, p.misfit(path)
			}
			fitted, err := p.fit(path+"."+name, value, got)
			if err != nil {
				return nil, err
			}
			fields[name] = fitted
		}
		return fields, nil
	case []any:
		items, ok := resolved.([]any)
		if !ok || len(items) != len(written) {
			return nil, p.misfit(path)
		}
		for i, value := range written {
			fitted, err := p.fit(fmt.Sprintf("%s[%d]", path, i), value, items[i])
			if err != nil {
				return nil, err
			}
			items[i] = fitted
		}
		return items, nil
	case string:
		if !strings.Contains(written, "{{") {
			break
		}
		if text, ok := resolved.(string); ok && !strings.HasPrefix(path, ".config") {
			resolved = strings.TrimSpace(text) // for example the newline that values in ConfigMaps often end with
		}
		if contains(resolved, "{{") {
			return nil, fmt.Errorf("%s%s resolves to template text", p.Path, path)
		}
		if p.open(path) && blank(resolved) {
			return nil, fmt.Errorf("%s%s resolves to nothing, which would leave it open", p.Path, path)
		}
		return resolved, nil
	}
	if !reflect.DeepEqual(written, resolved) {
		return nil, p.misfit(path)
	}
	return resolved, nil
}

func (p *part) misfit(path string) error {
	return fmt.Errorf("%s does not resolve: a value changes what stands around it, at %s%s; "+
		"what is looked up must not hold quotes or several lines", p.Path, p.Path, path)
}

func blank(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return strings.TrimSpace(v.String()) == ""
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return value == nil
	}
}

// contains reports whether a string of generic JSON contains a text, which JSON encodes as it is.
func contains(value any, text string) bool {
	raw, err := json.Marshal(value)
	return err == nil && strings.Contains(string(raw), text)
}

// generic returns a value as generic JSON, with every number as a float64: YAML, in which templates are resolved, does
// not distinguish 1 from 1.0. It is nil for invalid JSON, which the API server never stores.
func generic(value any) (read any) {
	raw, err := json.Marshal(value)
	if err != nil || json.Unmarshal(raw, &read) != nil {
		return nil
	}
	return read
}

// namespace determines the namespace of a policy that names none. While the package is not known retry is
// true: the cache retries a fetch only as long as there are reads.
func (r *Resolver) namespace(op *policyv1beta2.OperatorPolicy) (namespace string, retry bool, problem string) {
	sub := &op.Spec.Subscription
	if len(validation.IsDNS1123Label(sub.Name)) > 0 {
		return "", false, "spec.subscription.namespace is not set and spec.subscription.name does not name a package that could suggest one"
	}
	var found *catalog.Package
	if r.o.Package != nil {
		found = r.o.Package(sub.Name, olm.Catalog{Namespace: sub.SourceNamespace, Name: sub.Source})
	}
	if found == nil {
		return "", true, fmt.Sprintf(
			"spec.subscription.namespace is not set and package %s is not found in a catalog yet", sub.Name)
	}
	if c := found.Channel(sub.Channel); c != nil && c.SuggestedNamespace != "" {
		return c.SuggestedNamespace, false, ""
	}
	if r.o.DefaultNamespace != "" {
		return r.o.DefaultNamespace, false, ""
	}
	return "", false, "spec.subscription.namespace is required: neither does the package suggest one, nor is a default namespace configured"
}

// settledNamespace returns the namespace that the status records for this generation of the policy, so
// that neither a restart nor an unavailable catalog moves an operator. It is empty if the status has none.
func settledNamespace(op *policyv1beta2.OperatorPolicy) string {
	if op.Status.ObservedGeneration != op.Generation {
		return ""
	}
	namespace := ""
	for i := range op.Status.RelatedObjects {
		object := &op.Status.RelatedObjects[i].Object
		if object.Kind != olm.KindSubscription || !strings.HasPrefix(object.APIVersion, olm.Group+"/") {
			continue
		}
		if namespace != "" && namespace != object.Metadata.Namespace {
			return ""
		}
		namespace = object.Metadata.Namespace
	}
	return namespace
}
