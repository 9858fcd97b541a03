package backstop_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// deletion returns an edit that sets spec.deletion, and the catalog olm/hub.
func deletion(action policyv1beta2.DeletionAction) func(*spec) {
	return func(s *spec) {
		s.Deletion = action
		s.Subscription.Source, s.Subscription.SourceNamespace = "hub", "olm"
	}
}

// deletionServer judges by the policy on deletions alone.
func deletionServer(t testing.TB, policies ...*operatorpolicy.Policy) *apiServer {
	t.Helper()
	return deletionServerOf(t, backstop.Input{Policies: policies})
}

func deletionServerOf(t testing.TB, in backstop.Input) *apiServer {
	t.Helper()
	in.Features, in.AsWritten = everything, in.Operators == nil
	o := compile(in)
	if len(o.Unprotected) > 0 {
		t.Fatalf("nothing protects %v", o.Unprotected)
	}
	return newAPIServer(t, &parts{Validating: o.Deletion, ValidatingBinding: o.DeletionBinding})
}

const uid = "0c1f2a3b"

// stored is an object as the API server stores it; metadata adds to its own.
func stored(apiVersion, kind, namespace, name string, metadata object) object {
	m := object{"name": name, "uid": uid}
	if namespace != "" {
		m["namespace"] = namespace
	}
	maps.Copy(m, metadata)
	return object{"apiVersion": apiVersion, "kind": kind, "metadata": m}
}

func with(o object, field string, value any) object {
	changed := maps.Clone(o)
	changed[field] = value
	return changed
}

func subscriptionTo(namespace, pkg string, metadata object) object {
	return with(stored("operators.coreos.com/v1alpha1", "Subscription", namespace, "any", metadata), "spec",
		object{"name": pkg})
}

func csvFor(namespace, pkg string, metadata object) object {
	m := object{"annotations": object{"operatorframework.io/properties": `{"properties":[{"type":"olm.package","value":{"packageName":"` +
		pkg + `","version":"0.9.2"}}]}`}}
	maps.Copy(m, metadata)
	return stored("operators.coreos.com/v1alpha1", "ClusterServiceVersion", namespace, pkg+".v0.9.2", m)
}

func groupIn(namespace string) object {
	return stored("operators.coreos.com/v1", "OperatorGroup", namespace, "group", nil)
}

func catalogNamed(namespace, name string) object {
	return stored("operators.coreos.com/v1alpha1", "CatalogSource", namespace, name, nil)
}

func namespaceNamed(name string) object { return stored("v1", "Namespace", "", name, nil) }

func definitionOf(labels object) object {
	metadata := object{}
	if labels != nil {
		metadata["labels"] = labels
	}
	return stored("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "etcds.example.com", metadata)
}

func policyObject(action, deletion string) object {
	spec := object{"remediationAction": action}
	if deletion != "" {
		spec["deletion"] = deletion
	}
	return with(stored("policy.open-cluster-management.io/v1beta2", "OperatorPolicy", "policies", "etcd", nil), "spec",
		spec)
}

// conversionOf returns a policy in v1beta1, as the definition of another program has it, with what its annotation carries.
func conversionOf(policy object, carried string) object {
	policy["apiVersion"] = "policy.open-cluster-management.io/v1beta1"
	policy["metadata"].(object)["annotations"] = object{"opgate.io/conversion": carried}
	return policy
}

var (
	etcdLabel = object{"operators.coreos.com/etcd.shop": ""}
	withOwner = object{"ownerReferences": []any{object{"apiVersion": "v1", "kind": "ConfigMap", "name": "a",
		"uid": "b"}}}
)

// TestA1NothingThere: namespaces of an operator and of a catalog are protected while these exist, and no others (threat
// O78).
func TestA1NothingThere(t *testing.T) {
	kept := policy("etcd", "shop", "etcd", deletion(policyv1beta2.DeletionDeny))
	for _, c := range []struct {
		name    string
		in      backstop.Input
		refused bool
	}{
		{name: "control: both are there", refused: true, in: backstop.Input{Operators: map[string][]string{"shop": {"etcd"}},
			Catalogs: []olm.Catalog{{Namespace: "olm", Name: "hub"}}}},
		{name: "attack: neither", in: backstop.Input{Operators: map[string][]string{}}},
		{name: "attack: others", in: backstop.Input{Operators: map[string][]string{"shop": {"grafana"}},
			Catalogs: []olm.Catalog{{Namespace: "olm", Name: "other"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Policies = []*operatorpolicy.Policy{kept}
			s := deletionServerOf(t, c.in)
			for what, w := range map[string]write{
				"the OperatorGroup":            {resource: "operatorgroups", old: groupIn("shop")},
				"the namespace":                {resource: "namespaces", old: namespaceNamed("shop")},
				"the namespace of the catalog": {resource: "namespaces", old: namespaceNamed("olm")},
			} {
				w.user = "admin"
				if got := s.judge(t, w); (len(got.refused) > 0) != c.refused {
					t.Errorf("deleting %s: %v, want it refused: %t", what, got, c.refused)
				}
			}
			if got := s.judge(t, write{resource: "subscriptions", user: "admin", old: subscriptionTo("shop", "etcd", nil)}); len(got.refused) == 0 {
				t.Error("the Subscription is not protected")
			}
		})
	}
}

// TestDeletion: what belongs to a governed operator is not deleted, whatever it is and however it is tried, and what
// belongs to others is.
func TestDeletion(t *testing.T) {
	const (
		denied    = " is not allowed by OperatorPolicy policies/etcd (deletion/denied): to delete it, set spec.deletion of the policy to Allow first"
		deleting  = "deleting it" + denied
		disguised = "a change of its owners, labels or package, after which it may be deleted," + denied
	)
	s := deletionServer(t, policy("etcd", "shop", "etcd", deletion(policyv1beta2.DeletionDeny)),
		policy("other", "other", "etcd", nil))
	long := strings.Repeat("a", 60)
	for _, c := range []struct {
		name    string
		write   write
		refused string
	}{
		{name: "its Subscription, of any name", write: write{resource: "subscriptions",
			old: subscriptionTo("shop", "etcd", nil)},
			refused: "subscription shop/any: " + deleting},
		{name: "a Subscription to another package",
			write: write{resource: "subscriptions", old: subscriptionTo("shop", "grafana", nil)}},
		{name: "a Subscription to a package of a name that looks like a row",
			write: write{resource: "subscriptions", old: subscriptionTo("shop", "x\netcd.shop Deny", nil)}},
		{name: "a Subscription without a package", write: write{resource: "subscriptions",
			old: subscriptionTo("shop", "", nil)}},
		{name: "one in a namespace whose policy allows it",
			write: write{resource: "subscriptions", old: subscriptionTo("other", "etcd", nil)}},
		{name: "its ClusterServiceVersion", write: write{resource: "clusterserviceversions",
			old: csvFor("shop", "etcd", nil)},
			refused: "clusterserviceversion shop/etcd.v0.9.2: " + deleting},
		{name: "a copy", write: write{resource: "clusterserviceversions",
			old: csvFor("shop", "etcd", object{"labels": object{"olm.copiedFrom": "olm"}})}},
		{name: "the ClusterServiceVersion of another package",
			write: write{resource: "clusterserviceversions", old: csvFor("shop", "grafana", nil)}},
		{name: "the OperatorGroup", write: write{resource: "operatorgroups", old: groupIn("shop")},
			refused: "operatorgroup shop/group: " + deleting},
		{name: "the OperatorGroup of another namespace", write: write{resource: "operatorgroups", old: groupIn("olm")}},
		{name: "its catalog", write: write{resource: "catalogsources", old: catalogNamed("olm", "hub")},
			refused: "catalogsource olm/hub: " + deleting},
		{name: "another catalog", write: write{resource: "catalogsources", old: catalogNamed("shop", "hub")}},
		{name: "its namespace", write: write{resource: "namespaces", old: namespaceNamed("shop")},
			refused: "namespace shop: " + deleting},
		{name: "the namespace of the policy", write: write{resource: "namespaces", old: namespaceNamed("policies")},
			refused: "namespace policies: " + deleting},
		{name: "the namespace of the catalog", write: write{resource: "namespaces", old: namespaceNamed("olm")},
			refused: "namespace olm: " + deleting},
		{name: "another namespace", write: write{resource: "namespaces", old: namespaceNamed("other")}},
		{name: "its definition", write: write{resource: "customresourcedefinitions", old: definitionOf(etcdLabel)},
			refused: "customresourcedefinition etcds.example.com: " + deleting},
		{name: "a definition of another operator", write: write{resource: "customresourcedefinitions",
			old: definitionOf(object{"operators.coreos.com/etcd.other": ""})}},
		{name: "a definition of none", write: write{resource: "customresourcedefinitions", old: definitionOf(nil)}},
		{name: "the policy", write: write{resource: "operatorpolicies", old: policyObject("enforce", "Deny")},
			refused: "operatorpolicy policies/etcd: " + deleting},
		{name: "the policy after it was edited to Allow",
			write: write{resource: "operatorpolicies", old: policyObject("enforce", "Allow")}},
		{name: "a policy in v1beta1 of another program's definition", write: write{resource: "operatorpolicies",
			old: conversionOf(policyObject("enforce", ""), `{"minimumAge":"1h","deletion" : "Deny"}`)},
			refused: "operatorpolicy policies/etcd: " + deleting},
		{name: "one that allows it", write: write{resource: "operatorpolicies",
			old: conversionOf(policyObject("enforce", ""), `{"deletion":"Allow"}`)}},
		{name: "one with another field of that value", write: write{resource: "operatorpolicies",
			old: conversionOf(policyObject("enforce", ""), `{"reason":"\"deletion\":\"Deny\""}`)}},
		{name: "a policy without the field", write: write{resource: "operatorpolicies",
			old: policyObject("enforce", "")}},
		{name: "a policy that informs", write: write{resource: "operatorpolicies",
			old: policyObject("Inform", "Deny")}},
		{name: "an object that is deleted already", write: write{resource: "subscriptions",
			old: subscriptionTo("shop", "etcd", object{"deletionTimestamp": "2026-11-26T10:00:00Z"})}},
		{name: "OLM deletes", write: write{resource: "clusterserviceversions", user: olmUser,
			rights: []string{escalate}, old: csvFor("shop", "etcd", nil)}},
		{name: "a namesake of OLM without its rights deletes",
			write:   write{resource: "clusterserviceversions", user: olmUser, old: csvFor("shop", "etcd", nil)},
			refused: "clusterserviceversion shop/etcd.v0.9.2: " + deleting},
		{name: "Opgate deletes", write: write{resource: "subscriptions", user: opgateUser,
			old: subscriptionTo("shop", "etcd", nil)}},
		{name: "the garbage collector deletes", write: write{resource: "subscriptions",
			user: "system:serviceaccount:kube-system:generic-garbage-collector",
			old:  subscriptionTo("shop", "etcd", nil)}},
		{name: "the namespace controller deletes", write: write{resource: "operatorgroups",
			user: "system:serviceaccount:kube-system:namespace-controller",
			old:  groupIn("shop")}},
		{name: "a namesake of the garbage collector deletes",
			write: write{resource: "subscriptions", user: "system:serviceaccount:shop:generic-garbage-collector",
				old: subscriptionTo("shop", "etcd", nil)}, refused: "subscription shop/any: " + deleting},
		{name: "an annotation confirms nothing under Deny", write: write{resource: "subscriptions",
			old: subscriptionTo("shop", "etcd",
				object{"annotations": object{metakey.DeleteConfirmed: uid}})},
			refused: "subscription shop/any: " + deleting},
		{name: "an owner is added", write: write{resource: "subscriptions", old: subscriptionTo("shop", "etcd", nil),
			object: subscriptionTo("shop", "etcd", withOwner)},
			refused: "subscription shop/any: " + disguised},
		{name: "an owner is added to the namespace by its status",
			write: write{resource: "namespaces/status", old: namespaceNamed("shop"),
				object: stored("v1", "Namespace", "", "shop", withOwner)}, refused: "namespace shop: " + disguised},
		{name: "an owner was there before", write: write{resource: "subscriptions",
			old: subscriptionTo("shop", "etcd", withOwner), object: subscriptionTo("shop", "etcd", withOwner)}},
		{name: "an owner is removed", write: write{resource: "subscriptions",
			old: subscriptionTo("shop", "etcd", withOwner), object: subscriptionTo("shop", "etcd", nil)}},
		{name: "OLM adds an owner", write: write{resource: "clusterserviceversions", user: olmUser,
			rights: []string{escalate}, old: csvFor("shop", "etcd", nil),
			object: csvFor("shop", "etcd", withOwner)}},
		{name: "an annotation is added", write: write{resource: "subscriptions",
			old:    subscriptionTo("shop", "etcd", nil),
			object: subscriptionTo("shop", "etcd", object{"annotations": object{"a": "b"}})}},
		{name: "a ClusterServiceVersion is made a copy",
			write: write{resource: "clusterserviceversions", old: csvFor("shop", "etcd", nil),
				object: csvFor("shop", "etcd", object{"labels": object{"olm.copiedFrom": "gone"}})},
			refused: "clusterserviceversion shop/etcd.v0.9.2: " + disguised},
		{name: "a Subscription is changed to another package",
			write: write{resource: "subscriptions", old: subscriptionTo("shop", "etcd", nil),
				object: subscriptionTo("shop", "grafana", nil)}, refused: "subscription shop/any: " + disguised},
		{name: "a ClusterServiceVersion is changed to another package",
			write: write{resource: "clusterserviceversions", old: csvFor("shop", "etcd", nil),
				object: csvFor("shop", "etcd", object{"annotations": object{"operatorframework.io/properties": "{}"}})},
			refused: "clusterserviceversion shop/etcd.v0.9.2: " + disguised},
		{name: "a definition loses the label of its operator",
			write: write{resource: "customresourcedefinitions", old: definitionOf(etcdLabel),
				object: definitionOf(nil)},
			refused: "customresourcedefinition etcds.example.com: " + disguised},
		{name: "a definition gets a label", write: write{resource: "customresourcedefinitions",
			old:    definitionOf(etcdLabel),
			object: definitionOf(object{"operators.coreos.com/etcd.shop": "", "a": "b"})}},
		{name: "names that are too long for a label",
			write: write{resource: "subscriptions", old: subscriptionTo("shop", long+long, nil)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.write.user == "" {
				c.write.user = "admin"
			}
			wantDeletion(t, s, c.write, c.refused)
		})
	}
}

// TestE1OwnerExchanged: an owner is compared as a whole, since the garbage collector deletes what has one that it does
// not find as the reference has it, whatever its uid (attacks-3, e1). OLM deletes what is in phase Deleting.
func TestE1OwnerExchanged(t *testing.T) {
	s := deletionServer(t, policy("etcd", "shop", "etcd", deletion(policyv1beta2.DeletionDeny)))
	const denied = " is not allowed by OperatorPolicy policies/etcd (deletion/denied): to delete it, set spec.deletion of the policy to Allow first"
	owned := func(change object) object {
		owner := object{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}
		maps.Copy(owner, change)
		return subscriptionTo("shop", "etcd", object{"ownerReferences": []any{owner}})
	}
	for name, change := range map[string]object{"kind": {"kind": "Secret"}, "name": {"name": "gone"},
		"version": {"apiVersion": "example.com/v1"}, "uid": {"uid": "c"}} {
		t.Run(name, func(t *testing.T) {
			wantDeletion(t, s, write{resource: "subscriptions", user: "admin", old: owned(nil), object: owned(change)},
				"subscription shop/any: a change of its owners, labels or package, after which it may be deleted,"+denied)
		})
	}
	wantDeletion(t, s, write{resource: "subscriptions", user: "admin", old: owned(nil),
		object: owned(object{"controller": true})}, "")
	phase := func(phase string) object { return with(csvFor("shop", "etcd", nil), "status", object{"phase": phase}) }
	status := write{resource: "clusterserviceversions/status", user: "admin", old: phase("Succeeded"), object: phase("Deleting")}
	wantDeletion(t, s, status, "clusterserviceversion shop/etcd.v0.9.2: status.phase Deleting"+denied)
	status.user, status.rights = olmUser, []string{escalate}
	wantDeletion(t, s, status, "")
	status = write{resource: "clusterserviceversions/status", user: "admin", old: phase("Succeeded"), object: phase("Failed")}
	wantDeletion(t, s, status, "")
}

// wantDeletion checks the refusal by the policy on deletions; "" for a write that it admits.
func wantDeletion(t *testing.T, s *apiServer, w write, refused string) {
	t.Helper()
	got := s.judge(t, w)
	if len(got.failed) > 0 {
		t.Fatalf("an expression fails: %q", got.failed)
	}
	said := ""
	if len(got.refused) > 0 {
		said = strings.TrimSuffix(got.refused[0], "; held by the API server (ValidatingAdmissionPolicy "+
			backstop.DeletionName+")")
	}
	if want := refused; said != want {
		t.Errorf("it says\n%s\nwant\n%s", said, want)
	}
}

// TestDeletionConfirmed: a confirmation counts for the object that it was written for.
func TestDeletionConfirmed(t *testing.T) {
	s := deletionServer(t, policy("etcd", "shop", "etcd", deletion(policyv1beta2.DeletionConfirm)))
	const asks = "subscription shop/any: deleting it is not confirmed, as asked for by OperatorPolicy policies/etcd (deletion/unconfirmed): " +
		"to delete it, set its annotation opgate.io/delete-confirmed to its UID first, " + uid
	confirmed := func(value string) object {
		return object{"annotations": object{metakey.DeleteConfirmed: value}}
	}
	for _, c := range []struct {
		name     string
		metadata object
		refused  string
	}{
		{name: "no annotation", refused: asks},
		{name: "another UID", metadata: confirmed("0c1f2a3c"), refused: asks},
		{name: "a word", metadata: confirmed("true"), refused: asks},
		{name: "its UID", metadata: confirmed(uid)},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantDeletion(t, s, write{resource: "subscriptions", user: "admin",
				old: subscriptionTo("shop", "etcd", c.metadata)}, c.refused)
		})
	}
}

// TestDeletionByTwo: of two policies that protect an object the stricter one is named.
func TestDeletionByTwo(t *testing.T) {
	s := deletionServer(t, policy("a", "shop", "etcd", deletion(policyv1beta2.DeletionConfirm)),
		policy("b", "store", "grafana", deletion(policyv1beta2.DeletionDeny)),
		policy("c", "store", "prometheus", deletion(policyv1beta2.DeletionDeny)))
	wantDeletion(t, s, write{resource: "catalogsources", user: "admin", old: catalogNamed("olm", "hub")},
		"catalogsource olm/hub: deleting it is not allowed "+
			"by OperatorPolicy policies/b and 2 more (deletion/denied): to delete it, set spec.deletion of the policy to Allow first")
	both := definitionOf(object{"operators.coreos.com/etcd.shop": "", "operators.coreos.com/grafana.store": ""})
	wantDeletion(t, s, write{resource: "customresourcedefinitions", user: "admin", old: both},
		"customresourcedefinition etcds.example.com: deleting it is not "+
			"allowed by OperatorPolicy policies/b (deletion/denied): to delete it, set spec.deletion of the policy to Allow first")
}

// TestDeletionOfLongNames: OLM truncates the names of its labels, and the names of Subscriptions are not truncated.
func TestDeletionOfLongNames(t *testing.T) {
	pkg, namespace := strings.Repeat("a", 62), strings.Repeat("b", 40)
	s := deletionServer(t, policy("etcd", namespace, pkg, deletion(policyv1beta2.DeletionDeny)))
	const denied = ": deleting it is not allowed by OperatorPolicy policies/etcd (deletion/denied): to delete it, set spec.deletion of the policy to Allow first"
	wantDeletion(t, s, write{resource: "subscriptions", user: "admin", old: subscriptionTo(namespace, pkg, nil)},
		"subscription "+namespace+"/any"+denied)
	wantDeletion(t, s, write{resource: "customresourcedefinitions", user: "admin",
		old: definitionOf(object{"operators.coreos.com/" + pkg: ""})},
		"customresourcedefinition etcds.example.com"+denied)
}

// TestDeletionNotNeeded: without a policy that restricts deletions there is no object.
func TestDeletionNotNeeded(t *testing.T) {
	informs := policy("etcd", "shop", "etcd",
		func(s *spec) { s.Deletion, s.RemediationAction = policyv1beta2.DeletionDeny, policyv1beta2.Inform })
	o := compile(backstop.Input{Features: everything,
		Policies: []*operatorpolicy.Policy{policy("a", "shop", "etcd", deletion(policyv1beta2.DeletionAllow)), informs}})
	if o.Deletion != nil || o.DeletionBinding != nil || len(o.All) != 6 {
		t.Errorf("there are %d objects", len(o.All))
	}
}

// TestDeletionBounds: the object stays below what the API server stores, and a namespace of policies that needs no more
// than its share keeps its protection, whatever others write (threat O51).
func TestDeletionBounds(t *testing.T) {
	var policies []*operatorpolicy.Policy
	add := func(namespace, name, of string) {
		op := policy(name, of, "etcd", deletion(policyv1beta2.DeletionDeny)).Object.DeepCopy()
		op.Namespace = namespace
		policies = append(policies, rules.NewOperatorPolicy(op))
	}
	long := strings.Repeat("x", 200)
	for i := range 5_000 {
		add("hostile", fmt.Sprintf("etcd-%05d-%s", i, long), fmt.Sprintf("shop-with-a-long-name-%05d", i))
	}
	add("policies", "etcd", "shop")
	o := compile(backstop.Input{Features: everything, Policies: policies})
	if len(o.Unprotected) == 0 || slices.Contains(names(o.Unprotected), "policies/etcd") {
		t.Fatalf("%d policies are not protected", len(o.Unprotected))
	}
	if size := o.Deletion.Size(); size > 5<<18 {
		t.Errorf("the object has %d bytes", size)
	}
	s := newAPIServer(t, &parts{Validating: o.Deletion, ValidatingBinding: o.DeletionBinding})
	got := s.judge(t, write{resource: "subscriptions", user: "admin", old: subscriptionTo("shop", "etcd", nil)})
	if len(got.failed) > 0 || len(got.refused) != 1 {
		t.Errorf("%+v, want a refusal", got)
	}
}

// protects returns a Constraint on deletions of the operators of some packages, of all if there are none.
func protects(name string, action policyv1beta2.DeletionAction, packages ...string) *constraint.Definition {
	c := &constraintv1.Constraint{}
	c.Name = name
	c.Spec.Deletion = &constraintv1.ConstraintDeletion{Action: action, Packages: packages}
	return rules.NewDefinition(c, nil)
}

func constraintObject(spec object) object {
	return with(stored("operators.coreos.com/v1", "Constraint", "", "keep", nil), "spec", spec)
}

const deniedByConstraint = ": deleting it is not allowed by Constraint keep (deletion/denied): " +
	"to delete it, set spec.deletion.action of the Constraint to Allow first"

// TestDeletionByConstraint: the operators of a package are not deleted in any namespace, also not those that are not
// known to be installed, and others are.
func TestDeletionByConstraint(t *testing.T) {
	keep := protects("keep", policyv1beta2.DeletionDeny, "etcd")
	keep.Deletion.Catalogs = []olm.Catalog{{Namespace: "olm", Name: "hub"}}
	s := deletionServerOf(t, backstop.Input{Constraints: []*constraint.Definition{keep},
		Operators: map[string][]string{"shop": {"etcd", "grafana"}, "store": {"", "grafana"},
			"apart": {"etcd"}},
		ExcludedNamespaces: []string{"apart"}})
	long := strings.Repeat("e", 63)
	for _, c := range []struct {
		name     string
		resource string
		old      object
		refused  string
	}{
		{name: "a Subscription", resource: "subscriptions", old: subscriptionTo("shop", "etcd", nil),
			refused: "subscription shop/any"},
		{name: "a Subscription in a namespace of which nothing is known", resource: "subscriptions",
			old: subscriptionTo("new", "etcd", nil), refused: "subscription new/any"},
		{name: "a Subscription to another package", resource: "subscriptions", old: subscriptionTo("shop", "grafana", nil)},
		{name: "a package whose name begins alike", resource: "subscriptions", old: subscriptionTo("shop", "etcd.shop", nil)},
		{name: "a ClusterServiceVersion", resource: "clusterserviceversions", old: csvFor("new", "etcd", nil),
			refused: "clusterserviceversion new/etcd.v0.9.2"},
		{name: "that of another package", resource: "clusterserviceversions", old: csvFor("shop", "grafana", nil)},
		{name: "that of no known package", resource: "clusterserviceversions",
			old: csvFor("shop", "etcd", object{"annotations": object{}})},
		{name: "a copy", resource: "clusterserviceversions",
			old: csvFor("shop", "etcd", object{"labels": object{"olm.copiedFrom": "olm"}})},
		{name: "an OperatorGroup beside it", resource: "operatorgroups", old: groupIn("shop"),
			refused: "operatorgroup shop/group"},
		{name: "an OperatorGroup elsewhere", resource: "operatorgroups", old: groupIn("store")},
		{name: "a namespace with it", resource: "namespaces", old: namespaceNamed("shop"), refused: "namespace shop"},
		{name: "a namespace without it", resource: "namespaces", old: namespaceNamed("store")},
		{name: "a namespace that is excluded", resource: "namespaces", old: namespaceNamed("apart")},
		{name: "a catalog that is named", resource: "catalogsources", old: catalogNamed("olm", "hub"),
			refused: "catalogsource olm/hub"},
		{name: "the namespace of one", resource: "namespaces", old: namespaceNamed("olm"), refused: "namespace olm"},
		{name: "another catalog", resource: "catalogsources", old: catalogNamed("shop", "hub")},
		{name: "a definition", resource: "customresourcedefinitions",
			old:     definitionOf(object{"operators.coreos.com/etcd.anywhere": ""}),
			refused: "customresourcedefinition etcds.example.com"},
		{name: "one of two operators", resource: "customresourcedefinitions",
			old:     definitionOf(object{"operators.coreos.com/etcd.a": "", "operators.coreos.com/grafana.b": ""}),
			refused: "customresourcedefinition etcds.example.com"},
		{name: "a definition of another operator", resource: "customresourcedefinitions",
			old: definitionOf(object{"operators.coreos.com/grafana.shop": ""})},
		{name: "a label that has no room for the namespace", resource: "customresourcedefinitions",
			old: definitionOf(object{"operators.coreos.com/" + long: ""})},
		{name: "itself", resource: "constraints",
			old:     constraintObject(object{"deletion": object{"action": "Deny", "packages": []any{"etcd"}}}),
			refused: "constraint keep"},
		{name: "itself, with a value that is not known", resource: "constraints",
			old: constraintObject(object{"deletion": object{}}), refused: "constraint keep"},
		{name: "itself after it was edited to Allow", resource: "constraints",
			old: constraintObject(object{"deletion": object{"action": "Allow"}})},
		{name: "a Constraint that restricts no deletions", resource: "constraints", old: constraintObject(object{})},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.refused != "" {
				c.refused += deniedByConstraint
			}
			wantDeletion(t, s, write{resource: c.resource, user: "admin", old: c.old}, c.refused)
		})
	}
	t.Run("OLM deletes one that it has replaced", func(t *testing.T) {
		wantDeletion(t, s, write{resource: "clusterserviceversions", user: olmUser, rights: []string{escalate},
			old: csvFor("shop", "etcd", nil)}, "")
	})
	t.Run("an owner is added to it", func(t *testing.T) {
		const disguised = ": a change of its owners, labels or package, after which it may be deleted, is not allowed"
		owned := constraintObject(object{"deletion": object{"action": "Deny"}})
		owned["metadata"] = with(owned["metadata"].(object), "ownerReferences", withOwner["ownerReferences"])
		wantDeletion(t, s, write{resource: "constraints", user: "admin",
			old: constraintObject(object{"deletion": object{"action": "Deny"}}), object: owned},
			"constraint keep"+strings.Replace(deniedByConstraint, ": deleting it is not allowed", disguised, 1))
	})
}

// TestDeletionOfEveryOperator: without packages a Constraint protects whatever OLM has installed, and every catalog.
func TestDeletionOfEveryOperator(t *testing.T) {
	s := deletionServerOf(t, backstop.Input{
		Constraints: []*constraint.Definition{protects("keep", policyv1beta2.DeletionDeny)},
		Operators:   map[string][]string{"shop": {""}}})
	for _, c := range []struct {
		resource string
		old      object
		refused  string
	}{
		{resource: "subscriptions", old: subscriptionTo("new", "grafana", nil), refused: "subscription new/any"},
		{resource: "clusterserviceversions", old: csvFor("new", "grafana", object{"annotations": object{}}),
			refused: "clusterserviceversion new/grafana.v0.9.2"},
		{resource: "clusterserviceversions",
			old: csvFor("new", "grafana", object{"labels": object{"olm.copiedFrom": "olm"}})},
		{resource: "catalogsources", old: catalogNamed("any", "any"), refused: "catalogsource any/any"},
		{resource: "customresourcedefinitions", old: definitionOf(object{"operators.coreos.com/grafana.new": ""}),
			refused: "customresourcedefinition etcds.example.com"},
		{resource: "customresourcedefinitions", old: definitionOf(object{"a": "b"})},
		{resource: "operatorgroups", old: groupIn("shop"), refused: "operatorgroup shop/group"},
		{resource: "namespaces", old: namespaceNamed("shop"), refused: "namespace shop"},
		{resource: "namespaces", old: namespaceNamed("new")},
	} {
		if c.refused != "" {
			c.refused += deniedByConstraint
		}
		wantDeletion(t, s, write{resource: c.resource, user: "admin", old: c.old}, c.refused)
	}
}

// TestDeletionByConstraintOfLongNames: a label that has no room for the namespace, or a part of the package, is known.
func TestDeletionByConstraintOfLongNames(t *testing.T) {
	for size := 58; size <= 64; size++ {
		pkg := strings.Repeat("a", size)
		s := deletionServerOf(t, backstop.Input{
			Constraints: []*constraint.Definition{protects("keep", policyv1beta2.DeletionDeny, pkg)}})
		for _, namespace := range []string{"b", strings.Repeat("b", 40)} {
			label := "operators.coreos.com/" + olm.Component(pkg, namespace)
			wantDeletion(t, s, write{resource: "customresourcedefinitions", user: "admin",
				old: definitionOf(object{label: ""})}, "customresourcedefinition etcds.example.com"+deniedByConstraint)
			wantDeletion(t, s, write{resource: "subscriptions", user: "admin",
				old: subscriptionTo(namespace, pkg, nil)}, "subscription "+namespace+"/any"+deniedByConstraint)
		}
	}
}

// TestDeletionByConstraintAndPolicy: the stricter one is named, and a policy where both are as strict.
func TestDeletionByConstraintAndPolicy(t *testing.T) {
	confirmed := object{"annotations": object{metakey.DeleteConfirmed: uid}}
	const byPolicy = ": deleting it is not allowed by OperatorPolicy policies/etcd (deletion/denied): " +
		"to delete it, set spec.deletion of the policy to Allow first"
	for _, c := range []struct {
		policy, constraint policyv1beta2.DeletionAction
		metadata           object
		refused            string
	}{
		{policy: policyv1beta2.DeletionConfirm, constraint: policyv1beta2.DeletionDeny, metadata: confirmed,
			refused: deniedByConstraint},
		{policy: policyv1beta2.DeletionDeny, constraint: policyv1beta2.DeletionConfirm, metadata: confirmed,
			refused: byPolicy},
		{policy: policyv1beta2.DeletionDeny, constraint: policyv1beta2.DeletionDeny, refused: byPolicy},
		{policy: policyv1beta2.DeletionAllow, constraint: policyv1beta2.DeletionDeny, refused: deniedByConstraint},
		{policy: policyv1beta2.DeletionConfirm, constraint: policyv1beta2.DeletionConfirm, metadata: confirmed},
		{policy: policyv1beta2.DeletionAllow, constraint: policyv1beta2.DeletionConfirm,
			refused: ": deleting it is not confirmed, as asked for by Constraint keep (deletion/unconfirmed): " +
				"to delete it, set its annotation opgate.io/delete-confirmed to its UID first, " + uid},
	} {
		s := deletionServerOf(t, backstop.Input{
			Policies:    []*operatorpolicy.Policy{policy("etcd", "shop", "etcd", deletion(c.policy))},
			Constraints: []*constraint.Definition{protects("keep", c.constraint, "etcd")},
			Operators:   map[string][]string{"shop": {"etcd"}}})
		for _, w := range []write{{resource: "subscriptions", old: subscriptionTo("shop", "etcd", c.metadata)},
			{resource: "namespaces", old: stored("v1", "Namespace", "", "shop", c.metadata)}} {
			w.user = "admin"
			refused, name := c.refused, "subscription shop/any"
			if w.resource == "namespaces" {
				name = "namespace shop" // both protect the same key
				refused = strings.Replace(refused, " (deletion/denied)", othersOf(c.policy, c.constraint), 1)
				refused = strings.Replace(refused, " (deletion/unconfirmed)", othersOf(c.policy, c.constraint), 1)
			}
			if refused != "" {
				refused = name + refused
			}
			wantDeletion(t, s, w, refused)
		}
	}
}

// othersOf is the part of a refusal that counts another one that protects the same, and its rule.
func othersOf(policy, constraint policyv1beta2.DeletionAction) string {
	rule, more := " (deletion/unconfirmed)", " and 1 more"
	if policy == policyv1beta2.DeletionDeny || constraint == policyv1beta2.DeletionDeny {
		rule = " (deletion/denied)"
	}
	if policy == policyv1beta2.DeletionAllow {
		more = ""
	}
	return more + rule
}

// TestDeletionByConstraintBounds: operators in very many namespaces take no protection from the policies of a
// namespace, and none from Subscriptions and ClusterServiceVersions.
func TestDeletionByConstraintBounds(t *testing.T) {
	in := backstop.Input{Features: everything, Operators: map[string][]string{"shop": {"etcd"}},
		Policies:    []*operatorpolicy.Policy{policy("etcd", "shop", "etcd", deletion(policyv1beta2.DeletionDeny))},
		Constraints: []*constraint.Definition{protects("keep", policyv1beta2.DeletionDeny)}}
	for i := range 40_000 {
		in.Operators[fmt.Sprintf("hostile-with-a-long-name-%05d", i)] = []string{"etcd"}
	}
	o := compile(in)
	if !slices.Equal(names(o.Unprotected), []string{"keep"}) {
		t.Fatalf("not protected are %v", o.Unprotected)
	}
	if size := o.Deletion.Size(); size > 5<<18 {
		t.Errorf("the object has %d bytes", size)
	}
	s := newAPIServer(t, &parts{Validating: o.Deletion, ValidatingBinding: o.DeletionBinding})
	for _, w := range []write{{resource: "subscriptions", old: subscriptionTo("anywhere", "etcd", nil)},
		{resource: "operatorgroups", old: groupIn("shop")},
		{resource: "operatorgroups", old: groupIn("hostile-with-a-long-name-00001")}} {
		w.user = "admin"
		if got := s.judge(t, w); len(got.failed) > 0 || len(got.refused) != 1 {
			t.Errorf("%s: %+v, want a refusal", w.resource, got)
		}
	}
}
