package rules

import (
	"errors"
	"net/http"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/verdict"
)

// forbidden is what the API server answers where admission refuses.
func forbidden(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Message: message}}
}

// TestRefusedBy reads what API servers answer, with and without Opgate's own policies in them.
func TestRefusedBy(t *testing.T) {
	const gate = `admission webhook "installplans.opgate.io" denied the request: `
	for name, c := range map[string]struct {
		err             error
		webhook, policy string
	}{
		"a webhook": {err: forbidden(gate + `installplan shop/x: etcd.v2 is not allowed by OperatorPolicy p/etcd (bundle/version): allowed is etcd.v1`),
			webhook: "installplans.opgate.io"},
		"an admission policy": {
			err: forbidden(`installplans.operators.coreos.com "x" is forbidden: ValidatingAdmissionPolicy 'opgate-backstop' with binding 'opgate-backstop' denied request: ` +
				`installplan shop/x: etcd.v2 is held by OperatorPolicy p/etcd (policy/unreadable): waits until the policy can be read`),
			policy: "opgate-backstop"},
		"a missing right": {err: forbidden(`installplans "x" is forbidden: User "bob" cannot patch resource "installplans"`)},
		"another error":   {err: errors.New(gate + "no")},
	} {
		if webhook, policy := RefusedBy(c.err); webhook != c.webhook || policy != c.policy {
			t.Errorf("%s: refused by webhook %q, policy %q", name, webhook, policy)
		}
	}
}

// TestCauses: what a refusal states for programs is what its verdict has, whatever its messages say.
func TestCauses(t *testing.T) {
	v := verdict.Verdict{Object: "installplan shop/x"}
	etcd := verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: "policies", Name: "etcd"}
	v.Record("bundle/consent", etcd, true, verdict.Finding{Decision: verdict.Hold, What: "etcd.v2 is held",
		Accepted: "accept sha256:00 (bundle/version)", Digest: "sha256:00"})
	v.Add("gate/unexpected", verdict.Finding{Decision: verdict.Deny, Field: "spec", What: `a "(plan/frozen)"`})
	want := []metav1.StatusCause{
		{Type: "bundle/consent", Message: v.Reasons[0].Message},
		{Type: metakey.CauseDecision, Message: "Hold"},
		{Type: metakey.CausePolicy, Message: "OperatorPolicy policies/etcd"},
		{Type: metakey.CauseDigest, Message: "sha256:00"},
		{Type: "gate/unexpected", Field: "spec", Message: v.Reasons[1].Message},
		{Type: metakey.CauseDecision, Message: "Deny"},
	}
	if got := Causes(&v); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}
