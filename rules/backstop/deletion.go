package backstop

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// DeletionName is the name of the ValidatingAdmissionPolicy on deletions, and of its binding.
const DeletionName = "opgate-deletion"

// heldByDeletion ends each message.
const heldByDeletion = "; held by the API server (ValidatingAdmissionPolicy " + DeletionName + ")"

// cleaners delete what others have left: the garbage collector and the namespace controller, by both names that they
// may have. What they delete was judged before, as the deletion of its namespace, or as the owner that was added to it.
var cleaners = []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:namespace-controller"}

// protection is the value of one key of the table of deletions: the strictest action, the first policy by name that has
// it, and how many others protect the same.
type protection struct {
	action policyv1beta2.DeletionAction
	policy string
	others int
}

// deletions are the protections by key. The keys of different kinds of objects differ by their form:
//
//   - PACKAGE.NAMESPACE, as OLM truncates it for labels: the Subscriptions and ClusterServiceVersions of the package,
//     and the definitions with that label
//   - NAMESPACE: the OperatorGroups of the namespace of an operator, and that namespace
//   - namespace/NAME: another namespace with something that is protected
//   - NAMESPACE/NAME: a CatalogSource
type deletions struct {
	keys map[string]*protection
	// left are the policies that are more than the object holds.
	left []string
}

// keysOf are the keys of what a policy protects.
func keysOf(p *rules.OperatorPolicy) []string {
	keys := []string{"namespace/" + p.Namespace}
	if p.TargetNamespace != "" {
		keys = append(keys, p.TargetNamespace)
	}
	if component := olm.Component(p.Package, p.TargetNamespace); component != "" {
		keys = append(keys, component)
	}
	if p.Catalog.Name != "" && p.Catalog.Namespace != "" {
		keys = append(keys, p.Catalog.Namespace+"/"+p.Catalog.Name, "namespace/"+p.Catalog.Namespace)
	}
	for i := range keys {
		keys[i] = word(keys[i])
	}
	return keys
}

// deletions returns what the policies protect. A limit is shared as that of the other table is.
func (in *Input) deletions() *deletions {
	d := &deletions{keys: map[string]*protection{}}
	var entries []*entry
	seen := map[string]bool{}
	for _, p := range in.Policies {
		if p.Deletion == policyv1beta2.DeletionAllow || slices.Contains(in.ExcludedNamespaces, p.TargetNamespace) ||
			seen[p.Source()] {
			continue
		}
		seen[p.Source()] = true // those of every namespace come with each of them
		e := &entry{policy: p}
		for _, key := range keysOf(p) {
			e.rows = append(e.rows, key+" "+(&protection{action: p.Deletion, policy: e.key()}).row())
		}
		entries = append(entries, e)
	}
	size := 0
	for _, e := range fair(entries, rowsSize) {
		if size += rowsSize(e); size > maxTable {
			d.left = append(d.left, e.key())
			continue
		}
		for _, key := range keysOf(e.policy) {
			d.protect(key, protection{action: e.policy.Deletion, policy: e.key()})
		}
	}
	slices.Sort(d.left)
	return d
}

func rowsSize(e *entry) int { return len(quote(strings.Join(e.rows, "\n"))) }

// protect adds a protection to a key.
func (d *deletions) protect(key string, p protection) {
	known := d.keys[key]
	if known == nil {
		d.keys[key] = &p
		return
	}
	// Confirm precedes Deny
	strict := func(p *protection) int { return cmp.Compare(policyv1beta2.DeletionDeny, p.action) }
	if cmp.Or(cmp.Compare(strict(&p), strict(known)), cmp.Compare(p.policy, known.policy)) < 0 {
		known.action, known.policy = p.action, p.policy
	}
	known.others++
}

// row is "ACTION POLICY OTHERS".
func (p *protection) row() string { return fmt.Sprintf("%s %s %d", p.action, p.policy, p.others) }

func (d *deletions) lines() []line {
	rows := make(map[string][]string, len(d.keys))
	for key := range maps.Keys(d.keys) {
		rows[key] = []string{d.keys[key].row()}
	}
	return lines(rows)
}

// What an update of an object does that has others delete it, so that it is judged as a deletion: the garbage collector
// deletes what has an owner that does not exist, and OLM a copy without its original; without OLM's label a definition
// is not known to be an operator's, and with another package neither are Subscriptions and ClusterServiceVersions.
var (
	addsOwner = "object.metadata.?ownerReferences.orValue([]).exists(o, " +
		"!oldObject.metadata.?ownerReferences.orValue([]).exists(p, p.uid == o.uid))"
	becomesCopy = onCSV + " && " + copiedFrom("object") + " != ''"
	losesLabel  = onDefinition + " && oldObject.metadata.?labels.orValue({}).exists(k, k.startsWith('" +
		olm.ComponentLabelPrefix +
		"') && !(k in object.metadata.?labels.orValue({})))"
	changesPackage = onSubscription + " && object.?spec.?name != oldObject.?spec.?name || " + onCSV + " && " +
		packageOf("object") + " != " + packageOf("oldObject")
)

// packageOf is an expression for the package of a ClusterServiceVersion, by its own properties.
func packageOf(object string) string { return member(described(propertiesOf(object)), "packageName") }

const (
	onDefinition  = "request.resource.resource == 'customresourcedefinitions'"
	protectedName = "(" + onCluster + " ? '' : oldObject.metadata.namespace + '/') + oldObject.metadata.name"
	onCluster     = "!has(oldObject.metadata.namespace)"
)

// protectedKinds are the names in messages of the kinds that are protected, by resource.
var protectedKinds = map[string]string{"subscriptions": "subscription",
	"clusterserviceversions": "clusterserviceversion",
	"operatorgroups":         "operatorgroup", "catalogsources": "catalogsource", "operatorpolicies": "operatorpolicy",
	"namespaces":                "namespace",
	"customresourcedefinitions": "customresourcedefinition"}

// deletion returns the ValidatingAdmissionPolicy on deletions; nil if no policy restricts them. It is a policy of its
// own, so that what it costs is spent on deletions alone. Which operator an object belongs to is read from the object
// as it is stored, so that there is no moment at which something new is not protected (threats O65, O66).
func (in *Input) deletion(
	d *deletions,
) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	if len(d.keys) == 0 {
		return nil, nil
	}
	fail, equivalent, forbidden := admissionv1.Fail, admissionv1.Equivalent, metav1.StatusReasonForbidden
	meta := metav1.ObjectMeta{Name: DeletionName, Labels: in.Labels}
	table := shard("d", "k", d.lines())
	by := "' by OperatorPolicy ' + variables.row.split(' ')[1] + (variables.row.endsWith(' 0') ? '' : " +
		"' and ' + variables.row.split(' ')[2] + ' more')"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{NamespaceSelector: in.namespaces(),
				ObjectSelector: &metav1.LabelSelector{},
				MatchPolicy:    &equivalent, ResourceRules: protectedResources()},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "deletes", Expression: "request.operation == 'DELETE' || " + addsOwner + " || " + becomesCopy +
					" || " +
					losesLabel + " || " + changesPackage},
				{Name: "not-cleaning", Expression: "!(request.userInfo.username in " +
					quoteList(slices.Concat(in.opgate(), cleaners)) + ")"},
				{Name: "not-olm", Expression: "!(" + in.byOLM() + ")"},
				{Name: "not-deleted-before", Expression: "!has(oldObject.metadata.deletionTimestamp)"},
				{Name: "not-a-copy", Expression: "!(" + onCSV + ") || " + copiedFrom("oldObject") + " == ''"},
			},
			Variables: slices.Concat(table.variables, deletionVariables(&table)),
			Validations: []admissionv1.Validation{{
				Expression: "variables.row == ''",
				MessageExpression: kindText() + " + ' ' + " + protectedName +
					" + ': ' + (request.operation == 'DELETE' ? 'deleting it' : " +
					"'a change of its owners, labels or package, after which it may be deleted,') + " +
					"(variables.row.startsWith('Deny ') ? ' is not allowed' + " + by + " + ' (" +
					string(rules.RuleDeletionDenied) +
					"): to delete it, set spec.deletion of the policy to Allow first' : ' is not confirmed, as asked for' + " + by + " + ' (" +
					string(rules.RuleDeletionUnconfirmed) + "): to delete it, set its annotation " +
					policyv1beta2.DeleteConfirmedAnnotation +
					" to its UID first, ' + oldObject.metadata.uid) + " + impactText() + " + " + quote(heldByDeletion),
				Message: "deleting it is not allowed" + heldByDeletion,
				Reason:  &forbidden,
			}},
		},
	}
	return policy, &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: DeletionName,
			ValidationActions: in.actions()},
	}
}

// opgate is the user name that Opgate writes as, if it has one.
func (in *Input) opgate() []string {
	if in.Opgate == "" {
		return nil
	}
	return []string{in.Opgate}
}

// deletionVariables are the keys of an object, and the row that refuses its deletion, empty if none does.
func deletionVariables(table *shards) []admissionv1.Variable {
	const (
		on     = "request.resource.resource == "
		object = "oldObject.metadata.name"
		within = "oldObject.metadata.namespace"
		spec   = "oldObject.?spec.?"
	)
	// As olm.Component: an expression cannot trim a set of characters, so matches are replaced.
	component := func(pkg string) string {
		return "[" + pkg + "].filter(p, p != '').map(p, p + '.' + " + within +
			").map(c, size(c) <= 63 ? c : c.substring(0, 63))" +
			".map(c, c.find('^.*[^._-]'))"
	}
	return []admissionv1.Variable{
		{Name: "keys", Expression: "(" +
			on + "'subscriptions' ? " + component("string("+spec+"name.orValue(''))") + " : " +
			on + "'clusterserviceversions' ? " + component(packageOf("oldObject")) + " : " +
			on + "'operatorgroups' ? [string(" + within + ")] : " +
			on + "'catalogsources' ? [" + within + " + '/' + " + object + "] : " +
			on + "'namespaces' ? [string(" + object + "), 'namespace/' + " + object + "] : " +
			on + "'customresourcedefinitions' ? oldObject.metadata.?labels.orValue({}).map(l, l.startsWith('" +
			olm.ComponentLabelPrefix + "'), " +
			"l.substring(" + fmt.Sprint(len(olm.ComponentLabelPrefix)) + ")) : []).filter(k, k.matches('^[!-~]+$'))"},
		// A policy is judged by itself, so that one that was just changed to Allow can be deleted at once.
		{Name: "self", Expression: "[string(" + spec + "remediationAction.orValue('')).lowerAscii(), string(" + spec +
			"deletion.orValue(''))]"},
		{Name: "rows", Expression: "variables.keys.map(k, " + table.value() + ") + (" + on + "'operatorpolicies' && " +
			"!(variables.self[0] in ['', 'inform']) && !(variables.self[1] in ['', 'Allow']) ? " +
			"[(variables.self[1] == 'Confirm' ? 'Confirm ' : 'Deny ') + " + within + " + '/' + " + object +
			" + ' 0'] : [])"},
		{Name: "confirmed", Expression: "oldObject.metadata.?annotations[?" +
			quote(policyv1beta2.DeleteConfirmedAnnotation) +
			"].orValue('') == oldObject.metadata.uid"},
		{Name: "row", Expression: "(variables.rows.filter(r, r.startsWith('Deny ')) + variables.rows.filter(r, r.startsWith('Confirm ') && " +
			"!variables.confirmed) + [''])[0]"},
	}
}

// kindText is an expression for the kind of the object, as messages name it.
func kindText() string {
	var pairs []string
	for _, resource := range slices.Sorted(maps.Keys(protectedKinds)) {
		pairs = append(pairs, quote(resource)+": "+quote(protectedKinds[resource]))
	}
	return "{" + strings.Join(pairs, ", ") + "}[request.resource.resource]"
}

// impactText is an expression for the command that lists what depends on the object; empty where none does.
func impactText() string {
	const (
		on     = "request.resource.resource == "
		object = "oldObject.metadata.name"
		of     = " + ' -n ' + oldObject.metadata.namespace"
	)
	return "[" + on + "'subscriptions' || " + on + "'clusterserviceversions' ? " + object + of + " : " +
		onDefinition + " ? " + object + " : " + on + "'namespaces' ? '-n ' + " + object + " : " + on +
		"'operatorgroups' ? '-n ' + " +
		"oldObject.metadata.namespace : ''].map(a, a == '' ? '' : '; kubectl opgate impact ' + a + ' lists what depends on it')[0]"
}

// protectedResources are those of which deletions are judged, and updates that lead to one. Of the subresources only
// those of namespaces write metadata.
func protectedResources() []admissionv1.NamedRuleWithOperations {
	all := []admissionv1.NamedRuleWithOperations{
		of(olm.Group, "subscriptions", "clusterserviceversions", "operatorgroups", "catalogsources"),
		of(policyv1beta2.Group, "operatorpolicies"),
		of("apiextensions.k8s.io", "customresourcedefinitions"),
		of("", "namespaces", "namespaces/status", "namespaces/finalize"),
	}
	all[1].APIVersions = []string{policyv1beta2.Version} // spec.deletion is read; other versions are converted
	return all
}
