package gate

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
)

// TestRequestedApprovalIsHeard: a team that goes from Automatic to Manual, in git or by hand, is heard where Opgate has
// stored Manual before, however it writes, with the backstop and without: docs/constraints.md has the table.
func TestRequestedApprovalIsHeard(t *testing.T) {
	t.Run("by the webhooks", func(t *testing.T) { requestIsHeard(t, harness.SharedWithoutBackstop(t)) })
	t.Run("behind the backstop", func(t *testing.T) { requestIsHeard(t, harness.Shared(t)) })
}

func requestIsHeard(t *testing.T, e *harness.Env) {
	namespace := e.NewNamespace(t)
	policy := harness.OperatorPolicy(namespace)
	policy.Object["spec"].(map[string]any)["complianceType"] = "mayhave"
	e.Put(t, policy)
	e.Sync(t)
	document := func(approval string, metadata ...string) string {
		s := harness.Subscription(namespace, "etcd", harness.GoodCatalog, approval)
		for _, m := range metadata {
			key, value, _ := strings.Cut(m, "=")
			if key == metakey.RequestedApproval {
				s.SetAnnotations(map[string]string{key: value})
			} else {
				s.SetLabels(map[string]string{key: value})
			}
		}
		return harness.AsJSON(t, s)
	}
	const (
		asksAutomatic = metakey.RequestedApproval + "=Automatic"
		asksManual    = metakey.RequestedApproval + "=Manual"
		heard         = "asks for Manual from now on (subscription/approval): a user approves its InstallPlans"
	)
	apply := []string{"apply", "-f", "-"}
	serverSide := []string{"apply", "--server-side", "--field-manager=gitops", "-f", "-"}
	other := []string{"apply", "--server-side", "--field-manager=other", "-f", "-"}
	replace := []string{"replace", "-f", "-"}
	change := func(verb string, args ...string) []string {
		return append([]string{verb, "subscriptions.operators.coreos.com", "-n", namespace, "etcd"}, args...)
	}
	manual := `{"spec":{"installPlanApproval":"Manual"}}`
	for name, c := range map[string]struct {
		first, second       []string
		document, documents string // what the first and the second one write
		noted, warned       string
	}{
		"kubectl apply":            {apply, apply, document("Automatic"), document("Manual"), "", heard},
		"kubectl apply, Automatic": {apply, apply, document("Automatic"), document("Automatic", "a=b"), "Automatic", ""},
		"kubectl apply with the annotation": {apply, apply, document("Automatic"), document("Manual", asksAutomatic),
			"Automatic", ""},
		"server-side":            {serverSide, serverSide, document("Automatic"), document("Manual"), "", heard},
		"server-side, a label":   {serverSide, serverSide, document("Automatic"), document("Manual", "a=b"), "", heard},
		"server-side, Automatic": {serverSide, serverSide, document("Automatic"), document("Automatic", "a=b"), "Automatic", ""},
		"server-side with the annotation": {serverSide, serverSide, document("Manual", asksAutomatic),
			document("Manual", asksAutomatic, "a=b"), "Automatic", ""},
		"server-side by another":    {serverSide, other, document("Automatic"), document("Manual"), "", heard},
		"kubectl replace":           {apply, replace, document("Automatic"), document("Manual"), "", heard},
		"the annotation removed":    {apply, change("annotate", metakey.RequestedApproval+"-"), document("Automatic"), "", "", heard},
		"the annotation changed":    {apply, change("annotate", "--overwrite", asksManual), document("Automatic"), "", "Manual", heard},
		"the annotation beside it":  {apply, replace, document("Automatic"), document("Automatic", asksManual), "", "(subscription/approval)"},
		"at once":                   {apply, apply, document("Automatic", asksManual), document("Automatic", asksManual), "", ""},
		"Automatic by value":        {apply, apply, document("Manual"), document("Automatic"), "Automatic", ""},
		"Automatic by annotation":   {apply, change("annotate", asksAutomatic), document("Manual"), "", "Automatic", "asks for Automatic"},
		"a patch is not heard":      {apply, change("patch", "--type=merge", "--patch", manual), document("Automatic"), "", "Automatic", ""},
		"an edit is not heard":      {serverSide, change("patch", "--type=merge", "--field-manager=kubectl-edit", "--patch", manual), document("Automatic"), "", "Automatic", ""},
		"a label is not a request":  {serverSide, change("label", "--overwrite", "a=b"), document("Automatic"), "", "Automatic", ""},
		"nor is one of its manager": {serverSide, change("label", "--overwrite", "--field-manager=gitops", "a=b"), document("Automatic"), "", "Automatic", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sub := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")
			t.Cleanup(func() { e.Remove(t, sub) })
			for range 2 { // the second one changes nothing
				harness.Kubectl(t, e.Cluster, cluster.Tenant, c.document, c.first...)
			}
			warned := warnings(t, e, cluster.Tenant, c.documents, c.second...)
			stored := e.Stored(t, sub)
			if noted := stored.GetAnnotations()[metakey.RequestedApproval]; noted != c.noted || approvalOf(stored) != "Manual" {
				t.Errorf("stored is %s, noted %q, want Manual and %q", approvalOf(stored), noted, c.noted)
			}
			if !strings.Contains(warned, c.warned) || c.warned == "" && strings.Contains(warned, "asks for Manual from now on") {
				t.Errorf("the warning is %q, want %q", warned, c.warned)
			}
		})
	}
}
