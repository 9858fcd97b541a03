package gate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	subscriptionBody = `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":"NAME","namespace":"NAMESPACE",` +
		`"annotations":{"olm.generated-by":"install-a","example.com/note":"a"},"labels":{"olm.copiedFrom":"a"}},` +
		`"spec":{"name":"etcd","channel":"alpha","source":"operatorhubio-catalog","sourceNamespace":"olm","installPlanApproval":"Manual",` +
		`"config":{"env":[{"name":"X","value":"1"}],"tolerations":[{"key":"a","tolerationSeconds":60}]}}}`
	planBody = `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"InstallPlan","metadata":{"name":"NAME","namespace":"NAMESPACE",` +
		`"resourceVersion":"VERSION","labels":{"a":"b"}},` +
		`"spec":{"approval":"Manual","approved":false,"generation":1,"clusterServiceVersionNames":["etcdoperator.v0.9.4"]}}`
	planStatusBody = `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"InstallPlan","metadata":{"name":"NAME","namespace":"NAMESPACE",` +
		`"resourceVersion":"VERSION"},"spec":{"approval":"Manual","approved":true,"clusterServiceVersionNames":[]},` +
		`"status":{"phase":"RequiresApproval","catalogSources":["operatorhubio-catalog"],"message":"a",` +
		`"conditions":[{"type":"Installed","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}],` +
		`"attenuatedServiceAccountRef":{"namespace":"shop","name":"installer"},` +
		`"bundleLookups":[{"identifier":"etcdoperator.v0.9.4","path":"quay.io/example/etcd","replaces":"","catalogSourceRef":{"namespace":"olm",` +
		`"name":"operatorhubio-catalog"},"properties":"{\"properties\":[]}"}],` +
		`"plan":[{"resolving":"etcdoperator.v0.9.4","status":"Unknown","optional":true,"resource":{"group":"operators.coreos.com","version":"v1alpha1",` +
		`"kind":"ClusterServiceVersion","name":"etcdoperator.v0.9.4","sourceName":"operatorhubio-catalog","sourceNamespace":"olm",` +
		`"manifest":"{\"metadata\":{\"annotations\":{\"operatorframework.io/properties\":\"{}\"}},\"spec\":{\"minKubeVersion\":\"1.2.3\"}}"}}]}}`
	csvBody = `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"NAME","namespace":"NAMESPACE",` +
		`"annotations":{"operatorframework.io/properties":"{\"properties\":[]}","olm.properties":"[]","alm-examples":"[]"},"labels":{"olm.copiedFrom":"a"}},` +
		`"spec":{"displayName":"Etcd","version":"0.9.4","minKubeVersion":"1.20.0","install":{"strategy":"deployment","spec":{` +
		`"deployments":[{"name":"etcd","spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
		`"spec":{"containers":[{"name":"a","image":"a","ports":[{"containerPort":80}]}]}}}}],` +
		`"clusterPermissions":[{"serviceAccountName":"etcd","rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}],` +
		`"permissions":[{"serviceAccountName":"etcd","rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}]}},` +
		`"webhookdefinitions":[{"type":"ConversionWebhook","generateName":"a","sideEffects":"None","admissionReviewVersions":["v1"],` +
		`"conversionCRDs":["a.example.com"],"containerPort":443}]}}`
	policyBody = `{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy","metadata":{"name":"NAME","namespace":"NAMESPACE"},` +
		`"spec":{"remediationAction":"inform","complianceType":"musthave","subscription":{"name":"vault","namespace":"NAMESPACE-other",` +
		`"source":"operatorhubio-catalog","sourceNamespace":"olm"},"versions":["vault.v1.0.0"],"upgradeApproval":"None"}}`
	approvalPatch = `{"metadata":{"labels":{"a":"b"}},"spec":{"approved":false}}`

	presentCSV = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: present, namespace: %s}
spec: {displayName: Etcd, install: {strategy: deployment}}
`
	presentPolicy = `
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: present, namespace: %[1]s}
spec:
  remediationAction: inform
  complianceType: musthave
  subscription: {name: consul, namespace: %[1]s-other, source: operatorhubio-catalog, sourceNamespace: olm}
  upgradeApproval: None
`
)

// Media types of bodies.
const (
	typeJSON      = "application/json"
	typeYAML      = "application/yaml"
	typeMerge     = "application/merge-patch+json"
	typeJSONPatch = "application/json-patch+json"
	typeApply     = "application/apply-patch+yaml"
)

var applied = url.Values{"fieldManager": {"semantics"}, "force": {"true"}}

// writes are all ways to write what rules read.
var writes = []write{
	{
		name: "create a Subscription", kind: "Subscription", method: http.MethodPost, contentType: typeJSON,
		body:  subscriptionBody,
		edits: fieldEdits(subscriptionBody, "source", `"operatorhubio-catalog"`, `"bargain-catalog"`), compare: sameSubscription,
		forbidden: foreignSubscription, allowed: goodSubscription,
	},
	{
		name: "create a Subscription in YAML", kind: "Subscription", method: http.MethodPost, contentType: typeYAML,
		body:  subscriptionBody,
		edits: fieldEdits(subscriptionBody, "source", `"operatorhubio-catalog"`, `"bargain-catalog"`), compare: sameSubscription,
		forbidden: foreignSubscription, allowed: goodSubscription,
	},
	{
		name: "apply a Subscription", kind: "Subscription", method: http.MethodPatch, contentType: typeApply,
		query:     applied,
		body:      subscriptionBody,
		edits:     fieldEdits(subscriptionBody, "source", `"operatorhubio-catalog"`, `"bargain-catalog"`),
		compare:   sameSubscription,
		forbidden: foreignSubscription, allowed: goodSubscription,
	},
	{
		name: "replace a plan", kind: "InstallPlan", method: http.MethodPut, contentType: typeJSON, body: planBody,
		edits:     fieldEdits(planBody, "approved", "false", "true"),
		compare:   samePlan,
		forbidden: approvedPlan, allowed: waitingPlan,
	},
	{
		name: "merge into a plan", kind: "InstallPlan", method: http.MethodPatch, contentType: typeMerge,
		body:  approvalPatch,
		edits: fieldEdits(approvalPatch, "approved", "false", "true"), compare: samePlan, forbidden: approvedPlan,
		allowed: waitingPlan,
	},
	{
		name: "patch a plan", kind: "InstallPlan", method: http.MethodPatch, contentType: typeJSONPatch,
		body:  `[{"op":"replace","path":"/spec/approved","value":false}]`,
		edits: fieldEdits("", "value", "false", "true"), compare: samePlan,
		forbidden: approvedPlan, allowed: waitingPlan,
	},
	{
		name: "apply a plan", kind: "InstallPlan", method: http.MethodPatch, contentType: typeApply, query: applied,
		body:  strings.Replace(planBody, `"resourceVersion":"VERSION",`, "", 1),
		edits: fieldEdits(planBody, "approved", "false", "true"), compare: samePlan, forbidden: approvedPlan,
		allowed: waitingPlan,
	},
	{
		name: "replace the status of a plan", kind: "InstallPlan", subresource: "status", method: http.MethodPut,
		contentType: typeJSON,
		body:        planStatusBody, edits: fieldEdits(planStatusBody, "phase", `"RequiresApproval"`, `"Installing"`),
		compare: samePlan,
	},
	{
		name: "create a ClusterServiceVersion", kind: "ClusterServiceVersion", method: http.MethodPost,
		contentType: typeJSON, body: csvBody,
		edits: fieldEdits(csvBody, "minKubeVersion", `"1.20.0"`, `"1.99.0"`), compare: sameCSV,
	},
	{
		name: "create an OperatorPolicy", kind: "OperatorPolicy", method: http.MethodPost, contentType: typeJSON,
		body:  policyBody,
		edits: fieldEdits(policyBody, "complianceType", `"musthave"`, `"mustnothave"`), compare: samePolicy,
	},
	{
		name: "merge into an OperatorPolicy", kind: "OperatorPolicy", method: http.MethodPatch, contentType: typeMerge,
		body:  `{"metadata":{"labels":{"a":"b"}},"spec":{"remediationAction":"inform","versions":["consul.v1.0.0"]}}`,
		edits: fieldEdits(`"spec":{`, "remediationAction", `"inform"`, `"enforce"`), compare: samePolicy,
	},
}

// fieldEdits replace a field of a body, with value a, by what could be read as b, or as either. FuzzSemantics of
// internal/apijson has texts of all kinds.
func fieldEdits(body, field, a, b string) []edit {
	member := func(key, value string) string { return `"` + key + `":` + value }
	escaped := fmt.Sprintf(`\u%04x%s`, field[0], field[1:])
	old := member(field, a)
	edits := []edit{{old, member(field, b)}, {old, member(escaped, b)}, {old, member(field, "null")},
		{old, member(field, "1.0")}, {old, member(field, a) + "," + member(field, "null")}}
	for _, key := range []string{field, escaped, strings.ToUpper(field[:1]) + field[1:], field + `\u0000`} {
		edits = append(edits, edit{old, member(field, a) + "," + member(key, b)},
			edit{old, member(key, b) + "," + member(field, a)})
	}
	for _, parent := range []string{`"spec":{`, `"status":{`} {
		if strings.Contains(body, parent) {
			edits = append(edits, edit{parent, `"spec":{` + member(field, b) + "}," + parent},
				edit{parent, `"Spec":{` + member(field, b) + "}," + parent})
		}
	}
	return edits
}
