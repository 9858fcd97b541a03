package gate

import (
	"net/http"
	"net/url"
	"slices"
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
		body: subscriptionBody,
		edits: slices.Concat(fieldEdits(subscriptionBody, "source", `"operatorhubio-catalog"`, `"bargain-catalog"`),
			subscriptionEdits,
			textEdits(subscriptionBody)), compare: sameSubscription,
		forbidden: foreignSubscription, allowed: goodSubscription,
	},
	{
		name: "create a Subscription in YAML", kind: "Subscription", method: http.MethodPost, contentType: typeYAML,
		body: subscriptionBody,
		edits: slices.Concat(fieldEdits(subscriptionBody, "source", `"operatorhubio-catalog"`, `"bargain-catalog"`),
			subscriptionEdits,
			textEdits(subscriptionBody)), compare: sameSubscription,
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
		edits:     slices.Concat(fieldEdits(planBody, "approved", "false", "true"), planEdits, textEdits(planBody)),
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
		edits: append(fieldEdits("", "value", "false", "true"), patchEdits...), compare: samePlan,
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
		body:        planStatusBody, edits: append(fieldEdits(planStatusBody, "phase", `"RequiresApproval"`, `"Installing"`),
			statusEdits...),
		compare: samePlan,
	},
	{
		name: "create a ClusterServiceVersion", kind: "ClusterServiceVersion", method: http.MethodPost,
		contentType: typeJSON, body: csvBody,
		edits: append(fieldEdits(csvBody, "minKubeVersion", `"1.20.0"`, `"1.99.0"`), csvEdits...), compare: sameCSV,
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

// fieldEdits replace a field of a body, with value a, by everything that could be read as b, or as either.
func fieldEdits(body, field, a, b string) []edit {
	member := func(key, value string) string { return `"` + key + `":` + value }
	escaped := `\u00` + hexOf(field[0]) + field[1:]
	title, upper := strings.ToUpper(field[:1])+field[1:], strings.ToUpper(field)
	old := member(field, a)
	var edits []edit
	add := func(replacements ...string) {
		for _, r := range replacements {
			edits = append(edits, edit{old, r})
		}
	}
	add(member(field, b), member(escaped, b), member(escaped, a))
	for _, key := range []string{
		field, escaped, title, upper, strings.NewReplacer("s", "\u017f", "k", "\u212a").Replace(field), field + " ",
		" " + field,
		field + `\u0000`, field + "\u200b",
		field + "\xff", field + `\ud800`, strings.Replace(field, "e", "\u0435", 1), "\ufeff" + field, "",
		field + "." + field, `\/` + field,
	} {
		add(member(field, a)+","+member(key, b), member(key, b)+","+member(field, a))
	}
	for _, value := range []string{"null", "1", "0", `"` + strings.Trim(b, `"`) + `"`, `""`,
		`["` + strings.Trim(b, `"`) + `"]`, "{}", "[]",
		"True", "TRUE", "yes", "1.0"} {
		add(member(field, value), member(field, a)+","+member(field, value), member(field, value)+","+member(field, b),
			member(field, b)+","+member(field, value))
	}
	space := " \t\r\n"
	add(member(field, a)+","+member(field, b)+","+member(field, a), member(field, b)+","+member(field, a)+","+
		member(field, b),
		space+`"`+field+`"`+space+":"+space+b+space,
		"\v"+member(field, b), "\u00a0"+member(field, b), "/**/"+member(field, b), "'"+field+"':"+b, field+":"+b,
		member(field, b)+",",
		","+member(field, b))
	for _, parent := range []string{`"spec":{`, `"status":{`} {
		if !strings.Contains(body, parent) {
			continue
		}
		for _, key := range []string{"spec", "Spec", "SPEC", `\u0073pec`, "status", "Status", `\u0073tatus`,
			"\u017fpec"} {
			edits = append(edits, edit{parent, `"` + key + `":{` + member(field, b) + "}," + parent},
				edit{parent, `"` + key + `":null,` + parent})
		}
	}
	return edits
}

func hexOf(c byte) string { return string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]) }

// textEdits are bodies that are hardly JSON, or JSON in another form.
func textEdits(body string) []edit {
	deep := func(open, end string, n int) string {
		return strings.Replace(body, `"spec":{`, `"unknown":`+strings.Repeat(open, n)+"1"+strings.Repeat(end, n)+
			`,"spec":{`, 1)
	}
	var edits []edit
	for _, text := range []string{
		"\ufeff" + body, body + " \r\n", body + "\x00", body + "}", body + "{}", body + body, body + "//",
		body + "null", body + ",",
		body[:len(body)-1], "[" + body + "]", "",
		"null", "{}", "\x00" + body, "\xff" + body, body + "\xff", strings.ReplaceAll(body, ":", " :\n\t"),
		strings.ReplaceAll(body, `"`, `'`),
		deep("[", "]", 500), deep(`{"a":`, "}", 500), deep(`{"spec":`, "}", 9_000), deep("[", "]", 11_000),
		strings.Replace(body, `"spec":{`, `"spec":{"`+strings.Repeat("long", 16<<10)+`":1,`, 1),
		strings.Replace(body, `"spec":{`, `"":{"":1},"spec":{"":{"":2},"":3,`, 1),
		strings.Replace(body, `"metadata":{`, `"metadata":{"name":"another"},"metadata":{`, 1),
		strings.Replace(body, `"metadata":{`,
			`"Metadata":{"name":"another","annotations":{}},"METADATA":null,"metadata":{`, 1),
		strings.Replace(body, `"metadata":{`, `"metadata":{"name":"another","Name":"third","namespace":"olm",`, 1),
		strings.Replace(body, `"metadata":{`,
			`"metadata":{"creationTimestamp":null,"generation":7.0,"deletionGracePeriodSeconds":1e2,"uid":"",`, 1),
		strings.Replace(body, `"kind":`, `"kind":"Secret","Kind":"Secret","kind":`, 1), strings.Replace(body, `"kind":`,
			`"apiVersion":"v1","KIND":null,"kind":`, 1),
		strings.Replace(body, `"spec":{`,
			`"status":{"phase":"Installing","installedCSV":"a","currentCSV":"b"},"status":{"phase":"Complete"},"spec":{`, 1),
	} {
		edits = append(edits, edit{"", text})
	}
	return edits
}

// strangeTexts are JSON strings.
var strangeTexts = []string{
	`"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, "\"\xff\xfe\"", "\"a\xed\xa0\x80b\"", "\"\xc0\xaf\"",
	`"\/\b\f\u003c\u0026\u2028"`, "\"<&>\u2028\u2029\u0085\ufffd\"",
	"\"a\tb\"", "\"a\nb\"", "\"a\x00b\"", `"\x41"`, `"\u12"`, `"\U00000041"`, `"\'"`, `"a" "b"`, `"a`, `null`, `"null"`,
	`"true"`, `"1"`,
	`"~"`, `""`, "\"\u007f\u200b\u202e\"",
}

// strangeNumbers are numbers, and what looks like some.
var strangeNumbers = []string{
	"1.0", "1e2", "1E+2", "1.5", "-0", "-0.0", "0.0", "1e-2", "100e-2", "9007199254740993", "9007199254740993.0",
	"9223372036854775807",
	"9223372036854775808",
	"-9223372036854775808", "-9223372036854775809", "1e18", "1e19", "1e21", "1e400", "123456789012345678901234567890",
	"01", "-01", "+1",
	".5", "1.", "1e", "-", "0x1", "0b1", "1_000",
	"NaN", "Infinity", "-Infinity", "1.0000000000000000001", "0.1e1", `"1"`, "null", "true", "[1]",
	"1,\"generation\":2", "1,\"Generation\":2",
}

func each(old, before string, values []string, after string) []edit {
	edits := make([]edit, len(values))
	for i, value := range values {
		edits[i] = edit{old, before + value + after}
	}
	return edits
}

var (
	subscriptionEdits = slices.Concat(
		each(`"channel":"alpha"`, `"channel":`, strangeTexts, ""),
		each(`"name":"etcd"`, `"name":`, strangeTexts, ""),
		each(`"example.com/note":"a"`, `"example.com/note":`, strangeTexts, ""),
		each(`"tolerationSeconds":60`, `"tolerationSeconds":`, strangeNumbers, ""),
		each(`"olm.generated-by":"install-a"`, `"olm.generated-by":"install-a",`, []string{
			`"olm.generated-by":"b"`, `"olm.generated-by":null`, `"olm.generated-b\u0079":"b"`,
			`"OLM.generated-by":"b"`,
			`"olm.generated-by\u0000":"b"`, `"":"b"`,
		}, ""),
		each(`"annotations":{`, `"annotations":`, []string{`{"olm.generated-by":"b"}`, "null", "{}", "[]"},
			`,"annotations":{`),
		each(`"labels":{`, "", []string{`"annotations":{"olm.generated-by":"b"}`, `"annotations":null`,
			`"Annotations":{"olm.generated-by":"b"}`}, `,"labels":{`),
	)
	planEdits = slices.Concat(
		each(`"generation":1`, `"generation":`, strangeNumbers, ""),
		each(`"etcdoperator.v0.9.4"`, "", strangeTexts, ""),
		each(`["etcdoperator.v0.9.4"]`, "", []string{"[]", "null", `[null]`, `["etcdoperator.v0.9.4",null]`,
			`["etcdoperator.v0.9.4",]`,
			`"etcdoperator.v0.9.4"`, `{"0":"a"}`}, ""),
		each(`"clusterServiceVersionNames":`, `"clusterServiceVersionNames":`, []string{`["a","b"]`, "null", "[]"},
			`,"clusterServiceVersionNames":`),
	)
	patchEdits = []edit{
		{`"path":`, `"path":"/spec/approval","path":`}, {`"path":`, `"Path":"/spec/approval","path":`},
		{`"op":`, `"op":"remove","op":`},
		{`"op":`, `"OP":"remove","op":`},
		{"/spec/approved", "/spec/Approved"}, {"/spec/approved", `/spec/\u0061pproved`},
		{"/spec/approved", "/spec/approved/"},
		{"/spec/approved", "/Spec/approved"},
		{"", `[{"op":"add","path":"/spec/Approved","value":true}]`}, {"",
			`[{"op":"add","path":"/spec","value":{"approved":true,"approval":"Manual","clusterServiceVersionNames":[]}}]`},
		{"", `[{"op":"replace","path":"/spec","value":{"approved":false,"approved":true,"approval":"Manual","clusterServiceVersionNames":["etcdoperator.v0.9.4"],"generation":1.0}}]`},
		{"", `[{"op":"replace","path":"/spec","value":{"approved":true,"Approved":false,"approval":"Manual","clusterServiceVersionNames":["etcdoperator.v0.9.4"]}}]`},
		{"", `[{"op":"replace","path":"/spec/approved","value":true},{"op":"replace","path":"/spec/approved","value":false}]`},
		{"", `[{"op":"test","path":"/spec/approved","value":false},{"op":"replace","path":"/spec/approved","value":true}]`},
		{"", `[{"op":"copy","from":"/spec/approved","path":"/spec/a"}]`}, {"",
			`[{"op":"add","path":"","value":{"spec":{"approved":true}}}]`}, {"", "[]"}, {"", "null"}, {"", "{}"},
	}
	statusEdits = slices.Concat(
		each(`"message":"a"`, `"message":`, strangeTexts, ""),
		each(`"path":"quay.io/example/etcd"`, `"path":`, strangeTexts, ""),
		each(`"manifest":`, `"manifest":`, strangeTexts, `,"manifest":`),
		each(`"manifest":`, `"Manifest":`, strangeTexts[:4], `,"manifest":`),
		each(`\"metadata\":`, "", []string{`\u0000`, `\ud800`, "\xff", `<&>\u2028`, "\u2028", `\"metadata\":null,`,
			`\"Metadata\":{},`,
			`\"spec\":{},`, `\"kind\":\"ConfigMap\",`}, `\"metadata\":`),
		each(`"optional":true`, `"optional":`, []string{"false", "null", `"true"`, "1", `true,"optional":false`,
			`true,"Optional":false`}, ""),
		each(`"bundleLookups":`, `"bundleLookups":`, []string{"[]", "null", "[null]", "[{}]", `[{"identifier":"a"}]`},
			`,"bundleLookups":`),
		each(`"plan":[`, `"plan":[`, []string{"null,", "{},", "[],"}, ""),
		each(`"plan":[`, `"plan":`, []string{"[]", "null", "{}"}, `,"plan":[`),
		each(`"conditions":[`, `"conditions":[`, []string{`{"type":"Installed","status":"False"},`, "null,",
			`{"type":"Installed","type":"a","lastTransitionTime":null},`}, ""),
	)
	csvEdits = slices.Concat(
		each(`"[]","alm-examples"`, "", strangeTexts, `,"alm-examples"`),
		each(`"replicas":1`, `"replicas":`, strangeNumbers, ""),
		each(`"verbs":["get"]`, `"verbs":["get"],"verbs":`, []string{`["*"]`, "[]", "null", `"*"`, "[null]"}, ""),
		each(`"verbs":["get"]`, `"verbs":["get"],`,
			[]string{`"Verbs":["*"]`, `"verb\u0073":["*"]`, `"verb\u017f":["*"]`,
				`"nonResourceURLs":["*"]`}, ""),
		each(`"clusterPermissions":`, `"clusterPermissions":`, []string{"[]", "null",
			`[{"serviceAccountName":"a","rules":[{"verbs":["*"]}]}]`}, `,"clusterPermissions":`),
		each(`"webhookdefinitions":`, `"webhookDefinitions":`,
			[]string{"[]", "null", `[{"type":"ValidatingAdmissionWebhook"}]`},
			`,"webhookdefinitions":`),
		each(`"install":{`, `"install":`,
			[]string{`{"strategy":"deployment","spec":{"deployments":[],"clusterPermissions":[]}}`, "null",
				"{}"}, `,"install":{`),
	)
)
