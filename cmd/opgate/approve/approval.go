package approve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

var plans = olm.InstallPlanGVK.GroupVersion().WithResource("installplans")

// approval is the approval of one plan.
type approval struct {
	plan    types.NamespacedName
	digests []string
	reason  string
	expires string
	dryRun  bool

	plans   dynamic.ResourceInterface
	reviews authenticationclient.SelfSubjectReviewInterface
	out     io.Writer
}

func (a *approval) run(ctx context.Context) error {
	plan, err := a.plans.Get(ctx, a.plan.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read InstallPlan %s: %s", a.plan, refusal(err))
	}
	if approved, _, _ := unstructured.NestedBool(plan.Object, "spec", "approved"); approved {
		fmt.Fprintf(a.out, "installplan %s is approved already\n", a.plan)
		return nil
	}
	patch, err := a.patch(ctx, plan)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: "opgate-approve"}
	if a.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = a.plans.Patch(ctx, a.plan.Name, types.MergePatchType, patch, options)
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("installplan %s was changed while it was approved; look at it again: %w", a.plan, err)
	case err != nil:
		return errors.New(refusal(err))
	}
	done := "approved"
	if len(a.digests) > 0 {
		done += ", with consent to " + strings.Join(a.digests, ", ")
	}
	if a.dryRun {
		done += " (dry run)"
	}
	fmt.Fprintf(a.out, "installplan %s %s\n", a.plan, done)
	return nil
}

// patch returns the merge patch of the approval. It applies only to the plan that was read.
func (a *approval) patch(ctx context.Context, plan *unstructured.Unstructured) ([]byte, error) {
	annotations := map[string]any{}
	if a.reason != "" {
		annotations[metakey.OverrideReason] = a.reason
		annotations[metakey.OverrideExpires] = a.end()
	}
	if len(a.digests) > 0 {
		self, err := a.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("find the name of the user, which is recorded with the consent: %w", err)
		}
		digests := slices.Clone(a.digests)
		before := plan.GetAnnotations()
		// All digests of a plan have one end, so those with another one are replaced.
		if before[metakey.Consent] != "" && before[metakey.ConsentExpires] == a.expires {
			digests = append([]string{before[metakey.Consent]}, digests...)
		}
		annotations[metakey.ConsentExpires] = a.end()
		annotations[metakey.Consent] = strings.Join(digests, ",")
		annotations[metakey.ConsentBy] = self.Status.UserInfo.Username
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": plan.GetResourceVersion(), "annotations": annotations},
		"spec":     map[string]any{"approved": true},
	})
}

// end returns the end of consent and override for a merge patch, which removes that of an earlier one if there is none.
func (a *approval) end() any {
	if a.expires == "" {
		return nil
	}
	return a.expires
}

// refusal returns the message of the gate, as kubectl shows it. That of a missing right names the role that grants it.
func refusal(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return err.Error()
	}
	message := status.Status().Message
	if webhook, policy := rules.RefusedBy(err); apierrors.IsForbidden(err) && strings.Contains(message, " cannot ") &&
		webhook+policy == "" {
		message += "; granted by ClusterRole opgate-approver"
	}
	return message
}
