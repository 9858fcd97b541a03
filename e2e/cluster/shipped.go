package cluster

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// shippedRBAC reads the roles and bindings that Opgate is shipped with.
func shippedRBAC() ([]client.Object, error) {
	checkout, err := repo.Find()
	if err != nil {
		return nil, err
	}
	return readRBAC(checkout.Roles())
}

func readRBAC(path string) ([]client.Object, error) {
	documents, err := readDocuments(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var objects []client.Object
	for _, d := range documents {
		var object client.Object
		switch d.Kind {
		case "ClusterRole":
			object = &rbacv1.ClusterRole{}
		case "ClusterRoleBinding":
			object = &rbacv1.ClusterRoleBinding{}
		case "Role":
			object = &rbacv1.Role{}
		case "RoleBinding":
			object = &rbacv1.RoleBinding{}
		default:
			return nil, fmt.Errorf("read %s: unexpected %s", path, d.GroupVersionKind())
		}
		if err := yaml.UnmarshalStrict(d.text, object); err != nil {
			return nil, fmt.Errorf("read %s: %s: %w", path, d.Kind, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// shippedRules are the rules of some of the roles that Opgate is shipped with.
func shippedRules(names ...string) ([]rbacv1.PolicyRule, error) {
	objects, err := shippedRBAC()
	if err != nil {
		return nil, err
	}
	var rules []rbacv1.PolicyRule
	for _, name := range names {
		before := len(rules)
		for _, object := range objects {
			if object.GetName() != name {
				continue
			}
			switch role := object.(type) {
			case *rbacv1.ClusterRole:
				rules = slices.Concat(rules, role.Rules)
			case *rbacv1.Role:
				rules = slices.Concat(rules, role.Rules)
			}
		}
		if len(rules) == before {
			return nil, fmt.Errorf("no role %s with rules is shipped", name)
		}
	}
	return rules, nil
}
