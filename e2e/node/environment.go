package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// environment returns the values of the variables of the container.
func (p *pod) environment(ctx context.Context, object *corev1.Pod) (map[string]string, error) {
	container := &object.Spec.Containers[0]
	values := map[string]string{}
	for _, variable := range container.Env {
		var (
			value = expand(variable.Value, values)
			err   error
		)
		switch from := variable.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			value, err = p.field(object, from.FieldRef.FieldPath)
		case from.ResourceFieldRef != nil:
			value, err = resourceField(container, from.ResourceFieldRef)
		case from.ConfigMapKeyRef != nil:
			ref, data := from.ConfigMapKeyRef, map[string][]byte(nil)
			data, err = p.configMap(ctx, object.Namespace, ref.Name, []corev1.KeyToPath{{Key: ref.Key, Path: ref.Key}}, ref.Optional)
			value = string(data[ref.Key])
		default:
			err = fmt.Errorf("this node knows only fieldRef, resourceFieldRef and configMapKeyRef")
		}
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
		}
		values[variable.Name] = value
	}
	return values, nil
}

// field returns a field as the downward API does.
func (p *pod) field(object *corev1.Pod, path string) (string, error) {
	p.mu.Lock()
	ip := p.ip
	p.mu.Unlock()
	switch path {
	case "metadata.name":
		return object.Name, nil
	case "metadata.namespace":
		return object.Namespace, nil
	case "metadata.uid":
		return string(object.UID), nil
	case "spec.nodeName":
		return Name, nil
	case "spec.serviceAccountName":
		return object.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return ip, nil
	}
	for _, from := range []struct {
		prefix string
		values map[string]string
	}{{"metadata.labels['", object.Labels}, {"metadata.annotations['", object.Annotations}} {
		if key, ok := strings.CutPrefix(path, from.prefix); ok {
			return from.values[strings.TrimSuffix(key, "']")], nil
		}
	}
	return "", fmt.Errorf("this node does not know the field %s", path)
}

// resourceField returns a limit or a request of the container, in units of the divisor. A limit that is not set is not
// that of this machine either.
func resourceField(container *corev1.Container, from *corev1.ResourceFieldSelector) (string, error) {
	list, name, _ := strings.Cut(from.Resource, ".")
	quantities := map[string]corev1.ResourceList{"limits": container.Resources.Limits,
		"requests": container.Resources.Requests}[list]
	quantity, ok := quantities[corev1.ResourceName(name)]
	if !ok {
		return "", fmt.Errorf("%s is not set, and this node has nothing to take its place", from.Resource)
	}
	divisor := from.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, unit := quantity.Value(), divisor.Value()
	if name == string(corev1.ResourceCPU) {
		value, unit = quantity.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt((value+unit-1)/unit, 10), nil
}

// expand replaces $(NAME) with the value of a variable, if there is one, and $$ with $.
func expand(text string, values map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = after
		if rest, ok := strings.CutPrefix(text, "$"); ok {
			out.WriteByte('$')
			text = rest
			continue
		}
		name, rest, closed := strings.Cut(text, ")")
		value, known := values[strings.TrimPrefix(name, "(")]
		if closed && known && strings.HasPrefix(name, "(") {
			out.WriteString(value)
			text = rest
			continue
		}
		out.WriteByte('$')
	}
}
