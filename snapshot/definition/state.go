package definition

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/crdschema"
	"github.com/opgate/opgate/internal/metakey"
)

// State is what a definition says.
type State struct {
	// Version is the version that policies are read in, "" while there is no definition, and so no policy.
	Version string
	// Served are all versions that the API server serves.
	Served []string
	// Missing are the fields of v1beta2 that Version does not have.
	Missing []string
	// WithoutMayhave is set if complianceType mayhave is none of its values.
	WithoutMayhave bool
}

// read returns the state of a definition, which is nil if it does not exist. A definition that serves no version that
// is known here keeps the last one: its policies may still be stored, and must not be forgotten.
func read(definition *unstructured.Unstructured, last string) State {
	if definition == nil {
		return State{}
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	fields := map[string]map[string]any{}
	var s State
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if version["served"] != true || name == "" {
			continue
		}
		s.Served = append(s.Served, name)
		fields[name], _, _ = unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec",
			"properties")
	}
	slices.Sort(s.Served)
	s.Version = policyv1beta1.GroupVersion.Version
	switch {
	case slices.Contains(s.Served, policyv1beta2.Version):
		s.Version = policyv1beta2.Version
	case !slices.Contains(s.Served, s.Version) && last != "":
		s.Version = last
	}
	properties := fields[s.Version]
	for _, field := range crdschema.Own(policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind)).SpecFields() {
		if _, has := properties[field]; !has {
			s.Missing = append(s.Missing, "spec."+field)
		}
	}
	values, _, _ := unstructured.NestedStringSlice(properties, "complianceType", "enum")
	s.WithoutMayhave = !slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, "mayhave") })
	return s
}

// text describes the state for people.
func (s *State) text() string {
	switch {
	case s.Version == "":
		return "OperatorPolicy is defined by another program, which has not installed its definition: there are no policies"
	case !slices.Contains(s.Served, s.Version):
		return "OperatorPolicy is defined by another program, and not served as v1beta1 or v1beta2: policies cannot be read"
	}
	var lacks []string
	if fields := strings.Join(s.Missing, ", "); fields != "" && s.Version == policyv1beta1.GroupVersion.Version {
		lacks = append(lacks, fields+" are read from annotation "+metakey.Conversion)
	} else if fields != "" {
		lacks = append(lacks, fields+" are not available")
	}
	if s.WithoutMayhave {
		lacks = append(lacks, "complianceType mayhave is not available")
	}
	if len(lacks) == 0 {
		return "OperatorPolicy is defined by another program, as " + s.Version
	}
	return "OperatorPolicy is defined by another program, as " + s.Version + ": " + strings.Join(lacks, "; ")
}
