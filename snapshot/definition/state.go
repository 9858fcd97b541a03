package definition

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// State is what a definition says.
type State struct {
	// Version is the version that policies are read in, "" while there is no definition, and so no policy.
	Version string
	// Served are all versions that the API server serves.
	Served []string
	// Missing are the fields and values of v1beta2 that Version does not have.
	Missing []string
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
		fields[name], _, _ = unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec", "properties")
	}
	slices.Sort(s.Served)
	s.Version = policyv1beta1.GroupVersion.Version
	switch {
	case slices.Contains(s.Served, policyv1beta2.Version):
		s.Version = policyv1beta2.Version
	case !slices.Contains(s.Served, s.Version) && last != "":
		s.Version = last
	}
	s.Missing = missing(fields[s.Version])
	return s
}

// missing returns which fields and values of v1beta2 a schema of the spec lacks.
func missing(properties map[string]any) []string {
	var lacks []string
	for _, field := range []string{"versionRange", "deprecated", "consent", "catalog"} {
		if _, has := properties[field]; !has {
			lacks = append(lacks, "spec."+field)
		}
	}
	values, _, _ := unstructured.NestedStringSlice(properties, "complianceType", "enum")
	if !slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, "mayhave") }) {
		lacks = append(lacks, "spec.complianceType mayhave")
	}
	return lacks
}

// text describes the state for people.
func (s *State) text() string {
	switch {
	case s.Version == "":
		return "OperatorPolicy is defined by another program, which has not installed its definition: there are no policies"
	case !slices.Contains(s.Served, s.Version):
		return "OperatorPolicy is defined by another program, and not served as v1beta1 or v1beta2: policies cannot be read"
	case len(s.Missing) == 0:
		return "OperatorPolicy is defined by another program, as " + s.Version
	}
	return "OperatorPolicy is defined by another program, as " + s.Version + ": " + strings.Join(s.Missing, ", ") + " are not available"
}
