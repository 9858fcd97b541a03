package operatorpolicy

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefusedByBackstop(t *testing.T) {
	plans := schema.GroupResource{Group: "operators.coreos.com", Resource: "installplans"}
	for text, want := range map[string]bool{
		"ValidatingAdmissionPolicy 'opgate-backstop' with binding 'opgate-backstop' denied request: installplan shop/install-x7: etcd.v0.9.4 ...": true,
		"ValidatingAdmissionPolicy 'another' with binding 'opgate-backstop' denied request: no":                                                   false,
		"admission webhook \"installplans.opgate.io\" denied the request: installplan shop/install-x7: ...":                                       false,
	} {
		if got := refusedByBackstop(apierrors.NewForbidden(plans, "install-x7", errors.New(text))); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
	if refusedByBackstop(errors.New("ValidatingAdmissionPolicy 'opgate-backstop' is unreachable")) {
		t.Error("an error that is no refusal counts as one")
	}
}

func TestLags(t *testing.T) {
	var n namespaceState
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	if got := n.lags(noon); got != 0 {
		t.Errorf("the first refusal has lasted %s", got)
	}
	if got := n.lags(noon.Add(3 * time.Second)); got != 3*time.Second {
		t.Errorf("the second refusal has lasted %s", got)
	}
}
