package policy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
)

// kindFault returns why no object of a template's kind can be created, "" if it can. Kind is what the cluster serves,
// ok reports whether it is served; forbidden is why the objects of the kind may not be watched.
func kindFault(t *dependency.Template, kind watches.Kind, ok bool, o *Options, forbidden error) string {
	ref := t.Ref
	switch {
	case o.Grants.MissingKind(ref.Group, ref.Kind) != "":
		return fmt.Sprintf("%s: %s", ref, o.Grants.MissingKind(ref.Group, ref.Kind))
	case ref.Gatekeeper() && !o.Gatekeeper:
		return fmt.Sprintf("%s is of a kind of Gatekeeper's, which templates may not be here: start Opgate with --gatekeeper-templates (chart value ordering.gatekeeper)", ref)
	case !ok && ref.Group == dependency.GatekeeperConstraintGroup:
		return fmt.Sprintf("%s: kind %s is not served: the ConstraintTemplate that makes it is missing, or Gatekeeper has not processed it", ref, ref.Kind)
	case !ok && ref.Gatekeeper():
		return fmt.Sprintf("%s: kind %s is not served: install Gatekeeper", ref, ref.Kind)
	case !ok && ref.Group == "":
		return fmt.Sprintf("%s: kind %s is not one that templates may be: put it into a ConfigurationPolicy", ref,
			ref.Kind)
	case !ok:
		return fmt.Sprintf("%s: no CustomResourceDefinition serves kind %s of group %s: install it", ref, ref.Kind,
			ref.Group)
	case !slices.Contains(kind.Versions, t.Version):
		return fmt.Sprintf("%s: kind %s of group %s is served as %s, and not as %q", ref, ref.Kind, ref.Group,
			strings.Join(kind.Versions, ", "), t.Version)
	case !kind.Template:
		return fmt.Sprintf("%s: kind %s is not one that templates may be: its CustomResourceDefinition %s.%s has no label %s=%s",
			ref, ref.Kind, kind.Plural, kind.Group, dependency.LabelTemplate, dependency.LabelTemplateValue)
	case forbidden != nil:
		return fmt.Sprintf("%s: opgate may not list and watch %s.%s, and makes nothing that it cannot see: grant it (chart value ordering.rules)", ref, kind.Plural, kind.Group)
	}
	return ""
}

// outcome is what a failed write means for the template.
type outcome int

const (
	// retried writes are repeated without a report: what they were decided on has changed.
	retried outcome = iota
	// contested objects exist already: their owner has to be determined.
	contested
	// refused writes are repeated only when the template changes.
	refused
	// denied writes are retried with backoff, since RBAC changes cannot be watched.
	denied
	// failed writes are retried with a short delay, and reported if they keep failing.
	failed
)

// classify returns what a failed write means.
func classify(err error) outcome {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return retried
	case apierrors.IsAlreadyExists(err):
		return contested
	case byEnd(err):
		return failed
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return denied
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err),
		apierrors.IsMethodNotSupported(err):
		return refused
	case errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity:
		return refused
	}
	return failed
}

// writeFault returns why the object of a template could not be written.
func writeFault(verb string, ref dependency.Ref, kind watches.Kind, err error) string {
	text := fmt.Sprintf("%s could not be %sd: %s", ref, verb, sentence(err))
	if apierrors.IsForbidden(err) && !byWebhook(err) && !byEnd(err) && !byQuota(err) {
		return fmt.Sprintf("opgate may not %s %s.%s: grant it (chart value ordering.rules): %s", verb, kind.Plural,
			kind.Group, text)
	}
	return text
}

// byWebhook reports whether a webhook refused, which may be Opgate's own, rather than RBAC.
func byWebhook(err error) bool { return strings.Contains(err.Error(), "admission webhook ") }

// byEnd reports whether the definition of the kind is being deleted, or was until recently and the API server does not
// serve the recreated one yet. The API server answers with forbidden, but no permission is missing.
func byEnd(err error) bool {
	return strings.Contains(err.Error(), "not allowed while custom resource definition is terminating")
}

// byQuota reports whether the cause is not RBAC: messages of admission plugins do not mention users.
func byQuota(err error) bool { return !strings.Contains(err.Error(), "cannot ") }

// sentence returns the API server's message without the line breaks that some webhooks add.
func sentence(err error) string {
	var status apierrors.APIStatus
	text := err.Error()
	if errors.As(err, &status) && status.Status().Message != "" {
		text = status.Status().Message
	}
	return strings.Join(strings.Fields(text), " ")
}
