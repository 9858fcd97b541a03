package change

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
)

// normalForm is what a digest covers: nothing that differs between clusters, so the same change has the same digest
// everywhere.
type normalForm struct {
	Package     string       `json:"package"`
	CSV         string       `json:"csv"`
	Version     string       `json:"version"`
	Release     string       `json:"release,omitempty"`
	Differences []Difference `json:"differences"`
	Contents    string       `json:"contents"`
}

// Digest returns "sha256:" and 64 hex digits, which identify the change in all clusters; "" with a Fault. It leaves out
// the catalog and the channel, and the name of what is replaced; what that had shows in the differences.
func (s *Set) Digest() string {
	if s.Fault != "" {
		return ""
	}
	form, err := json.Marshal(normalForm{Package: s.Package, CSV: s.CSV, Version: s.Version, Release: s.Release,
		Differences: s.Differences, Contents: hex.EncodeToString(s.Contents[:])})
	if err != nil {
		return "" // which holds; strings and numbers always encode
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(form))
}

// digest returns the digest of all that a bundle writes: the spec of its ClusterServiceVersion, its rights, and its
// other objects. It leaves out what differs between clusters or between a plan and a ConfigMap: names and owners of
// derived RBAC objects, status, and metadata that the API server sets.
func (c *Contents) digest(r *rights) [sha256.Size]byte {
	h := sha256.New()
	if c.rawSpec != nil {
		rest := *c
		rest.spec.Replaces = "" // from the channel
		strategy := &rest.spec.InstallStrategy.StrategySpec
		permissions := append(accountRules("cluster-wide", strategy.ClusterPermissions),
			accountRules("in its namespaces", strategy.Permissions)...)
		strategy.ClusterPermissions, strategy.Permissions = nil, nil
		fmt.Fprintf(h, "spec %x %q\n", olm.ContentsDigest(rest.typedSpec()), permissions)
		metadata := fields{}
		metadata.readMap(annotationPath, c.annotations)
		metadata.readMap(labelPath, c.labels)
		for _, path := range sortedKeys(metadata) {
			fmt.Fprintf(h, "%q %q\n", path, sortedKeys(metadata[path]))
		}
	}
	for _, holder := range r.holders() {
		fmt.Fprintf(h, "%q %q\n", holder.String(), sorted(r.roles[holder]))
		for _, rule := range normalRules(r.rules[holder]) {
			fmt.Fprintf(h, "%s\n", ruleKey(&rule))
		}
	}
	derived := c.derivedRules()
	for i := range c.objects {
		if o := &c.objects[i]; !derived.has(o) {
			o.digest(h)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// accountRules returns which ServiceAccount has which rules, in one order.
func accountRules(where string, permissions []v1alpha1.StrategyDeploymentPermissions) []string {
	all := make([]string, len(permissions))
	for i := range permissions {
		all[i] = fmt.Sprintf("%s %q %s", where, permissions[i].ServiceAccountName, rulesKey(permissions[i].Rules))
	}
	return sorted(all)
}

// volatile are the fields of metadata that the API server or OLM set.
var volatile = []string{"namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
	"ownerReferences", "selfLink"}

// digest writes the digest of an object without its status and volatile metadata.
func (o *object) digest(h hash.Hash) {
	var fields map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(o.raw, &fields) != nil {
		fmt.Fprintf(h, "%x\n", sha256.Sum256(o.raw))
		return
	}
	delete(fields, "status")
	var metadata map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(fields["metadata"], &metadata) == nil {
		delete(fields, "metadata")
		for _, name := range volatile {
			delete(metadata, name)
		}
		digestFields(h, "metadata", metadata)
	}
	digestFields(h, o.Kind, fields)
}

// digestFields writes the digests of fields.
func digestFields(h hash.Hash, of string, fields map[string]json.RawMessage) {
	fmt.Fprintf(h, "%q\n", of)
	for _, name := range sortedKeys(fields) {
		if string(fields[name]) != "null" {
			fmt.Fprintf(h, "%q %x\n", name, olm.ContentsDigest(fields[name]))
		}
	}
}
