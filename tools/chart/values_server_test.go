package chart_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Definitions that the chart has.
const (
	policyDefinition     = "operatorpolicies.policy.open-cluster-management.io"
	constraintDefinition = "constraints.operators.coreos.com"
)

// orderingDefinitions are those that are only there with ordering.
var orderingDefinitions = []string{"policies.policy.open-cluster-management.io",
	"policysets.policy.open-cluster-management.io"}

// serverCases are values that say what the server does.
func serverCases() []valueCase {
	return []valueCase{
		{
			name: "values that are one flag each",
			values: `
policy:
  approvalMode: deny
  backstop: audit
  ungoverned: hold
  defaultNamespace: operators
  statusHistoryLength: 3
  maxStaleness: 1m
  probeStaticPolicies: true
log: {level: debug, format: console}
drain: {delay: 20s, timeout: 30s}
tls: {minVersion: VersionTLS13, cipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]}
certificates: {selfManaged: {caLifetime: 720h, certificateLifetime: 24h, caOverlap: 1h30m}}
ordering: {pendingGuards: delete}`,
			check: func(t *testing.T, o objects) {
				for name, want := range map[string]string{
					"approval-mode": "deny", "backstop": "audit", "ungoverned": "hold",
					"operator-policy-default-namespace":     "operators",
					"operator-policy-status-history-length": "3",
					"max-staleness":                         "1m", "probe-static-policies": "true",
					"log-level": "debug", "log-format": "console",
					"drain-delay": "20s", "drain-timeout": "30s", "tls-min-version": "VersionTLS13",
					"tls-cipher-suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
					"ca-lifetime":       "720h", "certificate-lifetime": "24h", "ca-overlap": "1h30m",
					"pending-guards": "delete",
				} {
					same(t, "--"+name, flagsOf(t, o)[name], []string{want})
					if slices.Equal(flagsOf(t, defaults)[name], []string{want}) {
						t.Errorf("--%s is %s by default", name, want)
					}
				}
			},
		},
		{
			name:   "profiles",
			values: "metrics: {secure: true, profiling: true}",
			check: func(t *testing.T, o objects) {
				same(t, "flag", flagsOf(t, o)["profiling"], []string{"true"})
				same(t, "verbs", one[*rbacv1.ClusterRole](t, o, "opgate-profiler").Rules[0].Verbs, []string{"get"})
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-profiler")
			},
		},
		{
			name: "API servers with client certificates",
			values: `
webhooks:
  clientCA: {configMap: api-server-ca, key: bundle.pem, names: [kube-apiserver, other]}`,
			check: func(t *testing.T, o objects) {
				flags, pod := flagsOf(t, o), podOf(t, o)
				same(t, "--client-ca-file", flags["client-ca-file"], []string{"/etc/opgate/client-ca/bundle.pem"})
				same(t, "--client-cn", flags["client-cn"], []string{"kube-apiserver", "other"})
				same(t, "volume mounts", pod.Containers[0].VolumeMounts,
					[]corev1.VolumeMount{{Name: "client-ca", MountPath: "/etc/opgate/client-ca", ReadOnly: true}})
				same(t, "ConfigMap", pod.Volumes[0].ConfigMap.Name, "api-server-ca")
			},
		},
		{
			name:   "metrics with names for those who may read them",
			values: "metrics: {secure: true, serviceMonitor: {enabled: true}}",
			check: func(t *testing.T, o objects) {
				same(t, "--metrics-secure", flagsOf(t, o)["metrics-secure"], []string{"true"})
				same(t, "rules", one[*rbacv1.ClusterRole](t, o, "opgate-metrics").Rules, []rbacv1.PolicyRule{
					{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"},
						Verbs: []string{"create"}},
				})
				same(t, "rules of readers", one[*rbacv1.ClusterRole](t, o, "opgate-metrics-reader").Rules,
					[]rbacv1.PolicyRule{
						{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
					})
				same(t, "rules for the log level", one[*rbacv1.ClusterRole](t, o, "opgate-log-level").Rules,
					[]rbacv1.PolicyRule{
						{NonResourceURLs: []string{"/debug/log-level"}, Verbs: []string{"get", "put"}},
					})
				endpoint := one[*serviceMonitor](t, o, "opgate").Spec.Endpoints[0]
				same(t, "scheme", endpoint.Scheme, "https")
				same(t, "server", endpoint.TLS.ServerName, "opgate-webhook."+namespace+".svc")
				ca := endpoint.TLS.CA // without its key
				same(t, "CA", ca.ConfigMap.Name+"/"+ca.ConfigMap.Key, "opgate-ca/ca.crt")
				same(t, "Secret", ca.Secret.Name, "")
			},
		},
		{
			name:   "without the loop there are fewer permissions",
			values: "policy: {backgroundLoop: {enabled: false}}",
			check: func(t *testing.T, o objects) {
				same(t, "--background-loop", flagsOf(t, o)["background-loop"], []string{"false"})
				gone[*rbacv1.ClusterRole](t, o, "opgate-loop")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-loop")
				same(t, "--backstop", flagsOf(t, o)["backstop"], []string{"off"})
				gone[*rbacv1.ClusterRole](t, o, "opgate-backstop")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-backstop")
			},
		},
		{
			name:   "without the backstop there are fewer permissions",
			values: "policy: {backstop: off}", // which is false, without quotes
			check: func(t *testing.T, o objects) {
				same(t, "--backstop", flagsOf(t, o)["backstop"], []string{"off"})
				gone[*rbacv1.ClusterRole](t, o, "opgate-backstop")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-backstop")
			},
		},
		{
			name:   "without deployments",
			values: "rights: {deployments: false}",
			check: func(t *testing.T, o objects) {
				gone[*rbacv1.ClusterRole](t, o, "opgate-deployments")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-deployments")
				hasRight(t, o, "deployments", false)
			},
		},
		{
			name:   "without namespaces",
			values: "rights: {namespaces: false}",
			check: func(t *testing.T, o objects) {
				gone[*rbacv1.ClusterRole](t, o, "opgate-namespaces")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-namespaces")
				hasRight(t, o, "namespaces", false)
			},
		},
		{
			name:   "definitions",
			values: "rights: {definitions: true}",
			check: func(t *testing.T, o objects) {
				one[*rbacv1.ClusterRoleBinding](t, o, "opgate-definitions")
				hasRight(t, o, "definitions", true)
			},
		},
		{
			name:   "virtualOperators",
			values: "rights: {virtualOperators: true}",
			check: func(t *testing.T, o objects) {
				one[*rbacv1.ClusterRoleBinding](t, o, "opgate-virtual-operators")
				hasRight(t, o, "virtual-operators", true)
			},
		},
		{
			name:   "configurationPolicies",
			values: "rights: {configurationPolicies: true}",
			check: func(t *testing.T, o objects) {
				one[*rbacv1.ClusterRoleBinding](t, o, "opgate-configuration-policies")
				hasRight(t, o, "configuration-policies", true)
			},
		},
		{
			name:   "a backstop from git needs no right",
			values: "policy: {backstop: compiled}",
			check: func(t *testing.T, o objects) {
				same(t, "--backstop", flagsOf(t, o)["backstop"], []string{"compiled"})
				gone[*rbacv1.ClusterRole](t, o, "opgate-backstop")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-backstop")
			},
		},
		{
			name:   "catalogs in two namespaces",
			values: "olm: {catalogNamespaces: [olm, mirrors]}",
			check: func(t *testing.T, o objects) {
				same(t, "--catalog-namespace", flagsOf(t, o)["catalog-namespace"], []string{"olm", "mirrors"})
				rights := rightsOfAccount(o)
				for _, want := range []string{"mirrors watch pods", "mirrors get configmaps", "olm watch pods",
					"olm get configmaps"} {
					if !slices.Contains(rights, want) {
						t.Errorf("the right %q is missing", want)
					}
				}
			},
		},
		{
			name:   "catalogs in every namespace",
			values: `olm: {catalogNamespaces: ["*"]}`,
			check: func(t *testing.T, o objects) {
				if flags := flagsOf(t, o)["catalog-namespace"]; len(flags) > 0 {
					t.Errorf("--catalog-namespace=%q", flags)
				}
				if !slices.Contains(rightsOfAccount(o), " get configmaps") {
					t.Error("there is no right to ConfigMaps in every namespace")
				}
			},
		},
		{
			name:   "without consent there are fewer permissions",
			values: "policy: {consent: {enabled: false}}",
			check: func(t *testing.T, o objects) {
				gone[*rbacv1.ClusterRole](t, o, "opgate-contents")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-contents")
			},
		},
		{
			name:   "reports",
			values: "policy: {reports: {enabled: true}}",
			check: func(t *testing.T, o objects) {
				same(t, "--reports", flagsOf(t, o)["reports"], []string{"true"})
				same(t, "rules", one[*rbacv1.ClusterRole](t, o, "opgate-reports").Rules, []rbacv1.PolicyRule{
					{APIGroups: []string{"openreports.io"}, Resources: []string{"reports"},
						Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
					{
						APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"},
						ResourceNames: []string{"opgate-reports"}, Verbs: []string{"list", "watch"},
					},
				})
				one[*rbacv1.ClusterRoleBinding](t, o, "opgate-reports")
			},
		},
		{
			name:   "reports need the loop",
			values: "policy: {reports: {enabled: true}, backgroundLoop: {enabled: false}}",
			check: func(t *testing.T, o objects) {
				gone[*rbacv1.ClusterRole](t, o, "opgate-reports")
				if flags := flagsOf(t, o)["reports"]; len(flags) > 0 {
					t.Errorf("--reports=%q", flags)
				}
			},
		},
		{
			name: "look-ups of templates",
			values: `
policy:
  lookupRules:
    - {apiGroups: [""], resources: [configmaps], resourceNames: [versions], verbs: [get, list, watch]}`,
			check: func(t *testing.T, o objects) {
				same(t, "rules", one[*rbacv1.ClusterRole](t, o, "opgate-templates").Rules, []rbacv1.PolicyRule{{
					APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"versions"},
					Verbs: []string{"get", "list", "watch"},
				}})
				same(t, "subjects", one[*rbacv1.ClusterRoleBinding](t, o, "opgate-templates").Subjects,
					[]rbacv1.Subject{{Kind: "ServiceAccount", Name: "opgate-lookups", Namespace: namespace}})
			},
		},
	}
}

// hasRight wants the flag for a right to be set, or not to be.
func hasRight(t *testing.T, o objects, name string, want bool) {
	t.Helper()
	same(t, "--right="+name, slices.Contains(flagsOf(t, o)["right"], name), want)
}

// certificateCases are values about certificates and definitions.
func certificateCases() []valueCase {
	return []valueCase{
		{
			name:   "cert-manager with a CA of our own",
			values: "certificates: {mode: cert-manager}",
			check: func(t *testing.T, o objects) {
				checkCertManager(t, o)
				certificate := one[*certmanagerv1.Certificate](t, o, "opgate-webhook")
				same(t, "issuer", certificate.Spec.IssuerRef.Name, "opgate-webhook-ca")
				ca := one[*certmanagerv1.Certificate](t, o, "opgate-webhook-ca")
				issuer := one[*certmanagerv1.Issuer](t, o, "opgate-webhook-ca")
				if !ca.Spec.IsCA || issuer.Spec.CA == nil || issuer.Spec.CA.SecretName != ca.Spec.SecretName {
					t.Errorf("issuer %+v does not sign with CA %+v", issuer.Spec, ca.Spec)
				}
				if one[*certmanagerv1.Issuer](t, o, ca.Spec.IssuerRef.Name).Spec.SelfSigned == nil {
					t.Error("the CA is not self-signed")
				}
				if left := ca.Spec.RenewBefore.Duration; left <= certificate.Spec.Duration.Duration {
					t.Errorf("the CA may end after %s, before what it signed, which lives for %s", left,
						certificate.Spec.Duration.Duration)
				}
				if ca.Spec.PrivateKey.RotationPolicy != certmanagerv1.RotationPolicyNever {
					t.Error("with a new key in the CA, caBundle and certificates would not fit each other for a while")
				}
			},
		},
		{
			name: "a certificate from a Secret, with its CA",
			values: "certificates: {mode: secret, secret: {name: corporate, caBundle: " + strconv.Quote(providedCA) +
				"}}",
			check: func(t *testing.T, o objects) {
				checkProvided(t, o)
				for _, config := range clientConfigs(t, o) {
					same(t, "CA", string(config), providedCA)
				}
			},
		},
		{
			name:   "a certificate from a Secret, whose CA another program writes",
			values: "certificates: {mode: secret, secret: {name: corporate, caAnnotations: {example.com/inject-ca: 'true'}}}",
			check: func(t *testing.T, o objects) {
				checkProvided(t, o)
				same(t, "annotation", one[*admissionregistrationv1.ValidatingWebhookConfiguration](t, o,
					"opgate").Annotations["example.com/inject-ca"], "true")
				same(t, "annotation", definitionsOf(t, o)[policyDefinition].Annotations["example.com/inject-ca"],
					"true")
				for _, config := range clientConfigs(t, o) {
					same(t, "CA", string(config), "")
				}
			},
		},
		{
			name: "cert-manager with an issuer that is there",
			values: `
certificates:
  mode: cert-manager
  certManager:
    issuerRef: {name: corporate, kind: ClusterIssuer, group: example.com}
    duration: 48h
    renewBefore: 24h
    privateKey: {algorithm: RSA, size: 4096, rotationPolicy: Never}`,
			check: func(t *testing.T, o objects) {
				checkCertManager(t, o)
				if issuers := of[*certmanagerv1.Issuer](o); len(issuers) != 0 {
					t.Errorf("there are issuers besides it: %v", issuers)
				}
				spec := one[*certmanagerv1.Certificate](t, o, "opgate-webhook").Spec
				same(t, "issuer", []string{spec.IssuerRef.Name, spec.IssuerRef.Kind, spec.IssuerRef.Group},
					[]string{"corporate", "ClusterIssuer", "example.com"})
				same(t, "duration", spec.Duration.Duration.String(), "48h0m0s")
				same(t, "renewBefore", spec.RenewBefore.Duration.String(), "24h0m0s")
				same(t, "key", *spec.PrivateKey, certmanagerv1.CertificatePrivateKey{Algorithm: "RSA", Size: 4096,
					RotationPolicy: "Never"})
			},
		},
		{
			name:   "without the definitions",
			values: "crds: {install: false}",
			check: func(t *testing.T, o objects) {
				same(t, "definitions", len(of[*apiextensionsv1.CustomResourceDefinition](o)), 0)
			},
		},
		{
			name:   "the definitions go with the release",
			values: "crds: {keep: false}",
			check: func(t *testing.T, o objects) {
				for name, definition := range definitionsOf(t, o) {
					if policy, ok := definition.Annotations["helm.sh/resource-policy"]; ok {
						t.Errorf("helm.sh/resource-policy of %s is %q", name, policy)
					}
				}
			},
		},
	}
}

// checkCertManager wants what does not depend on the issuer.
func checkCertManager(t *testing.T, o objects) {
	t.Helper()
	const annotation, source = "cert-manager.io/inject-ca-from", namespace + "/opgate-webhook"
	for _, object := range []metav1.Object{
		one[*admissionregistrationv1.MutatingWebhookConfiguration](t, o, "opgate"),
		one[*admissionregistrationv1.ValidatingWebhookConfiguration](t, o, "opgate"),
		one[*apiextensionsv1.CustomResourceDefinition](t, o, policyDefinition),
	} {
		same(t, fmt.Sprintf("annotation of %T", object), object.GetAnnotations()[annotation], source)
	}
	// The others have no conversion webhook, so there is no caBundle that cert-manager could write.
	for name, definition := range definitionsOf(t, o) {
		if value, ok := definition.Annotations[annotation]; ok && name != policyDefinition {
			t.Errorf("%s of %s is %q", annotation, name, value)
		}
	}
	certificate := one[*certmanagerv1.Certificate](t, o, "opgate-webhook")
	same(t, "names", certificate.Spec.DNSNames, []string{
		"opgate-webhook." + namespace + ".svc", "opgate-webhook." + namespace + ".svc.cluster.local",
		"opgate-webhook." + namespace,
	})
	flags, pod := flagsOf(t, o), podOf(t, o)
	same(t, "--tls-cert-file", flags["tls-cert-file"], []string{"/etc/opgate/tls/tls.crt"})
	same(t, "--tls-key-file", flags["tls-key-file"], []string{"/etc/opgate/tls/tls.key"})
	if flags["ca-lifetime"] != nil {
		t.Errorf("there are flags for certificates that Opgate makes: %v", flags)
	}
	same(t, "volume mounts", pod.Containers[0].VolumeMounts,
		[]corev1.VolumeMount{{Name: "tls", MountPath: "/etc/opgate/tls", ReadOnly: true}})
	if len(pod.Volumes) != 1 || pod.Volumes[0].Secret == nil ||
		pod.Volumes[0].Secret.SecretName != certificate.Spec.SecretName {
		t.Errorf("volumes are %v, want the Secret %s", pod.Volumes, certificate.Spec.SecretName)
	}
	for name, rules := range rolesOf(o) {
		for _, rule := range rules {
			// The key of marks is in a Secret whatever certificates come from.
			ofMarks := slices.Equal(rule.ResourceNames, []string{"opgate-marks"}) ||
				slices.Equal(rule.Verbs, []string{"create"})
			if slices.Contains(rule.Resources, "secrets") && !ofMarks ||
				slices.Contains(rule.Resources, "customresourcedefinitions") && slices.Contains(rule.Verbs, "patch") {
				t.Errorf("%s has a permission that only self-managed certificates need: %v", name, rule)
			}
		}
	}
}

const providedCA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"

// checkProvided checks that the server has the certificate of Secret corporate, and no right that only its own
// certificates need.
func checkProvided(t *testing.T, o objects) {
	t.Helper()
	same(t, "--tls-cert-file", flagsOf(t, o)["tls-cert-file"], []string{"/etc/opgate/tls/tls.crt"})
	same(t, "Secret", podOf(t, o).Volumes[0].Secret.SecretName, "corporate")
	gone[*certmanagerv1.Certificate](t, o, "opgate-webhook")
	for name, rules := range rolesOf(o) {
		for _, rule := range rules {
			if slices.Contains(rule.ResourceNames, "opgate-ca") {
				t.Errorf("%s may %v the CA of other certificates", name, rule.Verbs)
			}
		}
	}
}

// clientConfigs returns the caBundle of every webhook, and of the conversion of OperatorPolicy.
func clientConfigs(t *testing.T, o objects) (bundles [][]byte) {
	t.Helper()
	for _, webhook := range one[*admissionregistrationv1.ValidatingWebhookConfiguration](t, o, "opgate").Webhooks {
		bundles = append(bundles, webhook.ClientConfig.CABundle)
	}
	for _, webhook := range one[*admissionregistrationv1.MutatingWebhookConfiguration](t, o, "opgate").Webhooks {
		bundles = append(bundles, webhook.ClientConfig.CABundle)
	}
	return append(bundles, definitionsOf(t, o)[policyDefinition].Spec.Conversion.Webhook.ClientConfig.CABundle)
}
