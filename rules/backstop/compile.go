// Package backstop compiles OperatorPolicies to admission policies of the API server, so that the core of the gate
// holds while no replica of Opgate answers, and even without its webhook configurations.
//
// What holds is written in the templates of folder policies, which state all rules; this package fills in what policies
// say, as lines of text: parameters of admission policies have windows in which they open the gate
// (docs/decisions/2026-11-22-the-gate-inside-the-api-server.md). The objects depend on the policies, a few settings and
// the names of what is installed that none may replace, so they change when a policy or one of these does.
//
// What they refuse, the gate refuses: they hold what checksOf returns, and who may write which
// part of a plan. They admit what needs more than the request and the policies: catalogs, channels, Constraints,
// upgrades, and packages that only Subscriptions name. docs/backstop.md lists the direction of each approximation.
package backstop

import (
	"cmp"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// The names of the objects: of those that hold what policies say, of those on unpacked bundles, of those on deletions,
// and of those on what Opgate records.
const (
	Name         = "opgate-backstop"
	UnpackedName = "opgate-unpacked"
	DeletionName = "opgate-deletion"
	EvidenceName = "opgate-evidence"
)

// Features are what the API server supports, from its discovery.
type Features struct {
	// ValidatingAdmissionPolicy and MutatingAdmissionPolicy are set if it serves these kinds in
	// admissionregistration.k8s.io/v1.
	ValidatingAdmissionPolicy, MutatingAdmissionPolicy bool
	// Semver is set if its CEL has semver(); without it version ranges are left to the gate.
	Semver bool
}

// Input is the input of Compile. The order of lists does not matter.
type Input struct {
	// Policies are all OperatorPolicies of the cluster. Those that only inform, or govern nothing, are ignored.
	Policies []*operatorpolicy.Policy
	// Constraints are all of the cluster. Those that do not restrict deletions are ignored.
	Constraints []*constraint.Definition
	// Operators are, by namespace, the packages that are installed there or subscribed to: a namespace without an
	// operator is not protected from deletion. state.Namespace.Operators returns them. Default: none.
	Operators map[string][]string
	// Kept are, by namespace, the installed ClusterServiceVersions that none of another package may replace;
	// bundle.KeptIn returns them. Default: none.
	Kept map[string][]bundle.Kept
	// Catalogs are those that exist of the ones that policies name: the namespace of no other is protected. Default: none.
	Catalogs []olm.Catalog
	// AsWritten is set where what exists is not known: what policies name counts as existing.
	AsWritten bool
	// OLM are the user names that OLM writes as. As for the webhooks, a name counts only if the user may also escalate
	// ClusterRoles.
	OLM []string
	// Opgate is the user name that Opgate writes as; "" if it has none. Namespace is its own, of what it records.
	// Default: that is not protected.
	Opgate, Namespace string
	// ApprovalMode is what to do about a wrong installPlanApproval. Default: rules.MutateApproval.
	ApprovalMode rules.ApprovalMode
	// ExcludedNamespaces are those that the webhook configurations exclude.
	ExcludedNamespaces []string
	// Accounts are, by namespace, the ServiceAccounts as which OLM may write steps of plans, because an OperatorGroup
	// names them. What they write is left to the gate; rules.Namespace.StepAccounts returns them. The first maxAccounts
	// of a namespace count. Nil if they are not known: then it is so for any ServiceAccount of the namespace.
	Accounts map[string][]string
	Features Features
	// Now is the time at which exceptions of policies are in force: one that has ended is left out. Default: it is not
	// known, and none is in force.
	Now time.Time
	// Audit makes the API server record and warn of what it would refuse, and change nothing.
	Audit bool
	// Labels are set on every object.
	Labels map[string]string
}

// Objects are the admission policies and their bindings.
type Objects struct {
	// All are those that must exist, each policy before its binding. What the API server does not support, or is not
	// needed, must not exist.
	All []runtime.Object
	// Left are the OperatorPolicies of which something is left to the webhooks: lists that are too long, and what is more
	// than the share of the policy's namespace, if there are very many for one namespace or in total.
	Left []fair.Origin
	// Unprotected are the OperatorPolicies of which nothing but the policy itself is protected from deletion, and the
	// Constraints of which something is not, since they are more than an object holds.
	Unprotected []fair.Origin
}

// contents are what the templates are filled in with.
type contents struct {
	*Input
	// Rows, Accounts, Manual and Kept are by namespace, Protections by the keys of an object that is deleted.
	Rows, Accounts, Manual, Kept, Protections table
	Everywhere                                []string
	// AccountsKnown is set if Accounts has all accounts that write steps.
	AccountsKnown bool
	// Namespaces are those that the webhook configurations select.
	Namespaces *metav1.LabelSelector
	// Actions are what the API server does about a write that it refuses.
	Actions []admissionv1.ValidationAction
	// Deny is set if Subscriptions are refused instead of changed.
	Deny bool
	// MayDelete is an expression for the users who may delete what Opgate records, Reserved the end of a refusal.
	MayDelete, Reserved string
}

// maxCondition is the size in bytes of the longest match condition: the compiler of CEL reads up to 100,000 characters.
const maxCondition = 96 << 10

// Compile returns the objects for some policies; equal inputs have equal objects.
func Compile(in Input) Objects {
	const namespace = "request.namespace"
	in.OLM, in.ExcludedNamespaces = sorted(in.OLM), sorted(in.ExcludedNamespaces)
	r := in.rows()
	c := contents{Input: &in, Everywhere: r.everywhere, Deny: in.ApprovalMode == rules.DenyApproval,
		Rows: newTable("rows", namespace, r.byNamespace), Accounts: newTable("accounts", namespace, r.accounts),
		AccountsKnown: in.Accounts != nil && r.accounts != nil, Manual: newTable("manual", namespace, r.manual),
		Kept:       newTable("kept", namespace, r.kept),
		Namespaces: &metav1.LabelSelector{}, Actions: []admissionv1.ValidationAction{admissionv1.Deny}}
	if len(in.ExcludedNamespaces) > 0 {
		c.Namespaces.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName,
			Operator: metav1.LabelSelectorOpNotIn, Values: in.ExcludedNamespaces}}
	}
	if in.Audit {
		c.Actions = []admissionv1.ValidationAction{admissionv1.Audit, admissionv1.Warn}
	}
	o := Objects{Left: r.left}
	if in.Features.MutatingAdmissionPolicy && !in.Audit {
		objects := c.rendered("subscriptions")
		objects[0].(*admissionv1.MutatingAdmissionPolicy).Spec.Variables = c.Manual.variables
		o.All = append(o.All, objects...)
	}
	if !in.Features.ValidatingAdmissionPolicy {
		return o
	}
	objects := c.validating("backstop", c.Rows, c.Accounts, c.Kept)
	spec := &objects[0].(*admissionv1.ValidatingAdmissionPolicy).Spec
	if len(c.Rows.variables) > 0 || len(spec.MatchConditions[0].Expression) > maxCondition {
		spec.MatchConditions = nil
	}
	o.All = append(o.All, objects...)
	if len(in.OLM) > 0 {
		o.All = append(o.All, c.validating("unpacked")...)
	}
	protections, left := in.protections()
	if o.Unprotected = left; len(protections) > 0 {
		c.Protections = newTable("protections", "k", protections)
		o.All = append(o.All, c.validating("deletion", c.Protections)...)
	}
	if in.Opgate != "" && in.Namespace != "" {
		o.All = append(o.All, c.evidence(`authorizer.group('admissionregistration.k8s.io')`+
			`.resource('validatingadmissionpolicies').name('`+EvidenceName+`').check('delete').allowed()`,
			"users who may delete this ValidatingAdmissionPolicy")...)
	}
	return o
}

// evidence returns the objects that keep what Opgate records. MayDelete is an expression for the users who may delete it
// beside Opgate, and who names them, "" for none.
func (c contents) evidence(mayDelete, who string) []runtime.Object {
	if who != "" {
		who = ", and for its deletion " + who
	}
	c.MayDelete, c.Reserved = mayDelete, ": writing what Opgate decides by is not allowed: allowed is "+c.Opgate+who+
		"; held by the API server (ValidatingAdmissionPolicy "+EvidenceName+")"
	return c.validating("evidence")
}

// validating returns the objects of a template, with tables that it uses.
func (c *contents) validating(name string, tables ...table) []runtime.Object {
	objects := c.rendered(name)
	spec := &objects[0].(*admissionv1.ValidatingAdmissionPolicy).Spec
	var variables []admissionv1.Variable
	for _, t := range tables {
		variables = append(variables, t.variables...)
	}
	spec.Variables = append(variables, spec.Variables...)
	return objects
}

// rendered returns the objects of a template, with the labels.
func (c *contents) rendered(name string) []runtime.Object {
	objects := render(name, c)
	for _, o := range objects {
		o.(metav1.Object).SetLabels(c.Labels)
	}
	return objects
}

const (
	// staticSuffix ends the name of every object that the API server loads from files.
	staticSuffix = ".static.k8s.io"
	// ProbeLease is the Lease, in Opgate's namespace, that cannot be created while static policies are in force.
	ProbeLease = "opgate-static-policies"
	// ProbeAnswer begins the refusal. What follows is StaticInput.Set, up to the next space.
	ProbeAnswer = "the static policies of Opgate are in force: set "
)

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

// CompileStatic returns the admission policies, each before its binding, that the API server loads from files. The
// validating ones and the mutating ones are for two directories.
func CompileStatic(in StaticInput) (validating, mutating []runtime.Object) {
	validating = render("static", struct {
		StaticInput
		Writers, Keys      []string
		Who, Lease, Answer string
	}{in, append([]string{in.Opgate}, in.Maintainers...), metakey.Kept(), cmp.Or(strings.Join(in.Maintainers, ", "), "Opgate itself"),
		ProbeLease, ProbeAnswer + in.Set})
	c := contents{Input: &Input{Opgate: in.Opgate, Namespace: in.Namespace},
		Actions: []admissionv1.ValidationAction{admissionv1.Deny}}
	compiled := slices.DeleteFunc(slices.Clone(in.Compiled.All),
		func(o runtime.Object) bool { return o.(metav1.Object).GetName() == EvidenceName })
	for _, object := range append(compiled, c.evidence("request.userInfo.username in "+quoteList(in.Maintainers),
		strings.Join(in.Maintainers, ", "))...) {
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
