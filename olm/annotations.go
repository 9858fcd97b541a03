package olm

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/metakey"
)

// harmlessAnnotations are the annotations of a ClusterServiceVersion that are no part of what it runs, in order, each with
// where programs write it. OLM copies all of them into the operator's pods (deploymentForSpec of
// operator-lifecycle-manager), so any other one may concern what admits or runs pods. A key that ends with / is all of its
// domain. Velero is not here: it sets labels (package v1 of velero), and runs commands that annotations of
// pods name.
var harmlessAnnotations = slices.Sorted(slices.Values([]string{
	// They describe the operator to people, and to OLM, which has its properties from the catalog.
	"alm-examples", "alm-examples-metadata", "capabilities", "categories", "certified", "containerImage", "createdAt",
	"description", "repository", "support", "tectonic-visibility", "features.operators.openshift.io/",
	"operators.openshift.io/", "operators.operatorframework.io/", "operatorframework.io/",
	// setOperatorGroupAnnotations of operator-lifecycle-manager
	"olm.operatorGroup", metakey.OperatorNamespace, "olm.targetNamespaces",
	"kubectl.kubernetes.io/", metakey.OwnPrefix,
	"argocd.argoproj.io/",                                         // common.go of argo-cd
	"kustomize.toolkit.fluxcd.io/",                                // package v1 of kustomize-controller
	"helm.toolkit.fluxcd.io/",                                     // package v2 of helm-controller
	"reconcile.fluxcd.io/",                                        // package meta of fluxcd/pkg
	"meta.helm.sh/release-name", "meta.helm.sh/release-namespace", // pkg/action/validate.go of helm
}))

// IsHarmlessAnnotation reports whether an annotation of a ClusterServiceVersion is no part of what it runs.
func IsHarmlessAnnotation(key string) bool {
	return slices.Contains(harmlessAnnotations, key) ||
		slices.Contains(harmlessAnnotations, key[:strings.IndexByte(key, '/')+1])
}

// HarmlessAnnotations returns the annotations that are no part of what a ClusterServiceVersion runs, in order. A key that
// ends with / is all of its domain.
func HarmlessAnnotations() []string { return slices.Clone(harmlessAnnotations) }

// AnnotationsDigest is a SHA-256 of the annotations of a ClusterServiceVersion that are not harmless; zero if there are
// none.
func AnnotationsDigest(annotations map[string]string) [sha256.Size]byte {
	raw := make(map[string]json.RawMessage, len(annotations))
	for key, value := range annotations {
		raw[key], _ = json.Marshal(value) // a string always encodes
	}
	return annotationsDigest(raw)
}

func annotationsDigest(annotations map[string]json.RawMessage) (digest [sha256.Size]byte) {
	hash, found := sha256.New(), false
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !IsHarmlessAnnotation(key) {
			value := annotations[key]
			if string(value) == "null" {
				value = json.RawMessage(`""`) // as the API server stores it
			}
			found = true
			fmt.Fprintf(hash, "%q %x\n", key, ContentsDigest(value))
		}
	}
	if found {
		digest = [sha256.Size]byte(hash.Sum(nil))
	}
	return digest
}

// annotations are those of a ClusterServiceVersion, with null in place of those that are longer than maxAnnotation: these
// are texts for people, or examples such as alm-examples.
type annotations struct {
	unread
	// digest covers those that are not harmless, of any length.
	digest [sha256.Size]byte
}

// UnmarshalJSON drops the long annotations.
func (a *annotations) UnmarshalJSON(raw []byte) error {
	*a = annotations{}
	if n, _ := apijson.Measure(raw); n > maxListValues {
		a.digest = sha256.Sum256(raw)
		return a.unread.UnmarshalJSON(raw) // which keeps only the reason
	}
	var texts map[string]json.RawMessage
	if err := apijson.Unmarshal(raw, &texts); err != nil {
		return err
	}
	a.digest = annotationsDigest(texts)
	for name, text := range texts {
		if len(text) > maxAnnotation {
			texts[name] = nil
		}
	}
	short, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	return a.unread.UnmarshalJSON(short)
}

// ChangedField returns the first field of a ClusterServiceVersion that differs between two of them and that counts: its
// spec, its properties, or an annotation that is not harmless. It returns "" if they differ in nothing of that.
// Webhook conditions, frozen contents, the record of what is installed and consent are about the same fields.
func (c *CSV) ChangedField(other *CSV) string {
	switch {
	case c.Spec.Digest != other.Spec.Digest:
		return "spec"
	case c.Metadata.Annotations.Properties != other.Metadata.Annotations.Properties:
		return annotationField(metakey.Properties)
	case c.Spec.annotations.digest == other.Spec.annotations.digest:
		return ""
	}
	was, _ := (&Demands{Spec: &c.Spec}).Annotations() // none where they cannot be read
	is, _ := (&Demands{Spec: &other.Spec}).Annotations()
	keys := slices.Collect(maps.Keys(was))
	for _, key := range slices.Sorted(slices.Values(slices.AppendSeq(keys, maps.Keys(is)))) {
		a, before := was[key]
		b, now := is[key]
		if !IsHarmlessAnnotation(key) && (before != now || a != nil && b != nil && *a != *b) {
			return annotationField(key)
		}
	}
	return "metadata.annotations" // a long one
}

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }
