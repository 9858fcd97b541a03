package backstop

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// staticSuffix ends the name of every object that the API server loads from files.
	staticSuffix = ".static.k8s.io"
	// InstallationName is the name of the static ValidatingAdmissionPolicy that keeps Opgate's installation.
	InstallationName = "opgate-installation" + staticSuffix
	// PoliciesName is that of the one that keeps OperatorPolicies, Constraints, Policies and PolicySets.
	PoliciesName = "opgate-policies" + staticSuffix
	// ProbeName is that of the one by which Opgate sees that static policies are in force.
	ProbeName = "opgate-probe" + staticSuffix
	// ProbeLease is the Lease, in Opgate's namespace, that cannot be created while they are.
	ProbeLease = "opgate-static-policies"
	// ProbeAnswer begins the refusal. What follows is StaticInput.Set, up to the next space.
	ProbeAnswer = "the static policies of Opgate are in force: set "
)

// definitions are Opgate's, the ones without which no rule has a policy.
var definitions = []string{"constraints.operators.coreos.com", "operatorpolicies.policy.open-cluster-management.io",
	"policies.policy.open-cluster-management.io", "policysets.policy.open-cluster-management.io"}

// controllers may change the replicas and owners of what they scale and roll out.
var controllers = []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:deployment-controller",
	"system:serviceaccount:kube-system:horizontal-pod-autoscaler"}

// StaticInput is the input of CompileStatic.
type StaticInput struct {
	// Namespace is Opgate's, and Opgate the user name that it writes as.
	Namespace, Opgate string
	// Maintainers are the users who may update the installation, but never delete it, and may write policies where
	// these are kept.
	Maintainers []string
	// CertificateWriters are the users who write certificates and CAs, as cert-manager's controller and its cainjector
	// do.
	CertificateWriters []string
	// KeepPolicies is whether OperatorPolicies, Constraints, Policies and PolicySets are changed and deleted by
	// maintainers alone.
	KeepPolicies bool
	// Compiled are what Compile returned; the zero value if the API server's own admission policies are all there is.
	Compiled Objects
	// Set names what was compiled, without spaces.
	Set string
}

// CompileStatic returns the admission policies, each before its binding, that the API server loads from files: they are
// in no API, so no request can change or delete them, and they judge admission policies and webhook configurations too,
// as policies in the API never do (threat G37). The validating ones and the mutating ones are for two directories.
func CompileStatic(in StaticInput) (validating, mutating []runtime.Object) {
	pairs := []*admissionv1.ValidatingAdmissionPolicy{in.installation(), in.probe()}
	if in.KeepPolicies {
		pairs = append(pairs, in.policies())
	}
	for _, p := range pairs {
		validating = append(validating, p, &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: typeMeta("ValidatingAdmissionPolicyBinding"), ObjectMeta: p.ObjectMeta,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.Name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		})
	}
	for _, object := range in.Compiled.All() {
		switch o := object.DeepCopyObject().(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			o.Name += staticSuffix
			validating = append(validating, o)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			o.Name, o.Spec.PolicyName = o.Name+staticSuffix, o.Spec.PolicyName+staticSuffix
			validating = append(validating, o)
		case *admissionv1.MutatingAdmissionPolicy:
			o.Name += staticSuffix
			mutating = append(mutating, o)
		case *admissionv1.MutatingAdmissionPolicyBinding:
			o.Name, o.Spec.PolicyName = o.Name+staticSuffix, o.Spec.PolicyName+staticSuffix
			mutating = append(mutating, o)
		}
	}
	return validating, mutating
}

// of returns resources of a group on which writes are judged.
func of(group string, resources ...string) admissionv1.NamedRuleWithOperations {
	scope := admissionv1.AllScopes
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete},
		Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources,
			Scope: &scope},
	}}
}

// static returns a policy with one condition and some validations.
func static(
	name, condition string, validations []admissionv1.Validation, resources ...admissionv1.NamedRuleWithOperations,
) *admissionv1.ValidatingAdmissionPolicy {
	fail, equivalent := admissionv1.Fail, admissionv1.Equivalent
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{MatchPolicy: &equivalent, ResourceRules: resources,
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "opgate", Expression: condition}},
			Validations:     validations,
		},
	}
}

// The deletion of a collection has no request.name: the API server asks for each object, as the old one.
const (
	named      = "oldObject.metadata.name"
	byOpgate   = "(" + named + " == 'opgate' || " + named + ".startsWith('opgate-'))"
	deletes    = "request.operation == 'DELETE'"
	keptObject = "request.resource.resource + ' ' + (has(oldObject.metadata.namespace) ? oldObject.metadata.namespace + '/' : '') + " + named
)

// unchanged reports whether nothing is written that counts: annotations, labels and managed fields do not.
var unchanged = same("spec", "rules", "aggregationRule", "subjects", "roleRef", "webhooks", "data",
	"metadata.?ownerReferences")

func same(fields ...string) string {
	for i, f := range fields {
		fields[i] = "object.?" + f + " == oldObject.?" + f
	}
	return strings.Join(fields, " && ")
}

// installation keeps webhook configurations, admission policies, rights, definitions and workload. Pods and
// ResourceQuotas are not kept: without a pod everything is refused. Opgate itself writes what it owns, and deletes
// admission policies that have nothing to hold.
func (in *StaticInput) installation() *admissionv1.ValidatingAdmissionPolicy {
	condition := "has(oldObject.metadata.namespace) ? oldObject.metadata.namespace == " + quote(in.Namespace) + " && " +
		byOpgate +
		" : request.resource.resource == 'namespaces' ? " + named + " == " + quote(in.Namespace) +
		" : request.resource.resource == 'customresourcedefinitions' ? " + named + " in " + quoteList(definitions) +
		" : " + byOpgate
	deleters := "request.userInfo.username == " + quote(in.Opgate) +
		" && request.resource.resource.contains('admissionpolic')"
	writers := slices.Concat([]string{in.Opgate}, in.Maintainers, controllers)
	certificates := "request.userInfo.username in " + quoteList(in.CertificateWriters) +
		" && request.resource.resource in ['secrets','customresourcedefinitions','validatingwebhookconfigurations','mutatingwebhookconfigurations']"
	return static(InstallationName, condition,
		[]admissionv1.Validation{
			in.refuse("!("+deletes+") || "+deleters, "it cannot be deleted"),
			in.refuse(deletes+" || request.userInfo.username in "+quoteList(writers)+" || "+certificates+" || "+
				unchanged,
				"only "+cmp.Or(strings.Join(in.Maintainers, ", "), "Opgate itself")+" may change it"),
		},
		of("admissionregistration.k8s.io", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
			"validatingadmissionpolicies",
			"validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
		of("rbac.authorization.k8s.io", "clusterroles", "clusterrolebindings", "roles", "rolebindings"),
		of("apiextensions.k8s.io", "customresourcedefinitions"),
		of("apps", "deployments", "deployments/scale"),
		of("policy", "poddisruptionbudgets"),
		of("", "namespaces", "namespaces/finalize", "services", "serviceaccounts", "secrets"))
}

// policies keeps what says what is allowed. Opgate writes marks, and what Policies create.
func (in *StaticInput) policies() *admissionv1.ValidatingAdmissionPolicy {
	writers := quoteList(append([]string{in.Opgate}, in.Maintainers...))
	return static(PoliciesName, "true",
		[]admissionv1.Validation{in.refuse("request.userInfo.username in "+writers+" || !("+deletes+") && "+
			same("spec", "metadata.?ownerReferences"),
			"only "+cmp.Or(strings.Join(in.Maintainers, ", "), "Opgate itself")+" may change or delete it")},
		of("policy.open-cluster-management.io", "operatorpolicies", "policies", "policysets"),
		of("operators.coreos.com", "constraints"))
}

func (in *StaticInput) refuse(allowed, who string) admissionv1.Validation {
	forbidden := metav1.StatusReasonForbidden
	what := " is kept by files of the control plane: " + who +
		"; to do it all the same, move these files away on each control plane node, wait for a minute, and put them back afterwards (docs/static-policies.md)"
	return admissionv1.Validation{Expression: allowed, MessageExpression: keptObject + " + " + quote(what),
		Message: "a part of Opgate" + what, Reason: &forbidden}
}

// probe refuses a Lease without a use, and says what is loaded.
func (in *StaticInput) probe() *admissionv1.ValidatingAdmissionPolicy {
	forbidden := metav1.StatusReasonForbidden
	leases := of("coordination.k8s.io", "leases")
	leases.Operations = []admissionv1.OperationType{admissionv1.Create}
	return static(ProbeName, "request.namespace == "+quote(in.Namespace)+" && object.metadata.?name.orValue('') == "+
		quote(ProbeLease),
		[]admissionv1.Validation{{Expression: "false", Message: ProbeAnswer + in.Set, Reason: &forbidden}}, leases)
}
