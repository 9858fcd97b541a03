package metakey

// Writer is who may write a key so that it counts.
type Writer string

const (
	// Opgate writes the key alone, or OLM does: what others write is refused, or counts for nothing.
	Opgate Writer = "Opgate alone"
	OLM    Writer = "OLM alone"
	// Asked is a user with the right that Why names.
	Asked Writer = "with a right"
	// Anyone is every user who may write the object.
	Anyone Writer = "anyone"
)

// Key is an annotation or a label that is read.
type Key struct {
	// Name is the key, or ends in a dot or a slash, and begins one.
	Name string
	// On are the resources, as RBAC has them, of the objects on which it is read; empty for what is in plans, in
	// bundles and in catalogs only.
	On []string
	By Writer
	// Why is the right that By needs, what keeps the key, or why no user gains by it; Test shows that.
	Why, Test string
	// Kept has static policies compare the key on all objects that they keep: Opgate takes orders from it.
	Kept bool
}

// Kept returns the names of the keys that static policies compare.
func Kept() []string {
	var names []string
	for _, k := range Table {
		if k.Kept {
			names = append(names, k.Name)
		}
	}
	return names
}

const (
	override = "the verb `override` on each policy and Constraint that refuses the write"
	approve  = "the verb `approve` on each policy that holds the change"
	rotation = "orders of a rotation: who may write Secrets of Opgate's namespace has its CA; [static policies](static-policies.md) keep it"
	policy   = "is read with the spec: who may write the policy; static policies keep it with `--keep-policies`"
	unpacked = "[the API server](backstop.md#unpacked-bundles) refuses it for all others, on ConfigMaps that have an unpacked bundle"
	harmless = "names what made an object; it is found by its owner, and suspended by the Policy, without it"
	offered  = "comes with what a catalog offers: Constraints decide which catalogs may be"
	cluster  = "who may write it can write the definition, or is cluster admin; on those of Opgate static policies keep it"
)

// Table has all keys, but for those of namespaces and ClusterServiceVersions that Constraints name.
var Table = []Key{
	{OverrideReason, []string{"installplans"}, Asked, override, "TestScenarios", false},
	{OverrideExpires, []string{"installplans"}, Anyone,
		"does nothing without an override, which keeps the end that it was approved with", "TestScenarios", false},
	{Consent, []string{"installplans"}, Asked, approve, "TestConsentByAnnotation", false},
	{ConsentBy, []string{"installplans"}, Asked, approve, "TestConsentByAnnotation", false},
	{ConsentExpires, []string{"installplans"}, Asked, approve, "TestConsentByAnnotation", false},
	{VirtualOperator, []string{"clusterserviceversions"}, Opgate,
		"`csv/virtual-operator` refuses it for all others", "TestCSVNamedAsAttacks", false},
	{Verified, []string{"policies", "operatorpolicies"}, Opgate, "it is signed, for one spec, namespace and name", "TestB2Mark", true},
	{Record, []string{"configmaps"}, Anyone, "is for administrators who look for records; these are found by name", "TestReconcile", false},
	{UnreviewedInstalls, []string{"leases"}, Anyone,
		"of Opgate's namespace: what is stored is reported again, and only the report can be forged", "TestA4Escapes", false},
	{OmittedResults, []string{"reports"}, Anyone, "is written again whenever it differs", "TestReports", false},
	{RequestedApproval, []string{"subscriptions"}, Anyone,
		"asks for what a user may ask for: policies decide", "TestO8NothingBorrowed", false},
	{PolicyFields, []string{"subscriptions"}, Anyone, "has a policy remove fields that the user may remove", "TestO8NothingBorrowed", false},
	{Managed, []string{"subscriptions"}, Anyone, "has a policy delete a Subscription that the user may delete", "TestReconciler", false},
	{ResyncRequested, []string{"subscriptions"}, Anyone, "is written, and read by nothing", "TestReconciler", false},
	{EarlierResync, []string{"subscriptions"}, Anyone, "is removed, and read by nothing", "TestReconciler", false},
	{DeleteConfirmed, []string{"subscriptions", "catalogsources"}, Anyone,
		"confirms a deletion, which needs the right to delete and, with `Deny`, is refused all the same", "TestDeletionConfirmed", false},
	{Ungoverned, []string{"namespaces"}, Anyone,
		"is about operators that no policy governs, which OLM alone would install", "TestJudgeApproval", false},
	{VirtualOperatorNamespaces, []string{"constraints"}, Anyone, policy, "TestStaticPolicies", true},
	{Pending, []string{"operatorpolicies", "constraints"}, Anyone,
		"only holds more; a Policy suspends without it; static policies keep it with `--keep-policies`", "TestStaticPolicies", true},
	{Conversion, []string{"operatorpolicies"}, Anyone, policy, "TestStaticPolicies", true},
	{DisableTemplates, []string{"operatorpolicies"}, Anyone, policy, "TestStaticPolicies", true},
	{ClusterName, []string{"policies", "operatorpolicies"}, Anyone,
		"is read by templates: who may write the policy; static policies keep it with `--keep-policies`", "TestStaticPolicies", true},
	{PlainClusterName, []string{"policies"}, Anyone, policy, "TestStaticPolicies", true},
	{ClusterNamespace, []string{"operatorpolicies"}, Anyone, harmless, "TestCreatedBy", false},
	{PlainClusterNamespace, []string{"operatorpolicies"}, Anyone, harmless, "TestCreatedBy", false},
	{Policy, []string{"operatorpolicies"}, Anyone, harmless, "TestCreatedBy", false},
	{HubError, nil, Anyone, "is in `spec` of a Policy", "TestDependency", false},
	{PolicyType, []string{"customresourcedefinitions"}, Anyone, cluster, "TestStaticPolicies", true},
	{Version, []string{"customresourcedefinitions", "validatingwebhookconfigurations"}, Anyone, cluster, "TestStaticPolicies", true},
	{InjectedCA, []string{"customresourcedefinitions", "validatingwebhookconfigurations"}, Anyone, cluster, "TestStaticPolicies", true},
	{RotateCA, []string{"secrets"}, Anyone, rotation, "TestStaticPolicies", true},
	{RotatedCA, []string{"secrets"}, Anyone, rotation, "TestStaticPolicies", true},
	{NextCAPublished, []string{"secrets"}, Anyone, rotation, "TestStaticPolicies", true},
	{CARetire, []string{"secrets"}, Anyone, rotation, "TestStaticPolicies", true},
	{ManagedBy, []string{"reports"}, Anyone, "an object that has lost it is found by its owner", "TestReports", false},
	{LastApplied, []string{"operatorpolicies"}, Anyone,
		"decides which of two contradicting forms of `v1beta1` counts, both of which the user writes", "TestConvert", false},
	{NamespaceName, []string{"namespaces"}, Anyone, "is set by the API server, and cannot be changed", "TestG12NamespaceLabels", false},
	{CopiedFrom, []string{"clusterserviceversions"}, OLM,
		"of others it is judged as an installation, or as a deletion", "TestA10CopyMadeReal", false},
	{Properties, []string{"clusterserviceversions"}, OLM, "`csv/frozen` and `bundle/*` judge it", "TestCSVNamedAsAttacks", false},
	{OperatorNamespace, []string{"clusterserviceversions"}, Anyone,
		"a copy is compared with its original", "TestA7StrangerIsNoInstallation", false},
	{GeneratedBy, []string{"subscriptions"}, Anyone, "counts with a plan that runs and has this Subscription", "TestScenarios", false},
	{CatalogSource, []string{"pods"}, Anyone, "who may create pods beside a catalog: the digests of all of them count", "TestMovedTag", false},
	{ServiceHash, []string{"services"}, Anyone, "who may write Services beside a catalog: type, selector and port count", "TestH1CatalogService", false},
	{OLMManaged, []string{"configmaps"}, OLM, unpacked, "TestUnpacked", false},
	{ContentEncoding, []string{"configmaps"}, OLM, unpacked, "TestUnpacked", false},
	{ComponentPrefix, []string{"customresourcedefinitions"}, Anyone,
		"is no evidence of an operator's definition; to remove it is judged as a deletion", "TestB4ForeignDefinitionStays", false},
	{MigratedFrom, []string{"clusterobjectsets"}, Anyone,
		"who may write ClusterObjectSets has OLM v1 run anything", "TestO61Extensions", false},
	{PackageName, []string{"clusterobjectsets"}, Anyone,
		"who may write ClusterObjectSets has OLM v1 run anything", "TestO61Extensions", false},
	{AuthorProperties, nil, Anyone, offered, "TestK1SelfMadeProperty", false},
	{SuggestedNamespace, nil, Anyone, offered, "TestReconciler", false},
	{ArchitecturePrefix, nil, Anyone, offered, "TestCompare", false},
	{PermissionsHash, nil, Anyone, "proves nothing: the rules are compared", "TestC5Siblings", false},
	{Owner, nil, Anyone, "changes nothing of what is compared", "TestC5Siblings", false},
	{OwnerKind, nil, Anyone, "changes nothing of what is compared", "TestC5Siblings", false},
	{OwnerNamespace, nil, Anyone, "changes nothing of what is compared", "TestC5Siblings", false},
	{AggregatePrefix, nil, Anyone, "counts as a change of the rights that it adds", "TestC5Siblings", false},
}
