package olm

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
)

// CSV is what rules read of operators.coreos.com/v1alpha1 ClusterServiceVersion.
type CSV struct {
	Metadata ObjectMeta `json:"metadata"`
	Spec     CSVSpec    `json:"spec"`
	// Status is not read with the rest, which a review judges; see ReadCSVStatus. Neither is Bundle, which has what
	// StatedBundle returns.
	Status CSVStatus `json:"-"`
	Bundle Bundle    `json:"-"`
	// Written is the JSON of a virtual operator, all of which Opgate writes; nil of others.
	Written []byte `json:"-"`
}

// StatedBundle returns what a ClusterServiceVersion states of its bundle. One whose properties do not parse is of an
// unknown package.
func (c *CSV) StatedBundle() Bundle {
	var b Bundle
	if properties := c.Metadata.Annotations.Properties; properties != "" {
		if read, err := ParseBundle(properties); err == nil {
			b = read
		}
	}
	b.Name, b.Spec = c.Metadata.Name, &c.Spec
	b.Release, _ = c.Spec.Release(b.Stated)
	return b
}

// IsVirtual reports whether this is a virtual operator, by a label that only Opgate may write.
func (c *CSV) IsVirtual() bool { return c.Metadata.Labels.VirtualOperator != nil }

// CSVStatus is what is only reported of a ClusterServiceVersion: what OLM did with it, and what in its spec that takes.
type CSVStatus struct {
	Phase, Reason, Message string
	// Unmet are the first requirements that it does not meet, with OLM's messages, if that is the reason.
	Unmet []string
	// Deployments are the names in the install strategy.
	Deployments []string
	// InstallModes are the supported ones, such as AllNamespaces; nil if the CSV lists none at all.
	InstallModes map[string]bool
}

// ReadCSVStatus reads it from the JSON of a stored ClusterServiceVersion. What is of another type counts as unset.
func ReadCSVStatus(raw []byte) (s CSVStatus) {
	var object struct {
		Spec struct {
			Modes   []v1alpha1.InstallMode `json:"installModes"`
			Install struct {
				Spec struct {
					Deployments []struct {
						Name string `json:"name"`
					} `json:"deployments"`
				} `json:"spec"`
			} `json:"install"`
		} `json:"spec"`
		Status struct {
			Phase        string                       `json:"phase"`
			Reason       string                       `json:"reason"`
			Message      string                       `json:"message"`
			Requirements []v1alpha1.RequirementStatus `json:"requirementStatus"`
		} `json:"status"`
	}
	_ = apijson.Unmarshal(raw, &object) // what is of another type counts as unset
	s = CSVStatus{Phase: object.Status.Phase, Reason: object.Status.Reason,
		Message: text.Truncate(object.Status.Message, maxMessage)}
	for _, mode := range object.Spec.Modes {
		if s.InstallModes == nil {
			s.InstallModes = map[string]bool{}
		}
		if len(s.InstallModes) < maxInstallModes {
			s.InstallModes[string(mode.Type)] = mode.Supported
		}
	}
	for _, d := range object.Spec.Install.Spec.Deployments {
		if d.Name != "" && len(s.Deployments) < maxStoredDeployments {
			s.Deployments = append(s.Deployments, d.Name)
		}
	}
	for _, r := range object.Status.Requirements {
		if s.Reason == "RequirementsNotMet" && r.Status != v1alpha1.RequirementStatusReasonPresent && len(s.Unmet) < maxUnmet {
			s.Unmet = append(s.Unmet, text.Truncate(r.Kind+" "+r.Name+" ("+string(r.Status)+"): "+r.Message, maxUnmetText))
		}
	}
	return s
}

// UnmarshalJSON also keeps the annotations that CEL rules may read.
func (c *CSV) UnmarshalJSON(raw []byte) error {
	var parts struct {
		Metadata json.RawMessage `json:"metadata"`
		Spec     CSVSpec         `json:"spec"`
	}
	if err := apijson.Unmarshal(raw, &parts); err != nil {
		return err
	}
	*c = CSV{Spec: parts.Spec}
	if len(parts.Metadata) == 0 {
		return nil
	}
	var more struct {
		Annotations annotations `json:"annotations"`
	}
	if err := apijson.Unmarshal(parts.Metadata, &more); err != nil {
		return err
	}
	c.Spec.annotations = more.Annotations
	return apijson.Unmarshal(parts.Metadata, &c.Metadata)
}

// CSVSpec is what rules read of the spec of a ClusterServiceVersion.
type CSVSpec struct {
	// MinKubeVersion is the oldest supported Kubernetes version. OLM checks it only after the installation.
	MinKubeVersion string `json:"minKubeVersion"`
	// Replaces names the ClusterServiceVersion that OLM deletes once this one is installed.
	Replaces string `json:"replaces"`
	// Stated is its release; see Release.
	Stated  statedRelease `json:"release"`
	Install struct {
		Spec struct {
			ClusterPermissions unread         `json:"clusterPermissions"`
			Permissions        unread         `json:"permissions"`
			Deployments        deployedImages `json:"deployments"`
		} `json:"spec"`
	} `json:"install"`
	Webhooks unread        `json:"webhookdefinitions"`
	Related  relatedImages `json:"relatedImages"`

	// annotations are those of the object, which belong to its contents as much as the spec does.
	annotations annotations
	// Digest is the SHA-256 of the whole spec as written in the object's JSON.
	Digest [sha256.Size]byte `json:"-"`
	// raw is the JSON of the spec until KeepDigest replaces it by contents, its SpecDigest.
	raw      []byte
	contents [sha256.Size]byte
}

// UnmarshalJSON also records the digest of the whole spec.
func (s *CSVSpec) UnmarshalJSON(raw []byte) error {
	type plain CSVSpec
	*s = CSVSpec{Digest: sha256.Sum256(raw), raw: raw}
	return apijson.Unmarshal(raw, (*plain)(s))
}

// KeepDigest replaces the JSON of a spec by a digest of its contents, which is all that a snapshot stores.
func (s *CSVSpec) KeepDigest() {
	if s != nil && s.raw != nil {
		s.contents, s.raw = ContentsDigest(s.raw), nil
	}
}

// SpecDigest is equal for two specs if and only if they have the same meaning, whether they come from the manifest of a
// plan or from the API server; see the function ContentsDigest.
func (s *CSVSpec) SpecDigest() [sha256.Size]byte {
	if s.raw != nil {
		return ContentsDigest(s.raw)
	}
	return s.contents
}

// AnnotationsDigest is the function of that name of the object's annotations.
func (s *CSVSpec) AnnotationsDigest() [sha256.Size]byte { return s.annotations.digest }

// ContentsDigest covers the spec, and the annotations of the object that are not harmless.
func (s *CSVSpec) ContentsDigest() [sha256.Size]byte {
	return Combined(s.SpecDigest(), s.annotations.digest)
}

// Combined returns the CSVSpec.ContentsDigest of a spec and annotations with these digests.
func Combined(spec, annotations [sha256.Size]byte) [sha256.Size]byte {
	if annotations == ([sha256.Size]byte{}) {
		return spec
	}
	return sha256.Sum256(append(spec[:], annotations[:]...))
}

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
