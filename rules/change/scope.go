package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// riskyKinds are kinds by which a bundle can take requests or rights of others.
var riskyKinds = []string{"APIService", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Namespace",
	"SecurityContextConstraints", "CatalogSource", "OperatorGroup", "Subscription"}

// classes are the classes of objects by group and kind: of one that is new, and of one that has other fields than
// before. Kinds that the table does not name are Scope. What other functions compare of an object is in judged.
var classes = map[string]struct{ added, changed Class }{
	"/Secret":         {Permissions, Permissions},
	"/ServiceAccount": {Permissions, Permissions},
	admissionv1.GroupName + "/MutatingWebhookConfiguration":   {Webhooks, Webhooks},
	admissionv1.GroupName + "/ValidatingWebhookConfiguration": {Webhooks, Webhooks},
	rbacv1.GroupName + "/ClusterRole":                         {Scope, Permissions},
	rbacv1.GroupName + "/ClusterRoleBinding":                  {Scope, Permissions},
	rbacv1.GroupName + "/Role":                                {Scope, Permissions},
	rbacv1.GroupName + "/RoleBinding":                         {Scope, Permissions},
}

// compareScope adds the objects that a bundle brings, and what it changes of them, and where the operator may be
// installed.
func compareScope(s *Set, from, to *Contents) error {
	before, after, err := both(from, to, (*Contents).otherObjects)
	if err != nil {
		return err
	}
	others := false
	for _, name := range sortedKeys(after) {
		s.compareObject(name, before[name], after[name])
		others = others || after[name].fields != nil
	}
	if others && from.Missing != "" {
		s.note("what %s installed besides its ClusterServiceVersion is not known, so all such objects are shown as new: %s", text.Name(s.From), from.Missing)
	}
	for _, name := range sortedKeys(before) {
		if after[name] == nil && before[name].restricts {
			s.add(Scope, Notable, "no longer has %s", name)
		}
	}
	for _, mode := range sets.List(to.installModes().Difference(from.installModes())) {
		s.add(Scope, Notable, "supports install mode %s", text.Name(mode))
	}
	return s.compareSpec(from, to)
}

// otherObject is an object that is compared by its fields.
type otherObject struct {
	kind      string
	risk      Risk
	restricts bool
	fields    fields
}

func (s *Set) compareObject(name string, was, is *otherObject) {
	class, known := classes[is.kind]
	if !known {
		class.added, class.changed = Scope, Scope
	}
	if was == nil {
		s.add(class.added, is.risk, "adds %s", name)
		return
	}
	var paths []string
	for _, path := range is.fields.changed(was.fields) {
		paths = append(paths, shortPath(strings.TrimPrefix(path, is.kind+".")))
	}
	if len(paths) > 0 {
		s.add(class.changed, is.risk, "changes %s: %s", name, text.Join(paths, maxListed))
	}
}

// compareSpec adds fields of the ClusterServiceVersion that nothing else compares.
func (s *Set) compareSpec(from, to *Contents) error {
	if to.rawSpec == nil || from.rawSpec == nil && from.CSV != "" {
		return nil
	}
	before, after, err := both(from, to, (*Contents).specFields)
	if err != nil {
		return err
	}
	for _, path := range after.changed(before) {
		s.add(Scope, Notable, "%s", after.describe(path, before))
	}
	was, is := fields{}, fields{}
	was.readMap(labelPath, from.labels)
	is.readMap(labelPath, to.labels)
	for _, path := range sortedKeys(is) { // OLM adds labels to what is installed
		if added, _ := difference(is[path], was[path]); len(added) > 0 {
			s.add(Scope, Notable, "%s", is.describe(path, was))
		}
	}
	return nil
}

// specFields returns the fields of the spec of a ClusterServiceVersion that nothing else compares.
func (c *Contents) specFields() (fields, error) {
	rest := c.spec
	rest.InstallStrategy.StrategySpec = v1alpha1.StrategyDetailsDeployment{}
	rest.CustomResourceDefinitions, rest.Description, rest.Icon,
		rest.RelatedImages = v1alpha1.CustomResourceDefinitions{}, "", nil, nil
	f := fields{}
	return f, f.readTyped("csv", &rest)
}

// installModes returns the supported ones.
func (c *Contents) installModes() sets.Set[string] {
	modes := sets.New[string]()
	for _, m := range c.spec.InstallModes {
		if m.Supported {
			modes.Insert(string(m.Type))
		}
	}
	return modes
}

// otherObjects returns the objects of a bundle by kind and name, without CustomResourceDefinitions and the RBAC
// objects that OLM derives.
func (c *Contents) otherObjects() (map[string]*otherObject, error) {
	derived := c.derivedRules()
	found := map[string]*otherObject{}
	for i := range c.objects {
		o := &c.objects[i]
		if o.isDefinition() || derived.has(o) {
			continue
		}
		other := &otherObject{kind: o.group() + "/" + o.Kind, risk: riskIf(slices.Contains(riskyKinds, o.Kind)),
			restricts: o.Kind == "NetworkPolicy", fields: fields{}}
		if err := other.fields.readObject(other.kind, o.raw); err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", o, err)
		}
		name := o.String()
		for n := 2; found[name] != nil; n++ { // without a name, or of another group
			name = fmt.Sprintf("%s (%d)", o, n)
		}
		found[name] = other
	}
	for i := range c.spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		name := "Deployment " + text.Name(c.spec.InstallStrategy.StrategySpec.DeploymentSpecs[i].Name)
		found[name] = &otherObject{kind: "apps/Deployment"}
	}
	for _, d := range c.spec.APIServiceDefinitions.Owned {
		found["APIService "+text.Name(d.GetName())] = &otherObject{risk: Risky}
	}
	return found, nil
}

// readObject reads the fields of an object without its status and the metadata that the API server sets.
func (f fields) readObject(kind string, raw []byte) error {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, name := range append(volatile, "name") {
			delete(metadata, name)
		}
		f.read("metadata", metadata)
		delete(object, "metadata")
	}
	for _, name := range []string{"apiVersion", "kind", "status"} {
		delete(object, name)
	}
	f.read(kind, object)
	return nil
}

// ownerLabels are those that OLM sets on RBAC objects.
var ownerLabels = []string{metakey.PermissionsHash, metakey.OLMManaged, metakey.Owner, metakey.OwnerKind, metakey.OwnerNamespace}

// derived knows the rules of a ClusterServiceVersion. The roles and bindings that OLM derives from it are in plans and
// not in ConfigMaps, and have names with hashes. The label alone proves nothing: the rules must be the same.
type derived struct {
	namespace string
	rules     map[string]bool
	accounts  map[string]bool
	roles     map[string]bool
}

func (c *Contents) derivedRules() *derived {
	d := &derived{namespace: c.namespace, rules: map[string]bool{}, accounts: c.derivedAccounts(),
		roles: map[string]bool{}}
	if !slices.ContainsFunc(c.objects,
		func(o object) bool { return o.isRBAC() && o.Metadata.Labels[metakey.PermissionsHash] != "" }) {
		return d
	}
	strategy := &c.spec.InstallStrategy.StrategySpec
	for _, p := range slices.Concat(strategy.ClusterPermissions, strategy.Permissions) {
		d.rules[rulesKey(p.Rules)] = true
	}
	for i := range c.objects {
		if o := &c.objects[i]; (o.Kind == "ClusterRole" || o.Kind == "Role") && d.hasRole(o) {
			d.roles[o.Kind+"/"+o.Metadata.Name] = true
		}
	}
	return d
}

// has reports whether an object is a role with the rules of the ClusterServiceVersion, or a binding of such a role to
// its accounts.
func (d *derived) has(o *object) bool {
	if !o.isRBAC() {
		return false
	}
	if !strings.HasSuffix(o.Kind, "Binding") {
		return d.roles[o.Kind+"/"+o.Metadata.Name]
	}
	var b rbacObject
	if o.Metadata.Labels[metakey.PermissionsHash] == "" || json.Unmarshal(o.raw, &b) != nil || len(b.Subjects) != 1 {
		return false
	}
	return d.roles[b.RoleRef.Kind+"/"+b.RoleRef.Name] && b.Subjects[0].Kind == "ServiceAccount" &&
		(b.Subjects[0].Namespace == d.namespace || d.namespace == "") && d.accounts[b.Subjects[0].Name]
}

func (d *derived) hasRole(o *object) bool {
	var role rbacObject
	return o.Metadata.Labels[metakey.PermissionsHash] != "" && json.Unmarshal(o.raw, &role) == nil && role.AggregationRule == nil &&
		!slices.ContainsFunc(sortedKeys(role.Metadata.Labels),
			func(l string) bool { return !slices.Contains(ownerLabels, l) }) &&
		d.rules[rulesKey(role.Rules)]
}

// compareRequirements adds what the operator needs now.
func compareRequirements(s *Set, from, to *Contents) error {
	if was, is := from.spec.MinKubeVersion, to.spec.MinKubeVersion; is != "" && is != was {
		s.add(Requirements, Notable, "requires Kubernetes %s", text.Name(is))
	}
	for _, r := range sets.List(sets.New(to.requirements()...).Difference(sets.New(from.requirements()...))) {
		s.add(Requirements, Notable, "%s", r)
	}
	return nil
}

// requirements returns the packages and APIs that an operator needs.
func (c *Contents) requirements() []string {
	var all []string
	for _, r := range c.requires {
		if r.Package != "" {
			all = append(all, "requires package "+text.Name(r.Package))
		} else {
			all = append(all, fmt.Sprintf("requires kind %s of %s/%s", text.Name(r.Kind), text.Name(r.Group),
				text.Name(r.Version)))
		}
	}
	for i := range c.spec.CustomResourceDefinitions.Required {
		all = append(all, "requires CustomResourceDefinition "+
			text.Name(c.spec.CustomResourceDefinitions.Required[i].Name))
	}
	for i := range c.spec.APIServiceDefinitions.Required {
		all = append(all, "requires APIService "+text.Name(c.spec.APIServiceDefinitions.Required[i].GetName()))
	}
	if c.deprecated {
		all = append(all, "is deprecated by its catalog (property "+olm.TypeDeprecated+")")
	}
	return all
}
