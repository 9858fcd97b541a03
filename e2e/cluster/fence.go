package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// fenceTimeout bounds the time until the API server has seen a webhook configuration; it takes milliseconds.
const fenceTimeout = speed.Wait

// fenceLabel marks the one object that a fence stops.
const fenceLabel = "e2e.opgate.io/fence"

// WaitForWebhooks waits until the API server acts on every webhook configuration written so far.
func (c *Cluster) WaitForWebhooks(ctx context.Context) error { return waitForWebhooks(ctx, c.masters) }

// waitForWebhooks waits until the API server acts on every webhook configuration written so far.
//
// The API server watches the configurations of a kind, and sees them in the order in which they were written. So a last
// one, the fence, is written for each kind: a webhook without a server, for an object that no other client writes. Once
// that object is refused because the fence does not answer, everything written before the fence is in effect. The
// webhooks themselves need nothing for this, and none of them is called.
func waitForWebhooks(ctx context.Context, c client.Client) error {
	name := "fence-" + string(uuid.NewUUID()) + ".e2e.opgate.io"
	metadata := metav1.ObjectMeta{Name: name}
	var (
		// nothing listens on port 1; if something did, it would have no certificate we trust
		unserved    = "https://127.0.0.1:1/"
		fail        = admissionregistrationv1.Fail
		sideEffects = admissionregistrationv1.SideEffectClassNone
		timeout     = int32(1)
		clientTo    = admissionregistrationv1.WebhookClientConfig{URL: &unserved}
		selector    = &metav1.LabelSelector{MatchLabels: map[string]string{fenceLabel: name}}
		rules       = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{"configmaps"}},
		}}
	)
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metadata,
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name, ClientConfig: clientTo, Rules: rules, ObjectSelector: selector, FailurePolicy: &fail,
			SideEffects: &sideEffects, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metadata,
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: clientTo, Rules: rules, ObjectSelector: selector, FailurePolicy: &fail,
			SideEffects: &sideEffects, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	// One kind after the other: an object that the mutating fence stops never reaches the validating one.
	for _, fence := range []client.Object{mutating, validating} {
		if err := waitForFence(ctx, c, fence, name); err != nil {
			return fmt.Errorf("wait until webhooks are in force: %w", err)
		}
	}
	return nil
}

func waitForFence(ctx context.Context, c client.Client, fence client.Object, name string) (err error) {
	if err := c.Create(ctx, fence); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.Delete(context.WithoutCancel(ctx), fence))
	}()

	last := errors.New("the fence stopped nothing")
	err = speed.Poll(ctx, pollInterval, fenceTimeout, func(ctx context.Context) (bool, error) {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{fenceLabel: name},
		}}
		refusal := c.Create(ctx, object, client.DryRunAll)
		if refusal == nil {
			return false, nil
		}
		last = refusal
		return strings.Contains(refusal.Error(), name), nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
