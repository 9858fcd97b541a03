package olm

import (
	"strings"

	"github.com/opgate/opgate/internal/apijson"
)

// Definition is a CustomResourceDefinition that a ClusterServiceVersion names.
type Definition struct {
	// Name is that of the object, such as "etcdclusters.etcd.database.coreos.com".
	Name string `json:"name"`
	// Version is one of its versions, Kind that of its objects. Both may be empty.
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// Resource returns the plural name and the group of its objects.
func (d Definition) Resource() (plural, group string) {
	plural, group, _ = strings.Cut(d.Name, ".")
	return plural, group
}

// maxDefinitions bounds each list of definitions.
const maxDefinitions = 4096

// ReadDefinitions reads from the JSON of a ClusterServiceVersion which definitions it owns and which it requires. What
// is of another type counts as unset.
func ReadDefinitions(raw []byte) (owned, required []Definition) {
	var object struct {
		Spec struct {
			Definitions struct {
				Owned    []Definition `json:"owned"`
				Required []Definition `json:"required"`
			} `json:"customresourcedefinitions"`
		} `json:"spec"`
	}
	_ = apijson.Unmarshal(raw, &object) // what is of another type counts as unset
	lists := object.Spec.Definitions
	return lists.Owned[:min(len(lists.Owned), maxDefinitions)],
		lists.Required[:min(len(lists.Required), maxDefinitions)]
}
