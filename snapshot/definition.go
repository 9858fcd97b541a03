package snapshot

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
)

// Definition is the part of a CustomResourceDefinition that is stored. Schemas are most of its size, and are not read.
type Definition struct {
	// Metadata has no resourceVersion.
	Metadata            olm.ObjectMeta
	Group, Kind, Plural string
	// Versions are the served versions, the preferred one first.
	Versions []string
	// Storage is the storage version. It may be one that is not served.
	Storage    string
	Namespaced bool
	// Template reports whether the definition declares that templates may contain its kind.
	Template bool
	// Established reports whether the kind is served.
	Established bool
	// Operators are OLM's labels for the operators that it belongs to.
	Operators []string
	// Annotations is a digest of the annotations: after granting a right, an administrator annotates the definition to
	// have forbidden watches retried at once.
	Annotations uint64
}

// GroupKind returns the kind that is defined.
func (d *Definition) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: d.Group, Kind: d.Kind}
}

type definitionNames struct {
	Kind   string `json:"kind"`
	Plural string `json:"plural"`
}

func decodeDefinition(raw []byte) (any, error) {
	var o struct {
		Metadata struct {
			olm.ObjectMeta
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Group    string          `json:"group"`
			Scope    string          `json:"scope"`
			Names    definitionNames `json:"names"`
			Versions []struct {
				Name    string `json:"name"`
				Served  bool   `json:"served"`
				Storage bool   `json:"storage"`
			} `json:"versions"`
		} `json:"spec"`
		Status struct {
			AcceptedNames definitionNames `json:"acceptedNames"`
			Conditions    []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		return nil, err
	}
	o.Metadata.ResourceVersion = ""
	d := &Definition{
		Metadata: o.Metadata.ObjectMeta,
		Group:    o.Spec.Group,
		// Requested names may be taken; the accepted ones count.
		Kind:       cmp.Or(o.Status.AcceptedNames.Kind, o.Spec.Names.Kind),
		Plural:     cmp.Or(o.Status.AcceptedNames.Plural, o.Spec.Names.Plural),
		Namespaced: o.Spec.Scope == "Namespaced",
		Template:   o.Metadata.Labels[metakey.PolicyType] == dependency.LabelTemplateValue,

		Annotations: digest(o.Metadata.Annotations),
	}
	for label := range o.Metadata.Labels {
		if strings.HasPrefix(label, olm.Group+"/") {
			d.Operators = append(d.Operators, label)
		}
	}
	slices.Sort(d.Operators)
	for _, v := range o.Spec.Versions {
		if v.Served {
			d.Versions = append(d.Versions, v.Name)
		}
		if v.Storage {
			d.Storage = v.Name
		}
	}
	slices.SortFunc(d.Versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	for _, c := range o.Status.Conditions {
		d.Established = d.Established || c.Type == "Established" && c.Status == "True" && len(d.Versions) > 0
	}
	return d, nil
}

// digest returns a digest of annotations, in any order; 0 for none.
func digest(annotations map[string]string) uint64 {
	if len(annotations) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		_, _ = fmt.Fprintf(h, "%q=%q,", key, annotations[key]) // a hash does not fail
	}
	return h.Sum64()
}
