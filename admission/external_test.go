package admission

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestFieldsOfAnnotation sends policies as an API server does whose definition of OperatorPolicy another program owns:
// no schema of Opgate has validated them, and what that definition lacks is in the annotation.
func TestFieldsOfAnnotation(t *testing.T) {
	gate := governedGate(t)
	send := func(annotation string, change map[string]any) (allowed bool, message string) {
		t.Helper()
		spec := map[string]any{"remediationAction": "enforce", "complianceType": "musthave",
			"upgradeApproval": "Automatic",
			"subscription":    map[string]any{"name": "etcd", "namespace": "elsewhere"}}
		for field, value := range change {
			spec[field] = value
		}
		object := map[string]any{"apiVersion": "policy.open-cluster-management.io/v1beta1", "kind": "OperatorPolicy",
			"metadata": map[string]any{"name": "etcd", "namespace": "elsewhere",
				"annotations": map[string]any{"opgate.io/conversion": annotation}}, "spec": spec}
		body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
			"request": map[string]any{"uid": "1", "operation": "CREATE", "object": object}})
		if err != nil {
			t.Fatal(err)
		}
		answer := post(t, gate.Handlers()[PathValidateOperatorPolicies], body)
		if answer.Result != nil {
			message = answer.Result.Message
		}
		return answer.Allowed, message
	}
	for _, annotation := range []string{"", `{"versionRange":">=1.0.0 <2.0.0"}`, `{"consent":{"permissions":"Hold"}}`,
		`{"deletion":"Deny"}`,
		`{"approvalWindows":[{"cron":"0 22 * * 6","duration":"4h"}],"deprecated":"Hold"}`} {
		if allowed, message := send(annotation, nil); !allowed {
			t.Errorf("%s: refused: %s", annotation, message)
		}
	}
	for annotation, want := range map[string]string{
		`{"versionRange":7}`:                                 "gate/unreadable",
		`{"versionRange":"x"}`:                               "spec.versionRange",
		`{"consent":{"permissions":"Maybe"}}`:                "spec.consent.permissions",
		`{"consent":{"permission":"Hold"}}`:                  `unknown field "spec.consent.permission"`,
		`{"deletion":"Never"}`:                               "spec.deletion",
		`{"approvalWindows":[{}]}`:                           "spec.approvalWindows[0]",
		`{"range":"1"}`:                                      "metadata.annotations[opgate.io/conversion]",
		`{"freezes":[` + strings.Repeat(`{},`, 500) + `{}]}`: "spec.freezes",
	} {
		if allowed, message := send(annotation, nil); allowed || !strings.Contains(message, want) ||
			len(message) > 16<<10 {
			t.Errorf("%.80s: allowed %v, %d bytes: %.500s; want %q", annotation, allowed, len(message), message, want)
		}
	}
	if allowed, message := send("", map[string]any{"severity": "worst"}); allowed ||
		!strings.Contains(message, "spec.severity") {
		t.Errorf("a value that Opgate's definition does not have: allowed %v: %s", allowed, message)
	}
}
