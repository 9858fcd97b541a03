package backstop

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/rules/backstop"
)

// detect returns what the API server supports. It asks once after the controller started, and after each change of the
// cluster's version.
func (r *reconciler) detect(ctx context.Context) (backstop.Features, error) {
	if known := r.features.Load(); known != nil {
		return *known, nil
	}
	var served metav1.APIResourceList
	err := r.discovery.RESTClient().Get().AbsPath("/apis", group.Group, group.Version).Do(ctx).Into(&served)
	if err != nil && !apierrors.IsNotFound(err) {
		return backstop.Features{}, fmt.Errorf("discover the admission policies that the API server serves: %w", err)
	}
	serves := func(k string) bool {
		return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == k })
	}
	f := backstop.Features{
		ValidatingAdmissionPolicy: serves("ValidatingAdmissionPolicy") && serves("ValidatingAdmissionPolicyBinding"),
		MutatingAdmissionPolicy:   serves("MutatingAdmissionPolicy") && serves("MutatingAdmissionPolicyBinding"),
	}
	if f.ValidatingAdmissionPolicy {
		if f.Semver, err = r.detectSemver(ctx); err != nil {
			return backstop.Features{}, err
		}
	}
	r.Metrics.supported(f)
	r.Log.Info("detected what the API server supports of the backstop",
		"validatingAdmissionPolicy", f.ValidatingAdmissionPolicy,
		"mutatingAdmissionPolicy", f.MutatingAdmissionPolicy, "semver", f.Semver)
	if !f.ValidatingAdmissionPolicy {
		r.Log.Info("the API server does not serve ValidatingAdmissionPolicy v1 and refuses nothing by itself: the gate holds only while Opgate answers")
	}
	r.features.Store(&f)
	return f, nil
}

// detectSemver reports whether expressions may call semver(). A version does not tell: an API server accepts new
// expressions only with what the one that it may be rolled back to has as well, and it may emulate another version. So
// it is asked to validate a policy, without storing it, which needs no right but to create one.
func (r *reconciler) detectSemver(ctx context.Context) (bool, error) {
	err := r.writer.Client.Create(ctx, owned.Unstructured(semverProbe()), client.DryRunAll)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return true, nil
	case apierrors.IsInvalid(err):
		return false, nil
	case apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		// For example by a webhook that does not support dry runs. Version ranges are left to the gate then.
		r.Log.Info("whether the API server supports semver() cannot be detected, continuing without it",
			"error", err.Error())
		return false, nil
	}
	return false, fmt.Errorf("detect whether the API server supports semver(): %w", err)
}

// semverProbe is a policy that applies to nothing.
func semverProbe() *admissionv1.ValidatingAdmissionPolicy {
	ignore := admissionv1.Ignore
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: group.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: backstop.Name + "-semver"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &ignore,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{"probe.opgate.io"}, APIVersions: []string{"v1"},
						Resources: []string{"probes"}},
				}}}},
			Validations: []admissionv1.Validation{{
				Expression: "isSemver('1.0.0') && semver('1.0.0').compareTo(semver('2.0.0')) < 0"}},
		},
	}
}
