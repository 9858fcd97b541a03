package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/staticpolicy"
	"github.com/opgate/opgate/rules"
)

const (
	// name is that of the policy. It is applied, not created: only then can RBAC restrict the right by name.
	name = "opgate-verify"
	// webhook is the one that has to refuse it.
	webhook = "operatorpolicies.opgate.io"
	// interval is the time between two tries.
	interval = time.Second
)

var policies = policyv1beta2.GroupVersion.WithResource(policyv1beta2.Resource)

// verification is one run of the command.
type verification struct {
	policies  dynamic.ResourceInterface
	namespace string
	out       io.Writer
}

// run tries until the gate refuses the policy or the timeout has passed, but at least once, and returns the last error.
// While it waits it prints each new error.
func (v *verification) run(ctx context.Context, timeout time.Duration) error {
	var refusal, printed string
	var err error
	_ = wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(context.Context) (bool, error) {
		if refusal, err = v.try(ctx); err != nil && timeout > 0 && err.Error() != printed {
			printed = err.Error()
			fmt.Fprintf(v.out, "waiting: %s\n", printed)
		}
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(v.out, "the gate works: %s\n", refusal)
	return nil
}

// try sends the policy, and returns the refusal of the gate. Errors: the API server admitted the policy, it could not
// call the gate, or something else refused it.
func (v *verification) try(ctx context.Context) (refusal string, err error) {
	_, err = v.policies.Apply(ctx, name, v.policy(), metav1.ApplyOptions{
		FieldManager: name, Force: true, DryRun: []string{metav1.DryRunAll},
	})
	what := fmt.Sprintf("operatorpolicy %s/%s", v.namespace, name)
	if err == nil {
		return "", fmt.Errorf("%s was admitted, so webhook %s was not called: wait until a pod of Opgate has been ready, and choose a namespace "+
			"that is neither Opgate's own nor in policy.excludedNamespaces", what, webhook)
	}
	message := messageOf(err)
	switch refused, _ := rules.RefusedBy(err); {
	case refused == webhook:
		return message, nil
	case strings.Contains(message, "failed calling webhook"):
		return "", fmt.Errorf("the API server cannot call the gate: %s", message)
	default:
		return "", fmt.Errorf("%s was not judged by webhook %s: %s", what, webhook, message)
	}
}

// policy is valid by its schema, and by nothing else: versionRange is no range.
func (v *verification) policy() *unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"complianceType":  string(policyv1beta2.MustHave),
			"upgradeApproval": string(policyv1beta2.UpgradeApprovalNone),
			"versionRange":    "newer than 1",
			"subscription":    map[string]any{"name": "etcd"},
		},
	}}
	policy.SetGroupVersionKind(policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind))
	policy.SetNamespace(v.namespace)
	policy.SetName(name)
	return policy
}

// messageOf returns what the API server answered, without the client's words around it.
func messageOf(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// verifyStatic prints which static policies are in force. Errors: none are, or that is not known.
func verifyStatic(ctx context.Context, config *rest.Config, namespace string, out io.Writer) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	set, err := staticpolicy.Probe(ctx, c, namespace)
	switch {
	case err != nil:
		return err
	case set == "":
		return errors.New("no static policies of Opgate are in force at the API server that answered: docs/backstop.md says how to load them")
	}
	fmt.Fprintf(out, "static policies are in force: set %s\n", set)
	return nil
}
