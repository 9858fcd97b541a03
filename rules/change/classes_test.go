package change

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// specManifest returns a ClusterServiceVersion with fields of its spec.
func specManifest(fields string) json.RawMessage {
	return json.RawMessage(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"a.v1"},"spec":{` +
		`"displayName":"d","version":"1.0.0"` + strings.TrimSuffix(","+fields, ",") + `}}`)
}

// rulesField returns the field install with rules.
func rulesField(clusterWide, namespaced string) string {
	return `"install":{"strategy":"deployment","spec":{"deployments":[],"clusterPermissions":[{"serviceAccountName":"a","rules":[` + clusterWide +
		`]}],"permissions":[{"serviceAccountName":"a","rules":[` + namespaced + `]}]}}`
}

// podField returns the field install with one pod.
func podField(spec string) string {
	return `"install":{"strategy":"deployment","spec":{"deployments":[{"name":"d","spec":{"selector":{},"template":{"spec":{` + spec + `}}}}]}}`
}

// hook returns the field webhookdefinitions with one validating webhook.
func hook(fields string) string {
	return `"webhookdefinitions":[{"type":"ValidatingAdmissionWebhook","generateName":"v.example.com","sideEffects":"None","admissionReviewVersions":["v1"],` +
		fields + `}]`
}

// hookRule returns the field rules with one rule.
func hookRule(group, resource, operations string) string {
	return `"rules":[{"apiGroups":["` + group + `"],"apiVersions":["v1"],"resources":["` + resource +
		`"],"operations":[` + operations + `]}]`
}

const (
	getPods    = `{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}`
	everything = `{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}`
	restricted = `"securityContext":{"runAsNonRoot":true},"containers":[{"name":"c","image":"quay.io/a/b","securityContext":{"allowPrivilegeEscalation":false`
)

func TestClasses(t *testing.T) {
	rbac := func(kind, name, fields string) string {
		return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"` + name +
			`"},` + fields + `}`
	}
	for _, test := range []struct {
		name string
		// before and after are fields of the spec, beforeObjects and afterObjects other objects.
		before, after               string
		beforeObjects, afterObjects []string
		want, notes                 []string
	}{
		{
			name:   "rights that a wildcard covered",
			before: rulesField(`{"apiGroups":[""],"resources":["*"],"verbs":["get","list"]}`, ""),
			after:  rulesField(getPods+`,{"apiGroups":[""],"resources":["secrets"],"verbs":["list"]}`, ""),
		},
		{
			name:   "namespaced rights that were cluster-wide, and the other way round",
			before: rulesField(getPods, `{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get"]}`),
			after:  rulesField(`{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get"]}`, getPods),
			want:   []string{"permissions: cluster-wide: get on deployments (apps)"},
		},
		{
			name:   "risky rights first",
			before: rulesField(getPods, ""),
			after: rulesField(`{"apiGroups":[""],"resources":["pods","nodes","services"],"verbs":["list","get"]},
				{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["escalate"],"resourceNames":["x"]},
				{"nonResourceURLs":["/metrics"],"verbs":["get"]},{"nonResourceURLs":["*"],"verbs":["get"]},
				{"apiGroups":["apps"],"resources":["deployments/status"],"verbs":["get"]}`, ""),
			want: []string{
				"!permissions: cluster-wide: escalate on clusterroles (rbac.authorization.k8s.io) named x",
				"!permissions: cluster-wide: get on URLs *, /metrics",
				"!permissions: cluster-wide: get, list on nodes",
				"permissions: cluster-wide: get on deployments/status (apps)",
				"permissions: cluster-wide: get, list on services",
				"permissions: cluster-wide: list on pods",
			},
		},
		{
			name:   "a name of a resource that was allowed by another name",
			before: rulesField(`{"apiGroups":[""],"resources":["secrets"],"verbs":["get"],"resourceNames":["a"]}`, ""),
			after: rulesField(`{"apiGroups":[""],"resources":["secrets"],"verbs":["get"],"resourceNames":["a","b"]}`,
				""),
			want: []string{"!permissions: cluster-wide: get on secrets named b"},
		},
		{
			name:   "all rights already",
			before: rulesField(everything, ""),
			after:  rulesField(everything+`,{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}`, ""),
			notes:  []string{"a.v1 has all rights already (* on * in every group, cluster-wide), so new permissions of the operator are not shown"},
		},
		{
			name:   "roles of the bundle and outside it",
			before: rulesField("", ""),
			after:  rulesField("", ""),
			afterObjects: []string{
				rbac("ClusterRole", "own", `"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["get"]}]`),
				rbac("ClusterRole", "unbound", `"rules":[`+everything+`]`),
				rbac("ClusterRoleBinding", "own",
					`"roleRef":{"kind":"ClusterRole","name":"own"},"subjects":[{"kind":"ServiceAccount","name":"a"}]`),
				rbac("ClusterRoleBinding", "admin",
					`"roleRef":{"kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"ServiceAccount","name":"a"}]`),
				rbac("RoleBinding", "all",
					`"roleRef":{"kind":"ClusterRole","name":"own"},"subjects":[{"kind":"Group","name":"system:authenticated"}]`),
			},
			want: []string{
				"!permissions: cluster-wide, for holders of ClusterRole unbound: * on * (*)",
				"!permissions: cluster-wide: binds ClusterRole cluster-admin",
				"!permissions: cluster-wide: get on nodes",
				"!permissions: in its namespaces, for Group system:authenticated: get on nodes",
				"scope: adds ClusterRole own",
				"scope: adds ClusterRole unbound",
				"scope: adds ClusterRoleBinding admin",
				"scope: adds ClusterRoleBinding own",
				"scope: adds RoleBinding all",
			},
		},
		{
			name: "rules for the users of a default role",
			afterObjects: []string{`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"v","labels":
				{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`},
			want: []string{
				"!permissions: cluster-wide, for holders of ClusterRole view: get on secrets",
				"scope: adds ClusterRole v",
			},
		},
		{
			name: "a binding that says it is derived from the ClusterServiceVersion",
			afterObjects: []string{`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"x","labels":
				{"olm.permissions.hash":"x"}},"rules":[` + everything + `]}`},
			want: []string{"!permissions: cluster-wide, for holders of ClusterRole x: * on * (*)",
				"scope: adds ClusterRole x"},
		},
		{
			name:   "a webhook on its own kind",
			before: hook(hookRule("example.com", "things", `"CREATE"`)),
			after:  hook(hookRule("example.com", "things", `"CREATE","UPDATE"`)),
			want:   []string{"webhooks: validating webhook v.example.com also matches: UPDATE of things (example.com)"},
		},
		{
			name:   "a webhook on everything",
			before: hook(hookRule("", "pods", `"*"`)),
			after:  hook(hookRule("*", "*", `"*"`)),
			want:   []string{"!webhooks: validating webhook v.example.com also matches: * of * (*)"},
		},
		{
			name:   "a webhook that matches less",
			before: hook(hookRule("*", "*", `"*"`)),
			after: hook(`"objectSelector":{"matchLabels":{"a":"b"}},"failurePolicy":"Ignore",` +
				hookRule("", "pods", `"CREATE"`)),
		},
		{
			name: "a webhook with less of a selector, that fails closed",
			before: hook(`"objectSelector":{"matchLabels":{"a":"b"}},"failurePolicy":"Ignore","matchPolicy":"Exact",` +
				hookRule("", "pods", `"CREATE"`)),
			after: hook(hookRule("", "pods", `"CREATE"`)),
			want: []string{
				"!webhooks: validating webhook v.example.com matches other objects (objectSelector)",
				"!webhooks: validating webhook v.example.com matches other versions of the same API (matchPolicy Equivalent)",
				"!webhooks: validating webhook v.example.com refuses what it cannot check now (failurePolicy Fail)",
			},
		},
		{
			name: "a webhook configuration that calls out",
			beforeObjects: []string{`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"m"},
				"webhooks":[{"name":"m.example.com","clientConfig":{"service":{}},` + hookRule("apps", "deployments", `"CREATE"`) + `}]}`},
			afterObjects: []string{`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"m"},
				"webhooks":[{"name":"m.example.com","clientConfig":{"url":"https://evil.example.com"},` + hookRule("apps", "deployments", `"CREATE"`) + `}]}`},
			want: []string{`!webhooks: mutating webhook m.example.com calls "https://evil.example.com"`},
		},
		{
			name:          "a conversion webhook",
			after:         `"webhookdefinitions":[{"type":"ConversionWebhook","generateName":"c","sideEffects":"None","admissionReviewVersions":["v1"],"conversionCRDs":["things.example.com"]}]`,
			beforeObjects: []string{string(definitionManifest(`{"type":"object"}`, "v1"))},
			afterObjects:  []string{string(definitionManifest(`{"type":"object"}`, "v1"))},
			want: []string{
				"webhooks: adds conversion webhook of things.example.com",
				"breakingCRDs: things.example.com: conversion changed: None -> Webhook",
			},
		},
		{
			name: "a narrower schema",
			beforeObjects: []string{string(
				definitionManifest(`{"properties":{"a":{"type":"string"},"b":{"properties":{"c":{},"d":{}}},"e":{"enum":["x"]}}}`, "v1"))},
			afterObjects: []string{string(
				definitionManifest(`{"required":["z","a"],"properties":{"a":{"type":"string","maxLength":5,"pattern":"^a"},"e":{"enum":["x","y"]}}}`, "v1"))},
			want: []string{
				"breakingCRDs: things.example.com: v1: a: changed: pattern",
				"breakingCRDs: things.example.com: v1: a: maximum constraint added when there was none previously: 5",
				"breakingCRDs: things.example.com: v1: b is removed",
				"breakingCRDs: things.example.com: v1: the object: new required fields: a, z",
			},
		},
		{
			name:          "a version with other fields, without conversion",
			beforeObjects: []string{string(definitionManifest(`{"properties":{"a":{"type":"string"}}}`, "v1"))},
			afterObjects: []string{strings.Replace(
				string(definitionManifest(`{"properties":{"a":{"type":"string"}}}`, "v1", "v2")),
				`"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"properties":{"a":`,
				`"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"properties":{"b":`, 1)},
			want: []string{
				"breakingCRDs: things.example.com: v1 -> v2: a is removed",
				"crds: adds version v2 of things.example.com",
			},
		},
		{
			name:          "another scope, and a version that is not served",
			beforeObjects: []string{string(definitionManifest(`{}`, "v1"))},
			afterObjects: []string{strings.NewReplacer("Namespaced", "Cluster", `"served":true`,
				`"served":false`).Replace(string(definitionManifest(`{}`, "v1")))},
			want: []string{
				"breakingCRDs: things.example.com: scope changed: Namespaced -> Cluster",
				"breakingCRDs: things.example.com: version v1 is no longer served",
			},
		},
		{
			name:   "a pod that reaches the node",
			before: podField(restricted + `}}]`),
			after: podField(`"hostNetwork":true,"hostPID":true,"volumes":[{"name":"v","hostPath":{"path":"/var/lib"}}],` + restricted +
				`,"privileged":true,"runAsUser":0,"capabilities":{"add":["cap_sys_admin","CHOWN"]}},"ports":[{"containerPort":1,"hostPort":80}]}]`),
			want: []string{
				"!podSecurity: capability SYS_ADMIN",
				"!podSecurity: hostNetwork",
				"!podSecurity: hostPID",
				"!podSecurity: hostPath /var/lib",
				"!podSecurity: privileged container",
				"podSecurity: capability CHOWN",
				"podSecurity: hostPort 80",
				"podSecurity: runAsUser 0",
			},
		},
		{
			name:   "pods of other objects",
			before: podField(restricted + `}}]`),
			after:  podField(restricted + `}}]`),
			afterObjects: []string{`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"d"},"spec":{"template":{"spec":{"hostIPC":true,` + restricted + `}}]}}}}`,
				`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"c"},"spec":{"jobTemplate":{"spec":{"template":{"spec":{"hostPID":true,` + restricted + `}}]}}}}}}`},
			want: []string{"!podSecurity: hostIPC", "!podSecurity: hostPID", "scope: adds CronJob c",
				"scope: adds DaemonSet d"},
		},
		{
			name:   "security context constraints",
			before: podField(restricted + `}}]`),
			after:  podField(restricted + `}}]`),
			afterObjects: []string{`{"apiVersion":"security.openshift.io/v1","kind":"SecurityContextConstraints","metadata":{"name":"s"},
				"allowHostNetwork":true,"allowHostPID":false,"allowedCapabilities":["*"]}`},
			want: []string{
				"!podSecurity: SecurityContextConstraints s: allowHostNetwork true",
				`!podSecurity: SecurityContextConstraints s: allowedCapabilities ["*"]`,
				"!scope: adds SecurityContextConstraints s",
			},
		},
		{
			name:   "images of others",
			before: podField(restricted+`}}]`) + `,"relatedImages":[{"name":"r","image":"registry.local:5000/etcd"}]`,
			after: podField(restricted+`},"env":[{"name":"RELATED_IMAGE_X","value":"ghcr.io/x/y:v1"}]}]`) +
				`,"relatedImages":[{"name":"r","image":"registry.local:5000/other@sha256:ab"},{"name":"b","image":"busybox"},{"name":"e","image":"quay.io/evil/b"}]`,
			want: []string{"images: images from docker.io/library", "images: images from ghcr.io/x",
				"images: images from quay.io/evil"},
		},
		{
			name:   "cluster-scoped objects and install modes",
			before: `"installModes":[{"type":"OwnNamespace","supported":true},{"type":"AllNamespaces","supported":false}]`,
			after:  `"installModes":[{"type":"AllNamespaces","supported":true}],"apiservicedefinitions":{"owned":[{"name":"n","group":"g.example.com","version":"v1","kind":"K"}]}`,
			afterObjects: []string{`{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"p"}}`,
				`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"}}`,
				`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"}}`,
				string(definitionManifest(`{}`, "v1"))},
			beforeObjects: []string{string(definitionManifest(`{}`, "v1"))},
			want: []string{
				"!scope: adds APIService v1.g.example.com",
				"scope: adds PriorityClass p",
				"scope: adds Service s",
				"scope: adds Thing t",
				"scope: supports install mode AllNamespaces",
			},
		},
		{
			name:   "requirements",
			before: `"minKubeVersion":"1.20.0","customresourcedefinitions":{"required":[{"name":"a.example.com","version":"v1","kind":"A"}]}`,
			after:  `"minKubeVersion":"1.30.0","customresourcedefinitions":{"required":[{"name":"a.example.com","version":"v1","kind":"A"},{"name":"b.example.com","version":"v1","kind":"B"}]}`,
			want: []string{"requirements: requires CustomResourceDefinition b.example.com",
				"requirements: requires Kubernetes 1.30.0"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			bundle := func(fields string, objects []string) *Contents {
				manifests := []json.RawMessage{specManifest(fields)}
				for _, o := range objects {
					manifests = append(manifests, json.RawMessage(o))
				}
				return read(t, "a.v1", manifests)
			}
			set := compare(t, bundle(test.before, test.beforeObjects), bundle(test.after, test.afterObjects))
			if diff := cmp.Diff(test.want, texts(set)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.notes, set.Notes); diff != "" {
				t.Errorf("notes, -want +got:\n%s", diff)
			}
		})
	}
}
