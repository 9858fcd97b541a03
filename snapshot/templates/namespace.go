package templates

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
)

// namespace determines the namespace of a policy that names none. While the package is not known retry is
// true: the cache retries a fetch only as long as there are reads.
func (r *Resolver) namespace(op *policyv1beta2.OperatorPolicy) (namespace string, retry bool, problem string) {
	sub := &op.Spec.Subscription
	if len(validation.IsDNS1123Label(sub.Name)) > 0 {
		return "", false, "spec.subscription.namespace is not set and spec.subscription.name does not name a package that could suggest one"
	}
	var found *catalog.Package
	if r.o.Packages != nil {
		found = r.o.Packages.Get(sub.Name, olm.Catalog{Namespace: sub.SourceNamespace, Name: sub.Source})
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
