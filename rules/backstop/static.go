package backstop

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/internal/metakey"
)

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
