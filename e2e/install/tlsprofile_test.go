package install

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// apiServers defines OpenShift's configuration of its API server, as far as the chart reads it.
const apiServers = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: apiservers.config.openshift.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: config.openshift.io
  names: {kind: APIServer, listKind: APIServerList, plural: apiservers, singular: apiserver}
  scope: Cluster
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// findsTLSProfile installs the chart, without effect, on a cluster that states a TLS profile as OpenShift does. What a
// pod makes of it is in TestTLS of cmd/opgate-server/serve.
func (s *Site) findsTLSProfile(t *testing.T) {
	harness.Kubectl(t, s.Cluster, cluster.Admin, apiServers, "create", "-f", "-")
	defer s.Admin(t, "delete", "crd", "apiservers.config.openshift.io")
	s.Admin(t, "wait", "--for=condition=Established", "crd/apiservers.config.openshift.io")
	for _, test := range []struct {
		profile string
		wants   []string
	}{
		{profile: `{}`, wants: []string{"key: minTLSVersion, optional: true", "key: cipherSuites, optional: true"}},
		{profile: `{"tlsSecurityProfile":{"type":"Intermediate","intermediate":{}}}`, wants: []string{"key: minTLSVersion, optional: true"}},
		{profile: `{"tlsSecurityProfile":{"type":"Modern","modern":{}}}`, wants: []string{`value: "VersionTLS13"`, "key: cipherSuites, optional: true"}},
		{profile: `{"tlsSecurityProfile":{"type":"Custom","custom":{"minTLSVersion":"VersionTLS12",` +
			`"ciphers":["ECDHE-ECDSA-CHACHA20-POLY1305","ECDHE-RSA-AES128-GCM-SHA256"]}}}`,
			wants: []string{`value: "VersionTLS12"`,
				`value: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"`}},
	} {
		harness.Kubectl(t, s.Cluster, cluster.Admin,
			`{"apiVersion":"config.openshift.io/v1","kind":"APIServer","metadata":{"name":"cluster"},"spec":`+test.profile+`}`,
			"apply", "-f", "-")
		got := s.RunHelm(t, "install", "opgate", harness.ChartDir, "--dry-run=server")
		for _, want := range test.wants {
			if !strings.Contains(got, want) {
				t.Errorf("with %s there is no %s", test.profile, want)
			}
		}
	}
}
