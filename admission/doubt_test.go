package admission

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/snapshot"
)

// TestA1NameAloneIsNotOLM replays every scenario in OLM's name while the account is not trusted (threat O16): whatever
// is refused to a tenant is refused to it too, with a reason that states whether to wait or what an administrator has
// to do.
func TestA1NameAloneIsNotOLM(t *testing.T) {
	scenarios := reviewed(t)
	reasons := map[olmidentity.Reason]string{
		olmidentity.Unverified:            "(gate/not-ready)",
		olmidentity.Unreadable:            "(gate/olm-identity)",
		olmidentity.NamespaceMissing:      "(gate/olm-identity)",
		olmidentity.NamespaceYounger:      "(gate/olm-identity)",
		olmidentity.ServiceAccountMissing: "(gate/olm-identity)",
		olmidentity.RightsMissing:         "(gate/olm-identity)",
	}
	refused := 0
	for _, s := range scenarios {
		existing := slices.Concat(s.Cluster, s.Policies)
		gate := newGate(t, storeOf(t, existing...), overrideBy{})
		old, object := written(t, s, existing)
		status := s.Verb == "replace-status"
		want := send(t, gate, "tenant", status, old, object)
		for reason, rule := range reasons {
			gate.OLM.Set(olmidentity.State{Reason: reason, Problem: "the reason"})
			got := asOLM(t, gate, status, old, object)
			switch {
			case got.allowed != want.allowed:
				t.Errorf("%s, %s: allowed is %v, for a tenant %v", s.Name, reason, got.allowed, want.allowed)
			case !got.allowed && (!strings.Contains(got.message, rule) || !strings.Contains(got.message, "the reason")):
				t.Errorf("%s, %s: the refusal is\n%s\nwant it to name %s", s.Name, reason, got.message, rule)
			case !got.allowed && reason != olmidentity.Unverified && !strings.Contains(got.message, want.message):
				t.Errorf("%s, %s: the refusal is\n%s\nwant it to say what a tenant gets:\n%s", s.Name, reason,
					got.message, want.message)
			case !got.allowed && s.User == "olm" && s.Decision == "Allow":
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused that OLM may write, so nothing was shown")
	}
}

// asOLM sends a write of OLM's account. The API server does not ask about some writes of an account that has OLM's rights:
// these are judged as if it had not.
func asOLM(t *testing.T, gate *Gate, status bool, old, object *unstructured.Unstructured) outcome {
	t.Helper()
	byOLM, byTenant := edited{olmUser, status, old, object}, edited{"tenant", status, old, object}
	asked, _ := byOLM.asked(t, shippedWebhooks(t))
	wanted, _ := byTenant.asked(t, shippedWebhooks(t))
	if len(asked) > 0 || len(wanted) == 0 {
		return send(t, gate, olmUser, status, old, object)
	}
	answer := ask(t, gate.Handlers()[wanted[len(wanted)-1]], byOLM)
	got := outcome{allowed: answer.Allowed}
	if answer.Result != nil {
		got.message = answer.Result.Message
	}
	return got
}

// TestA1TokenOfAnotherAccount has the name of OLM's account and the UID of another one, as the token of an account has
// that was created anew under the same name (threat O16).
func TestA1TokenOfAnotherAccount(t *testing.T) {
	s := named(t, "plan-create-by-olm")
	gate := newGate(t, storeOf(t, s.Policies...), overrideBy{})
	plans := gate.Handlers()[PathValidateInstallPlans]
	token := func(uid string) []byte {
		body := string(reviewOf(t, olmUser, false, nil, raw(t, s.Write)))
		with := strings.Replace(body, `"username":"`+olmUser+`"`, `"username":"`+olmUser+`","uid":"`+uid+`"`, 1)
		if with == body {
			t.Fatalf("there is no user in %s", body)
		}
		return []byte(with)
	}
	if answer := post(t, plans, token(olmUID)); !answer.Allowed {
		t.Errorf("OLM is refused: %s", answer.Result.Message)
	}
	if answer := post(t, plans, token("00000000-0c9b-4d0c-9d5e-7d3e5a4f5b11")); answer.Allowed ||
		!strings.Contains(answer.Result.Message, "(gate/not-ready)") {
		t.Errorf("another account is answered %+v", answer)
	}
}

// TestA1NotReadyBeforeVerification sends reviews before there is a snapshot and before the identity is verified: not
// even what OLM may always write passes, and every refusal is one to retry (threats G2, O16).
func TestA1NotReadyBeforeVerification(t *testing.T) {
	s := governed(t)
	gate := newGate(t, &snapshot.Store{}, overrideBy{})
	gate.OLM.Set(olmidentity.New(gate.OLM.Account()).State())
	plan := s.Cluster[0]
	for path, body := range map[string][]byte{
		PathValidateInstallPlans:       reviewOf(t, olmUser, false, nil, raw(t, plan)),
		PathValidateInstallPlansStatus: reviewOf(t, olmUser, true, plan, raw(t, plan)),
	} {
		answer := post(t, gate.Handlers()[path], body)
		if answer.Allowed || answer.Result.Code != 403 || !strings.Contains(answer.Result.Message, "(gate/not-ready)") {
			t.Errorf("%s answers %+v", path, answer)
		}
	}
}
