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
func forbidden(message string, causes []metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Message: message, Details: &metav1.StatusDetails{Causes: causes}}}
}

// TestRefusalOf reads what API servers answer, with and without Opgate's own policies in them.
func TestRefusalOf(t *testing.T) {
	const gate = `admission webhook "installplans.opgate.io" denied the request: `
	for name, c := range map[string]struct {
		message         string
		causes          []metav1.StatusCause
		webhook, policy string
		want            []verdict.Reason
	}{
		"a webhook of an earlier release denies": {
			message: gate + `installplan shop/x: etcd.v2 is not allowed by OperatorPolicy p/etcd (bundle/version): allowed is etcd.v1`,
			webhook: "installplans.opgate.io",
			want: []verdict.Reason{{Rule: "bundle/version", Decision: verdict.Deny,
				Message: "installplan shop/x: etcd.v2 is not allowed by OperatorPolicy p/etcd (bundle/version): allowed is etcd.v1"}},
		},
		"an admission policy holds": {
			message: `installplans.operators.coreos.com "x" is forbidden: ValidatingAdmissionPolicy 'opgate-backstop' with binding 'opgate-backstop' denied request: ` +
				`installplan shop/x: etcd.v2 is held by OperatorPolicy p/etcd (policy/unreadable): waits until the policy can be read`,
			policy: "opgate-backstop",
			want: []verdict.Reason{{Rule: "policy/unreadable", Decision: verdict.Hold,
				Message: "installplan shop/x: etcd.v2 is held by OperatorPolicy p/etcd (policy/unreadable): waits until the policy can be read"}},
		},
		"one of two denies": {
			message: gate + `a (policy/unreadable): b; c (bundle/version): d`, webhook: "installplans.opgate.io",
			want: []verdict.Reason{{Rule: "policy/unreadable", Decision: verdict.Deny,
				Message: "a (policy/unreadable): b; c (bundle/version): d"}},
		},
		"another webhook": {
			message: `admission webhook "deny.example.com" denied the request: not on Fridays (see/wiki)`,
			causes:  []metav1.StatusCause{{Type: "Weekday", Message: "Friday"}, {Type: metakey.CauseDecision, Message: "Hold"}},
			webhook: "deny.example.com",
			want:    []verdict.Reason{{Decision: verdict.Deny, Message: "not on Fridays (see/wiki)"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := RefusalOf(forbidden(c.message, c.causes))
			if got == nil || got.Webhook != c.webhook || got.Policy != c.policy ||
				!reflect.DeepEqual(got.Verdict.Reasons, c.want) || got.Verdict.Decision != c.want[0].Decision {
				t.Errorf("got %+v", got)
			}
		})
	}
	for name, err := range map[string]error{
		"a missing right": forbidden(`installplans "x" is forbidden: User "bob" cannot patch resource "installplans"`, nil),
		"another error":   errors.New(gate + "no"),
	} {
		if got := RefusalOf(err); got != nil {
			t.Errorf("%s is taken for a refusal: %+v", name, got)
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
	got := RefusalOf(forbidden(`admission webhook "installplans.opgate.io" denied the request: `+v.Refusal(), Causes(&v)))
	if got == nil || got.Verdict.Decision != verdict.Deny || len(got.Verdict.Reasons) != 2 {
		t.Fatalf("got %+v", got)
	}
	for i, r := range got.Verdict.Reasons {
		want := v.Reasons[i]
		if r.Rule != want.Rule || r.Decision != want.Decision || r.Field != want.Field || r.Message != want.Message ||
			r.Source != want.Source || r.Digest != want.Digest {
			t.Errorf("got %+v, want %+v", r, want)
		}
	}
}
