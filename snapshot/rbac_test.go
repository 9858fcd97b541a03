package snapshot

import (
	"bytes"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// notInStore are resources that every replica watches and that are no kinds of the store: the cluster version, and
// OLM's service account.
var notInStore = []string{"clusterversions", "serviceaccounts"}

// ownRole is the Role for Opgate's own namespace.
const ownRole = "opgate"

// TestRBAC: every replica, or the leader, may list and watch exactly the kinds that it needs.
func TestRBAC(t *testing.T) {
	data, err := os.ReadFile("../manifests/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string][]rbacv1.PolicyRule{}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" || role.Kind == "Role" &&
			(role.Name == "opgate-catalogs" || role.Name == ownRole) {
			roles[role.Name] = role.Rules
		}
	}
	watches := func(role, group, resource string) bool {
		return slices.ContainsFunc(roles[role], func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) &&
				len(r.ResourceNames) == 0 &&
				slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
		})
	}
	for _, k := range kinds {
		if k.Own {
			if !watches(ownRole, k.Group, k.Resource) {
				t.Errorf("every replica may not watch %s in Opgate's namespace", k.Resource)
			}
			continue
		}
		if everybody := watches("opgate-admission", k.Group, k.Resource) ||
			watches("opgate-catalogs", k.Group, k.Resource); everybody != (k.Readers != Leader) {
			t.Errorf("every replica may watch %s: %v", k.Resource, everybody)
		}
		if k.Readers == Leader && !watches("opgate-loop", k.Group, k.Resource) &&
			!watches("opgate-"+k.Resource, k.Group, k.Resource) &&
			!watches("opgate-cluster-extensions", k.Group, k.Resource) {
			t.Errorf("the leader may not watch %s", k.Resource)
		}
	}
	for _, r := range roles["opgate-admission"] {
		for _, resource := range r.Resources {
			known := slices.ContainsFunc(kinds,
				func(k *Kind) bool { return slices.Contains(r.APIGroups, k.Group) && k.Resource == resource })
			if slices.Contains(r.Verbs, "watch") && !known && !slices.Contains(notInStore, resource) {
				t.Errorf("%s may be watched, and are not needed", resource)
			}
		}
	}
}
