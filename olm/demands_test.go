package olm

import (
	"strings"
	"testing"
)

// TestA4OversizedLists: of a list that is too large, only the reason is kept, and the rest of the object is read.
func TestA4OversizedLists(t *testing.T) {
	list := "[" + strings.Repeat("{},", maxListValues) + "{}]"
	csv, err := DecodeCSV([]byte(`{"spec":{"minKubeVersion":"1.20","webhookdefinitions":` + list +
		`,"install":{"spec":{"clusterPermissions":` + list + `}}}}`))
	if err != nil || csv.Spec.MinKubeVersion != "1.20" {
		t.Fatalf("read as %+v, error %v", csv, err)
	}
	if n := len(csv.Spec.webhooks.raw) + len(csv.Spec.clusterPermissions.raw); n > 0 {
		t.Errorf("%d bytes of the lists are kept", n)
	}
	demands := &Demands{Spec: &csv.Spec}
	if _, err := demands.Webhooks(); err == nil || !strings.Contains(err.Error(), "more than the 32768 values") {
		t.Errorf("webhooks: %v", err)
	}
	if _, err := demands.ClusterPermissions(); err == nil {
		t.Error("clusterPermissions are read")
	}
	if lists, err := demands.Permissions(); err != nil || len(lists) != 0 {
		t.Errorf("permissions: %v, %v", lists, err)
	}
}
