package admission

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/rules"
)

// named returns one scenario.
func named(t testing.TB, name string) *scenario.Scenario {
	t.Helper()
	path := filepath.Join(scenarioDir, name+scenario.Extension)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(path, data, versions)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDenyApproval refuses instead of changing, and names the value to write. OLM's own Subscriptions are
// changed all the same: it would repeat a refused one for ever.
func TestDenyApproval(t *testing.T) {
	s := named(t, "subscription-approval-mutated")
	store := storeOf(t, s.Policies...)
	gate := New(optionsOf(Options{Store: store, Authenticated: byAPIServer, ApprovalMode: rules.DenyApproval}))
	got := send(t, gate, "tenant", false, nil, s.Write)
	const want = `subscription shop/etcd: spec.installPlanApproval "Automatic" is not allowed by OperatorPolicy policies/etcd (subscription/approval): write Manual, since spec.versions is set`
	if got.allowed || got.message != want {
		t.Errorf("allowed is %v, message\n%s\nwant\n%s", got.allowed, got.message, want)
	}
	if got := send(t, gate, "olm", false, nil, s.Write); !got.allowed ||
		!strings.Contains(string(got.object), `"installPlanApproval":"Manual"`) {
		t.Errorf("for OLM allowed is %v, stored %s", got.allowed, got.object)
	}
}

// broken is an authorizer whose requests fail.
type broken struct{}

func (broken) May(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
	return true, errors.New("the API server is away")
}

// TestOverrideThatCannotBeChecked stays refused: an error is never a yes (threat G5).
func TestOverrideThatCannotBeChecked(t *testing.T) {
	s := named(t, "plan-override")
	existing := append([]*unstructured.Unstructured{}, s.Cluster...)
	existing = append(existing, s.Policies...)
	gate := newGate(t, storeOf(t, existing...), broken{})
	old, object := written(t, s, existing)
	got := send(t, gate, "admin", false, old, object)
	if got.allowed || len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "could not be checked") {
		t.Errorf("allowed is %v, warnings %q", got.allowed, got.warnings)
	}
}
