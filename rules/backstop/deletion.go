package backstop

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

// DeletionName is the name of the ValidatingAdmissionPolicy on deletions, and of its binding.
const DeletionName = "opgate-deletion"

// heldByDeletion ends each message.
const heldByDeletion = "; held by the API server (ValidatingAdmissionPolicy " + DeletionName + ")"

// cleaners delete what others have left: the garbage collector and the namespace controller, by both names that they
// may have. What they delete was judged before, as the deletion of its namespace, or as the owner that was added to it.
var cleaners = []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:namespace-controller"}

// protection is the value of one key of the table of deletions: the strictest action, the first policy or Constraint
// that has it, policies before Constraints and by name, and how many others protect the same.
type protection struct {
	action policyv1beta2.DeletionAction
	by     origin
	others int
}

// deletions are the protections by key. The keys of different kinds of objects differ by their form:
//
//   - PACKAGE.NAMESPACE, as OLM truncates it for labels: the Subscriptions and ClusterServiceVersions of the package,
//     and the definitions with that label
//   - package:PACKAGE: the same of the package in any namespace; for definitions also as far as the label has it
//   - everyOperator: the same of any package, and every CatalogSource
//   - NAMESPACE: the OperatorGroups of the namespace of an operator, and that namespace
//   - namespace/NAME: another namespace with something that is protected
//   - NAMESPACE/NAME: a CatalogSource
type deletions struct {
	keys map[string]*protection
	// left are the policies and Constraints that are more than the object holds.
	left []string
}

const (
	everyOperator = "*"
	anywhere      = "package:"
)

// part is what a policy protects, or a part of what a Constraint does.
type part struct {
	origin
	action policyv1beta2.DeletionAction
	keys   []string
}

// size is that of the rows of a part, in bytes.
func (p *part) size() int {
	row := (&protection{action: p.action, by: p.origin}).row()
	return len(quote(strings.Join(p.keys, " "+row+"\n") + " " + row))
}

func catalogKeys(c olm.Catalog) []string {
	if c.Name == "" || c.Namespace == "" {
		return nil
	}
	return []string{c.Namespace + "/" + c.Name, "namespace/" + c.Namespace}
}

// partOf returns what a policy protects.
func partOf(p *state.OperatorPolicy) *part {
	keys := append([]string{"namespace/" + p.Namespace}, catalogKeys(p.Catalog)...)
	if p.TargetNamespace != "" {
		keys = append(keys, p.TargetNamespace)
	}
	if component := olm.Component(p.Package, p.TargetNamespace); component != "" {
		keys = append(keys, component)
	}
	return &part{origin: originOf(p), action: p.Deletion, keys: words(keys)}
}

// partsOf returns what a Constraint protects: first that which needs no look at what is installed, then each namespace
// with an operator.
func (in *Input) partsOf(d *constraint.Definition) []*part {
	from := origin{name: d.Name}
	var keys []string
	if len(d.Deletion.Packages) == 0 {
		keys = append(keys, everyOperator)
	}
	for _, pkg := range d.Deletion.Packages {
		const shortest = ".n"
		// without a namespace, as a label has it that has no room for one
		keys = append(keys, anywhere+pkg, anywhere+strings.TrimSuffix(olm.Component(pkg, shortest[1:]), shortest))
	}
	for _, c := range d.Deletion.Catalogs {
		keys = append(keys, catalogKeys(c)...)
	}
	parts := []*part{{origin: from, action: d.Deletion.Action, keys: words(keys)}}
	for _, namespace := range slices.Sorted(maps.Keys(in.Operators)) {
		if !slices.Contains(in.ExcludedNamespaces, namespace) &&
			slices.ContainsFunc(in.Operators[namespace], d.Deletion.Of) {
			parts = append(parts, &part{origin: from, action: d.Deletion.Action, keys: words([]string{namespace})})
		}
	}
	return parts
}

// words returns keys as columns of a row, each once.
func words(keys []string) []string {
	for i := range keys {
		keys[i] = word(keys[i])
	}
	return sorted(keys)
}

// deletions returns what the policies and the Constraints protect. A limit is shared as that of the other table is.
func (in *Input) deletions() *deletions {
	d := &deletions{keys: map[string]*protection{}}
	var parts []*part
	seen := map[string]bool{}
	for _, p := range in.Policies {
		if p.Deletion == policyv1beta2.DeletionAllow || slices.Contains(in.ExcludedNamespaces, p.TargetNamespace) ||
			seen[p.Source()] {
			continue
		}
		seen[p.Source()] = true // those of every namespace come with each of them
		parts = append(parts, partOf(p))
	}
	for _, c := range in.Constraints {
		if c.Deletion != nil {
			parts = append(parts, in.partsOf(c)...)
		}
	}
	size := 0
	for _, p := range fair(parts, (*part).size) {
		if size += p.size(); size > maxTable {
			d.left = append(d.left, p.key())
			continue
		}
		for _, key := range p.keys {
			d.protect(key, protection{action: p.action, by: p.origin})
		}
	}
	slices.Sort(d.left)
	d.left = slices.Compact(d.left)
	return d
}

// protect adds a protection to a key.
func (d *deletions) protect(key string, p protection) {
	known := d.keys[key]
	if known == nil {
		d.keys[key] = &p
		return
	}
	// Confirm precedes Deny; the key of a policy has a slash, which the name of a Constraint has not.
	strict := func(p *protection) int { return cmp.Compare(policyv1beta2.DeletionDeny, p.action) }
	named := func(p *protection) int { return -strings.Count(p.by.key(), "/") }
	if cmp.Or(cmp.Compare(strict(&p), strict(known)), cmp.Compare(named(&p), named(known)),
		cmp.Compare(p.by.key(), known.by.key())) < 0 {
		known.action, known.by = p.action, p.by
	}
	known.others++
}

// row is "ACTION ORIGIN OTHERS".
func (p *protection) row() string { return fmt.Sprintf("%s %s %d", p.action, p.by.key(), p.others) }

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
	"constraints": "constraint", "namespaces": "namespace", "customresourcedefinitions": "customresourcedefinition"}

// deletion returns the ValidatingAdmissionPolicy on deletions; nil if nothing restricts them. It is a policy of its
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
	const byPolicy = "variables.row.split(' ')[1].contains('/')"
	by := "' by ' + (" + byPolicy + " ? 'OperatorPolicy ' : 'Constraint ') + variables.row.split(' ')[1] + " +
		"(variables.row.endsWith(' 0') ? '' : ' and ' + variables.row.split(' ')[2] + ' more')"
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
					"): to delete it, set spec.deletion' + (" + byPolicy +
					" ? ' of the policy' : '.action of the Constraint') + ' to Allow first' : " +
					"' is not confirmed, as asked for' + " + by + " + ' (" +
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
	operator := func(pkg string) string {
		return "[" + pkg + "].map(p, (p == '' ? [] : [p + '.' + " + within +
			"].map(c, size(c) <= 63 ? c : c.substring(0, 63)).map(c, c.find('^.*[^._-]')) + [" + quote(anywhere) +
			" + p]) + [" + quote(everyOperator) + "])[0]"
	}
	const labels = "variables.labels"
	return []admissionv1.Variable{
		{Name: "labels", Expression: "!(" + onDefinition + ") ? [] : oldObject.metadata.?labels.orValue({}).map(l, " +
			"l.startsWith('" + olm.ComponentLabelPrefix + "'), l.substring(" +
			fmt.Sprint(len(olm.ComponentLabelPrefix)) + "))"},
		// A label without room for the namespace is the package alone.
		{Name: "keys", Expression: "(" +
			on + "'subscriptions' ? " + operator("string("+spec+"name.orValue(''))") + " : " +
			on + "'clusterserviceversions' ? " + operator(packageOf("oldObject")) + " : " +
			on + "'operatorgroups' ? [string(" + within + ")] : " +
			on + "'catalogsources' ? [" + within + " + '/' + " + object + ", " + quote(everyOperator) + "] : " +
			on + "'namespaces' ? [string(" + object + "), 'namespace/' + " + object + "] : " +
			labels + " + " + labels + ".map(l, " + quote(anywhere) + " + l) + " + labels + ".map(l, l.contains('.'), " +
			quote(anywhere) + " + l.substring(0, l.lastIndexOf('.'))) + (size(" + labels + ") == 0 ? [] : [" +
			quote(everyOperator) + "])).filter(k, k.matches('^[!-~]+$'))"},
		// What protects is judged by itself, so that one that was just changed to Allow can be deleted at once.
		{Name: "self", Expression: "[" + on + "'operatorpolicies' ? (string(" + spec +
			"remediationAction.orValue('')).lowerAscii() in ['', 'inform'] || " + spec +
			"deletion.orValue('') == '' ? 'Allow' : string(oldObject.spec.deletion)) : " + on + "'constraints' && " +
			spec + "deletion.hasValue() ? string(oldObject.spec.deletion.?action.orValue('')) : 'Allow']" +
			".map(a, a in ['Allow', 'Confirm'] ? a : 'Deny')[0]"},
		{Name: "rows", Expression: "variables.keys.map(k, " + table.value() + ") + (variables.self == 'Allow' ? [] : " +
			"[variables.self + ' ' + " + protectedName + " + ' 0'])"},
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
		of(constraintv1.Group, "constraints"),
		of("apiextensions.k8s.io", "customresourcedefinitions"),
		of("", "namespaces", "namespaces/status", "namespaces/finalize"),
	}
	// spec.deletion is read; other versions are converted
	all[1].APIVersions, all[2].APIVersions = []string{policyv1beta2.Version}, []string{constraintv1.Version}
	return all
}
