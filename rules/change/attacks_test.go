package change

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// operator returns a ClusterServiceVersion whose pods run as an account, with cluster-wide rights to Secrets for
// another one.
func operator(name, runsAs, granted string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":%q},"spec":{
		"displayName":"etcd","version":"1.0.0","install":{"strategy":"deployment","spec":{
		"deployments":[{"name":"etcd","spec":{"selector":{},"template":{"spec":{"serviceAccountName":%q,"containers":[{"name":"c","image":"quay.io/a/b"}]}}}}],
		"clusterPermissions":[{"serviceAccountName":%q,"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}]}}}}`, name, runsAs, granted))
}

// rbacManifest returns a role or a binding.
func rbacManifest(kind, name, fields string) json.RawMessage {
	return json.RawMessage(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"` +
		name + `"},` + fields + `}`)
}

// attack compares two versions in namespace shop.
type attack struct {
	name          string
	before, after []json.RawMessage
	want          []string
}

func (a *attack) run(t *testing.T) {
	t.Run(a.name, func(t *testing.T) {
		from, to := ReadContents("a.v1", "shop", a.before), ReadContents("a.v2", "shop", a.after)
		set := compare(t, from, to)
		if diff := cmp.Diff(a.want, texts(set)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

var (
	installedOperator = operator("a.v1", "etcd", "etcd")
	nextOperator      = operator("a.v2", "etcd", "etcd")
)

// TestC1ForeignAccount binds the rights that the operator has to an account that is not its own (threat O48).
func TestC1ForeignAccount(t *testing.T) {
	const rules = `"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]`
	role := rbacManifest("ClusterRole", "etcd-own", rules)
	bound := func(namespace, name string) json.RawMessage {
		return rbacManifest("ClusterRoleBinding", "etcd-own", `"roleRef":{"kind":"ClusterRole","name":"etcd-own"},
			"subjects":[{"kind":"ServiceAccount","namespace":"`+namespace+`","name":"`+name+`"}]`)
	}
	for _, a := range []attack{
		{
			name: "an account of another namespace", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, role, bound("attacker", "default")},
			want: []string{
				"!permissions: cluster-wide, for ServiceAccount attacker/default: get on secrets",
				"scope: adds ClusterRole etcd-own",
				"scope: adds ClusterRoleBinding etcd-own",
			},
		},
		{
			name: "the operator's name in another namespace", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, role, bound("attacker", "etcd")},
			want: []string{
				"!permissions: cluster-wide, for ServiceAccount attacker/etcd: get on secrets",
				"scope: adds ClusterRole etcd-own",
				"scope: adds ClusterRoleBinding etcd-own",
			},
		},
		{
			name:   "the subject of an installed binding",
			before: []json.RawMessage{installedOperator, role, bound("shop", "etcd")},
			after:  []json.RawMessage{nextOperator, role, bound("attacker", "default")},
			want:   []string{"!permissions: cluster-wide, for ServiceAccount attacker/default: get on secrets"},
		},
		{
			name: "a role of the cluster", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, rbacManifest("ClusterRole", "view", rules)},
			want: []string{"!permissions: cluster-wide, for holders of ClusterRole view: get on secrets",
				"scope: adds ClusterRole view"},
		},
		{
			name: "a role that aggregates by a label of its own", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator,
				json.RawMessage(strings.Replace(string(role), `"name":`, `"labels":{"example.com/to":"ops"},"name":`,
					1))},
			want: []string{
				"!permissions: cluster-wide, for holders of ClusterRoles that aggregate example.com/to=ops: get on secrets",
				"scope: adds ClusterRole etcd-own",
			},
		},
		{
			name:   "an account that the ClusterServiceVersion grants the rights to",
			before: []json.RawMessage{installedOperator},
			after:  []json.RawMessage{operator("a.v2", "etcd", "tenant")},
			want:   []string{"!permissions: grants rights to ServiceAccount tenant, before etcd"},
		},
		{
			name:   "control: the operator's own account",
			before: []json.RawMessage{installedOperator, role, bound("shop", "etcd")},
			after:  []json.RawMessage{nextOperator, role, bound("shop", "etcd")},
		},
		{
			name: "control: a group", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, role, rbacManifest("ClusterRoleBinding", "etcd-own",
				`"roleRef":{"kind":"ClusterRole","name":"etcd-own"},"subjects":[{"kind":"Group","name":"system:authenticated"}]`)},
			want: []string{
				"!permissions: cluster-wide, for Group system:authenticated: get on secrets",
				"scope: adds ClusterRole etcd-own",
				"scope: adds ClusterRoleBinding etcd-own",
			},
		},
	} {
		a.run(t)
	}
}

// TestC3RunsAs runs the pods as another account, whose rights are not compared (threat O50).
func TestC3RunsAs(t *testing.T) {
	account := func(metadata, fields string) json.RawMessage {
		return json.RawMessage(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"etcd"` + metadata + `}` +
			fields + `}`)
	}
	for _, a := range []attack{
		{
			name: "another account of the namespace", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{operator("a.v2", "vault-operator", "etcd")},
			want:  []string{"!permissions: runs as ServiceAccount vault-operator, before etcd"},
		},
		{
			name: "another account, with rights of its own", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{operator("a.v2", "vault-operator", "vault-operator")},
			want: []string{
				"!permissions: grants rights to ServiceAccount vault-operator, before etcd",
				"!permissions: runs as ServiceAccount vault-operator, before etcd",
			},
		},
		{
			name: "no account", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{operator("a.v2", "", "etcd")},
			want:  []string{"!permissions: runs as ServiceAccount default, before etcd"},
		},
		{
			name: "the field of old", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{json.RawMessage(strings.Replace(string(nextOperator),
				`"serviceAccountName":"etcd","containers"`, `"serviceAccount":"vault-operator","containers"`, 1))},
			want: []string{"!permissions: runs as ServiceAccount vault-operator, before etcd"},
		},
		{
			name: "the field in another case", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{json.RawMessage(strings.Replace(string(nextOperator),
				`"serviceAccountName":"etcd","containers"`, `"SERVICEaccountName":"vault-operator","containers"`, 1))},
			want: []string{"!permissions: runs as ServiceAccount vault-operator, before etcd"},
		},
		{
			name: "an account with a role of a cloud", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, account(`,"annotations":{"eks.amazonaws.com/role-arn":"admin"}`,
				"")},
			want: []string{"permissions: adds ServiceAccount etcd"},
		},
		{
			name:   "an annotation of the ClusterServiceVersion, which OLM copies to pods",
			before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{json.RawMessage(strings.Replace(string(nextOperator), `"name":"a.v2"`,
				`"name":"a.v2","annotations":{"iam.amazonaws.com/role":"admin","createdAt":"today"}`, 1))},
			want: []string{"podSecurity: metadata.annotations.iam.amazonaws.com/role admin"},
		},
		{
			name: "control: the account that OLM derives", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, account(`,"namespace":"shop","ownerReferences":[]`, "")},
		},
	} {
		a.run(t)
	}
}

// TestC4TokenSecret brings a Secret that Kubernetes fills with the token of another account, and mounts it (threat
// O50).
func TestC4TokenSecret(t *testing.T) {
	secret := func(kind, account string) json.RawMessage {
		return json.RawMessage(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t","annotations":{"kubernetes.io/service-account.name":"` + account +
			`"}},"type":"` + kind + `"}`)
	}
	pod := func(fields string) json.RawMessage {
		return json.RawMessage(strings.Replace(string(nextOperator), `"containers":[{"name":"c",`, fields, 1))
	}
	const token = "kubernetes.io/service-account-token"
	for _, a := range []attack{
		{
			name: "a token of another account, mounted", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{pod(
				`"volumes":[{"name":"t","secret":{"secretName":"t"}}],"containers":[{"name":"c",`), secret(token,
				"vault-operator")},
			want: []string{
				"!permissions: token of ServiceAccount vault-operator in Secret t",
				"permissions: adds Secret t",
				"podSecurity: mounts Secret t",
			},
		},
		{
			name:   "an installed Secret, for another account",
			before: []json.RawMessage{installedOperator, secret(token, "etcd")},
			after:  []json.RawMessage{nextOperator, secret(token, "vault-operator")},
			want: []string{
				"!permissions: token of ServiceAccount vault-operator in Secret t",
				"permissions: changes Secret t: metadata.annotations.kubernetes.io/service-account.name",
			},
		},
		{
			name:   "an installed Secret, of another type",
			before: []json.RawMessage{installedOperator, secret("Opaque", "vault-operator")},
			after:  []json.RawMessage{nextOperator, secret(token, "vault-operator")},
			want: []string{
				"!permissions: token of ServiceAccount vault-operator in Secret t",
				"permissions: changes Secret t: type",
			},
		},
		{
			name: "a token that a tenant made, by the environment", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{pod(
				`"containers":[{"name":"c","envFrom":[{"secretRef":{"name":"t"}}],"env":[{"name":"a","valueFrom":{"secretKeyRef":{"name":"u","key":"token"}}}],`)},
			want: []string{"podSecurity: reads Secret t", "podSecurity: reads Secret u"},
		},
		{
			name: "a token that is projected", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{pod(
				`"volumes":[{"name":"t","projected":{"sources":[{"serviceAccountToken":{"audience":"vault","path":"t"}},{"secret":{"name":"t"}}]}}],"containers":[{"name":"c",`)},
			want: []string{"podSecurity: mounts Secret t",
				"podSecurity: mounts a token of its ServiceAccount for audience vault"},
		},
		{
			name:   "control: the same Secret as before",
			before: []json.RawMessage{installedOperator, secret(token, "etcd")},
			after:  []json.RawMessage{nextOperator, secret(token, "etcd")},
		},
	} {
		a.run(t)
	}
}

// TestC5Siblings are other objects that no class reported.
func TestC5Siblings(t *testing.T) {
	object := func(apiVersion, kind, fields string) json.RawMessage {
		return json.RawMessage(`{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"x"},` +
			fields + `}`)
	}
	hooks := func(service string) json.RawMessage {
		return object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration",
			`"webhooks":[{"name":"h","clientConfig":{"service":{"namespace":"`+
				service+`","name":"hook"}},`+hookRule("apps", "deployments", `"CREATE"`)+`}]`)
	}
	conversion := json.RawMessage(strings.Replace(string(definitionManifest(`{}`, "v1")), `"scope":`,
		`"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"service":{"namespace":"attacker","name":"hook"}}}},"scope":`, 1))
	for _, a := range []attack{
		{
			name: "a webhook that calls another Service", before: []json.RawMessage{installedOperator, hooks("shop")},
			after: []json.RawMessage{nextOperator, hooks("attacker")},
			want:  []string{"!webhooks: validating webhook h calls Service attacker/hook"},
		},
		{
			name: "a conversion by another Service", before: []json.RawMessage{installedOperator,
				definitionManifest(`{}`, "v1")},
			after: []json.RawMessage{nextOperator, conversion},
			want: []string{
				"!webhooks: conversion of things.example.com by Service attacker/hook",
				"breakingCRDs: things.example.com: conversion changed: None -> Webhook",
			},
		},
		{
			name: "a kind that only looks like webhooks", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, object("example.com/v1", "MyWebhookConfiguration", `"a":1`)},
			want:  []string{"scope: adds MyWebhookConfiguration x"},
		},
		{
			name:   "a PriorityClass for all pods",
			before: []json.RawMessage{installedOperator, object("scheduling.k8s.io/v1", "PriorityClass", `"value":1`)},
			after: []json.RawMessage{nextOperator,
				object("scheduling.k8s.io/v1", "PriorityClass", `"value":1000,"globalDefault":true`)},
			want: []string{"scope: changes PriorityClass x: globalDefault, value"},
		},
		{
			name:   "a Service for an address of others",
			before: []json.RawMessage{installedOperator, object("v1", "Service", `"spec":{"ports":[]}`)},
			after: []json.RawMessage{nextOperator,
				object("v1", "Service", `"spec":{"ports":[],"externalIPs":["10.0.0.1"]}`)},
			want: []string{"scope: changes Service x: spec.externalIPs"},
		},
		{
			name:   "no NetworkPolicy any more",
			before: []json.RawMessage{installedOperator, object("networking.k8s.io/v1", "NetworkPolicy", `"spec":{}`)},
			after:  []json.RawMessage{nextOperator},
			want:   []string{"scope: no longer has NetworkPolicy x"},
		},
		{
			name: "a Subscription that no dependency asks for", before: []json.RawMessage{installedOperator},
			after: []json.RawMessage{nextOperator, object("operators.coreos.com/v1alpha1", "Subscription",
				`"spec":{"name":"vault","source":"mine","sourceNamespace":"shop"}`)},
			want: []string{"!scope: adds Subscription x"},
		},
	} {
		a.run(t)
	}
	set := Compare(ReadContents("a.v1", "shop", []json.RawMessage{installedOperator}), ReadContents("a.v2", "shop",
		[]json.RawMessage{nextOperator, object("v1", "Secret", `"Metadata":{"name":"y"}`)}))
	if !strings.Contains(set.Fault, "defines its kind or its metadata twice, or in another case") {
		t.Errorf("fault %q for a name in another case", set.Fault)
	}
}
