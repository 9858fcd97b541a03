package certs

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var configMapsResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// published is ConfigMap opgate-ca, which has the bundle of the Secret of the same name and no key: clients other than
// the API server, such as Prometheus, verify Opgate's certificates by it, without a right to a Secret.
type published struct{ *object }

// configMap returns the ConfigMap with a bundle: a modified copy of the current one, or a new one. Other data is kept.
// Changed reports whether it differs from the current one.
func (p published) configMap(namespace, bundle string) (c *corev1.ConfigMap, changed bool, err error) {
	c = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName,
		Labels: map[string]string{"app.kubernetes.io/name": "opgate"}}}
	if current := p.Get(); current != nil {
		c = &corev1.ConfigMap{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(current.Object, c); err != nil {
			return nil, false, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, secretName, err)
		}
	}
	// The same key in both would make every write invalid.
	delete(c.BinaryData, keyBundle)
	if c.Data[keyBundle] == bundle {
		return c, false, nil
	}
	if c.Data == nil {
		c.Data = map[string]string{}
	}
	c.Data[keyBundle] = bundle
	return c, true, nil
}
