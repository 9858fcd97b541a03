package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// namespacedKinds are the kinds of objects of bundles that live in a namespace, by group. Every other kind counts as cluster-scoped unless
// a CustomResourceDefinition says otherwise.
var namespacedKinds = map[string][]string{
	"": {"ConfigMap", "Endpoints", "Event", "LimitRange", "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota",
		"Secret", "Service", "ServiceAccount"},
	"apps":                      {"ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"},
	"autoscaling":               {"HorizontalPodAutoscaler"},
	"autoscaling.k8s.io":        {"VerticalPodAutoscaler"},
	"batch":                     {"CronJob", "Job"},
	"coordination.k8s.io":       {"Lease"},
	"discovery.k8s.io":          {"EndpointSlice"},
	"monitoring.coreos.com":     {"AlertmanagerConfig", "PodMonitor", "Probe", "PrometheusRule", "ServiceMonitor"},
	"networking.k8s.io":         {"Ingress", "NetworkPolicy"},
	"operators.coreos.com":      {"CatalogSource", "InstallPlan", "OperatorCondition", "OperatorGroup"},
	"policy":                    {"PodDisruptionBudget"},
	"rbac.authorization.k8s.io": {"Role", "RoleBinding"},
	"route.openshift.io":        {"Route"},
	"image.openshift.io":        {"ImageStream"},
}

// riskyKinds are cluster-scoped kinds by which a bundle can take requests or rights of others.
var riskyKinds = []string{"APIService", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Namespace", "SecurityContextConstraints",
	"CatalogSource", "OperatorGroup"}

// compareScope adds what reaches beyond the namespaces of the operator.
func compareScope(s *Set, from, to *Contents) error {
	before, after := from.clusterObjects(nil), to.clusterObjects(from)
	for _, name := range sortedKeys(after) {
		if _, known := before[name]; !known {
			s.add(Scope, after[name], "adds %s", name)
		}
	}
	modes := from.installModes()
	for _, mode := range to.installModes() {
		if !slices.Contains(modes, mode) {
			s.add(Scope, Notable, "supports install mode %s", text.Name(mode))
		}
	}
	return nil
}

// installModes returns the supported ones in order.
func (c *Contents) installModes() []string {
	var modes []string
	for _, m := range c.spec.InstallModes {
		if m.Supported {
			modes = append(modes, string(m.Type))
		}
	}
	return sorted(modes)
}

// clusterObjects returns the cluster-scoped objects of a bundle with their risk. CustomResourceDefinitions, webhooks and the RBAC objects that
// OLM derives have classes of their own. stored has CustomResourceDefinitions, too.
func (c *Contents) clusterObjects(stored *Contents) settings {
	scopes := c.customScopes()
	if stored != nil {
		for kind, namespaced := range stored.customScopes() {
			if _, known := scopes[kind]; !known {
				scopes[kind] = namespaced
			}
		}
	}
	derived := c.derivedRules()
	found := settings{}
	for i := range c.objects {
		o := &c.objects[i]
		if o.isDefinition() || strings.HasSuffix(o.Kind, "WebhookConfiguration") || derived.has(o) || !o.isClusterScoped(scopes) {
			continue
		}
		found.set(true, riskOfKind(o.Kind), o.String())
	}
	for _, d := range c.spec.APIServiceDefinitions.Owned {
		found.set(true, Risky, "APIService "+text.Name(d.GetName()))
	}
	return found
}

func riskOfKind(kind string) Risk {
	if slices.Contains(riskyKinds, kind) {
		return Risky
	}
	return Notable
}

// isClusterScoped reports whether an object is cluster-scoped. customScopes of a kind is true if it is namespaced.
func (h *header) isClusterScoped(scopes map[string]bool) bool {
	if namespaced, known := scopes[h.group()+"/"+h.Kind]; known {
		return !namespaced
	}
	return !slices.Contains(namespacedKinds[h.group()], h.Kind)
}

// customScopes returns, by group and kind, whether a kind that a CustomResourceDefinition defines is namespaced. A definition cannot change
// the scope of a kind that Kubernetes has.
func (c *Contents) customScopes() map[string]bool {
	scopes := make(map[string]bool, len(c.definitions))
	for _, d := range c.definitions {
		if !builtIn(d.Spec.Group) {
			scopes[d.Spec.Group+"/"+d.Spec.Names.Kind] = d.Spec.Scope == "Namespaced"
		}
	}
	return scopes
}

// hashLabel is on the roles and bindings that OLM derives from a ClusterServiceVersion.
const hashLabel = "olm.permissions.hash"

// derived knows the rules of a ClusterServiceVersion. The roles and bindings that OLM derives from it are in plans and not in ConfigMaps, and
// have names with hashes. The label alone proves nothing: the rules must be the same.
type derived struct {
	rules    map[string]bool
	accounts map[string]bool
	roles    map[string]bool
}

func (c *Contents) derivedRules() *derived {
	d := &derived{rules: map[string]bool{}, accounts: map[string]bool{}, roles: map[string]bool{}}
	if !slices.ContainsFunc(c.objects, func(o object) bool { return o.isRBAC() && o.Metadata.Labels[hashLabel] != "" }) {
		return d
	}
	strategy := &c.spec.InstallStrategy.StrategySpec
	for _, list := range [][]v1alpha1.StrategyDeploymentPermissions{strategy.ClusterPermissions, strategy.Permissions} {
		for i := range list {
			d.rules[rulesKey(list[i].Rules)] = true
			d.accounts[list[i].ServiceAccountName] = true
		}
	}
	for i := range c.objects {
		if o := &c.objects[i]; (o.Kind == "ClusterRole" || o.Kind == "Role") && d.hasRole(o) {
			d.roles[o.Kind+"/"+o.Metadata.Name] = true
		}
	}
	return d
}

// has reports whether an object is a role with the rules of the ClusterServiceVersion, or a binding of such a role to its accounts.
func (d *derived) has(o *object) bool {
	if !o.isRBAC() {
		return false
	}
	if !strings.HasSuffix(o.Kind, "Binding") {
		return d.roles[o.Kind+"/"+o.Metadata.Name]
	}
	var b rbacObject
	if o.Metadata.Labels[hashLabel] == "" || json.Unmarshal(o.raw, &b) != nil || len(b.Subjects) != 1 {
		return false
	}
	return d.roles[b.RoleRef.Kind+"/"+b.RoleRef.Name] && b.Subjects[0].Kind == "ServiceAccount" && d.accounts[b.Subjects[0].Name]
}

func (d *derived) hasRole(o *object) bool {
	var role rbacObject
	return o.Metadata.Labels[hashLabel] != "" && json.Unmarshal(o.raw, &role) == nil && role.AggregationRule == nil &&
		!slices.ContainsFunc(sortedKeys(o.Metadata.Labels), func(l string) bool { return strings.HasPrefix(l, aggregationLabel) }) &&
		d.rules[rulesKey(role.Rules)]
}

// compareRequirements adds what the operator needs now.
func compareRequirements(s *Set, from, to *Contents) error {
	if was, is := from.spec.MinKubeVersion, to.spec.MinKubeVersion; is != "" && is != was {
		s.add(Requirements, Notable, "requires Kubernetes %s", text.Name(is))
	}
	before := from.requirements()
	for _, r := range to.requirements() {
		if !slices.Contains(before, r) {
			s.add(Requirements, Notable, "%s", r)
		}
	}
	return nil
}

// requirements returns in order the packages and APIs that an operator needs.
func (c *Contents) requirements() []string {
	var all []string
	for _, r := range c.requires {
		if r.Package != "" {
			all = append(all, "requires package "+text.Name(r.Package))
		} else {
			all = append(all, fmt.Sprintf("requires kind %s of %s/%s", text.Name(r.Kind), text.Name(r.Group), text.Name(r.Version)))
		}
	}
	for i := range c.spec.CustomResourceDefinitions.Required {
		all = append(all, "requires CustomResourceDefinition "+text.Name(c.spec.CustomResourceDefinitions.Required[i].Name))
	}
	for i := range c.spec.APIServiceDefinitions.Required {
		all = append(all, "requires APIService "+text.Name(c.spec.APIServiceDefinitions.Required[i].GetName()))
	}
	if c.deprecated {
		all = append(all, "is deprecated by its catalog (property "+olm.TypeDeprecated+")")
	}
	return sorted(all)
}
