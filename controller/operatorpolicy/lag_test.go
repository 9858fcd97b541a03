package operatorpolicy

import (
	"errors"
	"testing"

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
