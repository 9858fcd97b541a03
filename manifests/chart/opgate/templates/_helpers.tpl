{{/* Selector labels of the pods. They are immutable in a Deployment, so they contain nothing that an upgrade changes. */}}
{{- define "opgate.selectorLabels" -}}
app.kubernetes.io/name: opgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels that say which release an object is from. */}}
{{- define "opgate.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: opgate
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
{{- end }}

{{/* Labels and annotations of an object. */}}
{{- define "opgate.metadata" -}}
{{- include "opgate.metadataWith" (list . dict dict) }}
{{- end }}

{{/*
Labels and annotations of an object that has some of its own: of the list of root, labels and annotations. Selector labels take precedence
over values, and both over the common ones.
*/}}
{{- define "opgate.metadataWith" -}}
{{- $root := index . 0 }}
{{- $own := merge (include "opgate.selectorLabels" $root | fromYaml) (include "opgate.chartLabels" $root | fromYaml) -}}
labels: {{- merge $own (index . 1) $root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) (index . 2) $root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "opgate.podLabels" -}}
{{- merge (include "opgate.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml }}
{{- end }}

{{/* The reference of the image. A registry within the repository would be a second one. */}}
{{- define "opgate.image" -}}
{{- $registry := .Values.global.imageRegistry | default .Values.image.registry }}
{{- $repository := .Values.image.repository }}
{{- $first := splitList "/" $repository | first }}
{{- if and $registry (contains "/" $repository) (regexMatch "[.:]|^localhost$" $first) }}
{{- fail (printf "image.repository %s begins with a registry: set image.registry to %s, and image.repository to %s" $repository $first (trimPrefix (print $first "/") $repository)) }}
{{- end }}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $repository }}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The field imagePullSecrets of a pod: of the release and of all charts, as names or as objects with a name. */}}
{{- define "opgate.imagePullSecrets" -}}
{{- $names := list }}
{{- range concat .Values.imagePullSecrets (.Values.global.imagePullSecrets | default list) }}
{{- $names = append $names (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with uniq $names }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the pods may run, and as whom: what the server and the test have in common. */}}
{{- define "opgate.pod" -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with include "opgate.imagePullSecrets" . | trim }}
{{ . }}
{{- end }}
securityContext: {{- include "opgate.podSecurityContext" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* true if certificates come from cert-manager, else empty. */}}
{{- define "opgate.certManager" -}}
{{- if eq .Values.certificates.mode "cert-manager" }}true{{ end }}
{{- end }}

{{/* The Secret with the serving certificate, empty where Opgate makes it itself. */}}
{{- define "opgate.certificateSecret" -}}
{{- if eq .Values.certificates.mode "secret" }}
{{- if not .Values.certificates.secret.name }}
{{- fail "certificates.mode is secret: set certificates.secret.name to a Secret with tls.crt and tls.key" }}
{{- end }}
{{- if not (or .Values.certificates.secret.caBundle .Values.certificates.secret.caAnnotations) }}
{{- fail "certificates.mode is secret: set certificates.secret.caBundle, or certificates.secret.caAnnotations for a program that writes it" }}
{{- end }}
{{- .Values.certificates.secret.name }}
{{- else if include "opgate.certManager" . -}}
opgate-webhook-tls
{{- end }}
{{- end }}

{{/* The CA of certificates.secret as the API server reads it, else empty. */}}
{{- define "opgate.caBundle" -}}
{{- if eq .Values.certificates.mode "secret" }}{{ with .Values.certificates.secret.caBundle }}{{ b64enc . }}{{ end }}{{ end }}
{{- end }}

{{/* true if the release creates the ServiceAccount that the pods run as, else empty. With --reuse-values from a release without this value: true. */}}
{{- define "opgate.createsAccount" -}}
{{- if ne (toString .Values.serviceAccount.create) "false" }}true{{ end }}
{{- end }}

{{/* The name of the ServiceAccount that the pods run as. */}}
{{- define "opgate.serviceAccount" -}}
{{- if and (not (include "opgate.createsAccount" .)) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false: set serviceAccount.name to the account that the pods run as" }}
{{- end }}
{{- .Values.serviceAccount.name | default "opgate" }}
{{- end }}

{{/* true if another program owns the definition of OperatorPolicy, else empty. */}}
{{- define "opgate.externalPolicies" -}}
{{- if eq (.Values.crds.operatorPolicy | default "managed") "external" }}
{{- if .Values.ordering.enabled }}
{{- fail "crds.operatorPolicy is external: who owns OperatorPolicies reconciles Policies as well, so set ordering.enabled to false" }}
{{- end -}}
true
{{- end }}
{{- end }}

{{/* Annotations by which another program sets caBundle: cert-manager's cainjector, or what certificates.secret.caAnnotations are for. */}}
{{- define "opgate.caAnnotations" -}}
{{- if include "opgate.certManager" . -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/opgate-webhook
{{- else if eq .Values.certificates.mode "secret" }}
{{- with .Values.certificates.secret.caAnnotations }}{{ toYaml . }}{{ end }}
{{- end }}
{{- end }}

{{/*
The account of OLM, as YAML: identity, account (its name) and namespaceUID. It is looked up once for each rendering. There is no
default: an account that does not exist on this cluster is for any user who creates its namespace.
*/}}
{{- define "opgate.olm" -}}
{{- if not (hasKey .Values.olm "found") }}
{{- $how := `set olm.identity to the account that OLM runs as, system:serviceaccount:NAMESPACE:NAME. This prints it: kubectl get deployments --all-namespaces --field-selector metadata.name=olm-operator -o jsonpath='{range .items[*]}system:serviceaccount:{.metadata.namespace}:{.spec.template.spec.serviceAccountName}{"\n"}{end}'` }}
{{- if and (hasKey .Values.olm "identities") (not (kindIs "invalid" .Values.olm.identities)) }}
{{- fail (printf "olm.identities has become olm.identity, which is exactly one account: set olm.identities to null, and %s" $how) }}
{{- end }}
{{- $identity := .Values.olm.identity }}
{{- if not $identity }}
{{- $running := list }}
{{- range $namespace := list "olm" "openshift-operator-lifecycle-manager" }}
{{- with (include "opgate.olmAccountIn" $namespace) }}
{{- $running = append $running (printf "system:serviceaccount:%s:%s" $namespace .) }}
{{- end }}
{{- end }}
{{- if not $running }}
{{- fail (printf "OLM was not found: there is no Deployment olm-operator in namespaces olm and openshift-operator-lifecycle-manager, or helm was not to ask the cluster (helm template, --dry-run=client). If OLM is installed, %s. On a hosted control plane (HyperShift, ROSA HCP, ARO HCP), set olm.identity to the user that OLM authenticates as: system:admin" $how) }}
{{- end }}
{{- if gt (len $running) 1 }}
{{- fail (printf "OLM was found twice, as %s: at most one of them is OLM, and the other may be a tenant's. Look at both, then %s" (join " and " $running) $how) }}
{{- end }}
{{- $identity = join "" $running }}
{{- end }}
{{- $account := "" }}
{{- $namespace := "" }}
{{- /* helm lint goes on after fail. */}}
{{- if hasPrefix "system:serviceaccount" ($identity | default "system:serviceaccount:none:none") }}
{{- $parts := splitList ":" ($identity | default "system:serviceaccount:none:none") }}
{{- if not (regexMatch "^system:serviceaccount:[a-z0-9-]+:[a-z0-9.-]+$" (join ":" $parts)) }}
{{- fail (printf "olm.identity %q is not the user name of a service account: %s" $identity $how) }}
{{- end }}
{{- $namespace = index $parts 2 }}
{{- $account = index $parts 3 }}
{{- end }}
{{- $uid := .Values.olm.namespaceUID }}
{{- if and $account (not $uid) (eq $account (include "opgate.olmAccountIn" $namespace)) }}
{{- $uid = dig "metadata" "uid" "" (lookup "v1" "Namespace" "" $namespace) }}
{{- end }}
{{- $_ := set .Values.olm "found" (dict "identity" $identity "account" $account "namespaceUID" $uid) }}
{{- end }}
{{- toYaml .Values.olm.found }}
{{- end }}

{{/* The service account that OLM runs as in a namespace, "" where it does not run. */}}
{{- define "opgate.olmAccountIn" -}}
{{- dig "spec" "template" "spec" "serviceAccountName" "" (lookup "apps/v1" "Deployment" . "olm-operator") }}
{{- end }}

{{/*
The TLS profile that an OpenShift cluster states, as OCM writes one into ConfigMap ocm-tls-profile, for which suites have the names of IANA.
Empty for Intermediate, which is the default here too, elsewhere, and where helm does not ask the cluster.
*/}}
{{- define "opgate.tlsProfile" -}}
{{- if .Capabilities.APIVersions.Has "config.openshift.io/v1" }}
{{- $profile := dig "spec" "tlsSecurityProfile" dict (lookup "config.openshift.io/v1" "APIServer" "" "cluster") | default dict }}
{{- if eq ($profile.type | default "") "Modern" }}
minTLSVersion: VersionTLS13
{{- else }}
{{- with $profile.custom }}
minTLSVersion: {{ .minTLSVersion }}
{{- $suites := list }}
{{- range .ciphers }}
{{- $suite := regexReplaceAll "^ECDHE-(RSA|ECDSA)-CHACHA20-POLY1305$" . "TLS_ECDHE_${1}_WITH_CHACHA20_POLY1305_SHA256" }}
{{- $suites = append $suites (regexReplaceAll "^ECDHE-(RSA|ECDSA)-AES(128|256)-GCM-(SHA[0-9]+)$" $suite "TLS_ECDHE_${1}_WITH_AES_${2}_GCM_${3}") }}
{{- end }}
cipherSuites: {{ join "," $suites }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Excluded namespaces, by the name, which is immutable; Opgate's own is always one. */}}
{{- define "opgate.namespaceSelector" -}}
matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ concat (list .Release.Namespace) .Values.policy.excludedNamespaces | uniq | toJson }}}
{{- end }}

{{/* The pod's security context. OpenShift assigns users to each namespace and refuses pods that set others. */}}
{{- define "opgate.podSecurityContext" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup" | toYaml }}
{{- else }}
{{- toYaml .Values.podSecurityContext }}
{{- end }}
{{- end }}

{{/*
What the API server does by itself: the leader of the background loop writes the admission policies. YAML reads off without quotes as
false, and --reuse-values from a release without this value has none.
*/}}
{{- define "opgate.backstop" -}}
{{- ternary (.Values.policy.backstop | default "off") "off" .Values.policy.backgroundLoop.enabled }}
{{- end }}

{{/*
Whether objects of OLM v1 are judged. Entries of webhooks for kinds that a cluster does not have cost it nothing, and hold from the moment on
at which OLM v1 is installed, so they do not depend on what is served now. YAML reads on and off without quotes as true and false.
*/}}
{{- define "opgate.olmv1" -}}
{{- if not (has (toString .Values.olmv1) (list "off" "false")) }}true{{ end }}
{{- end }}

{{/* The rights that the release grants, of those that it may withhold, as flag --right names them: a list as JSON. */}}
{{- define "opgate.rights" -}}
{{- $rights := list }}
{{- if .Values.policy.consent.enabled }}{{ $rights = append $rights "contents" }}{{ end }}
{{- if .Values.policy.backgroundLoop.enabled }}
{{- if include "opgate.olmv1" . }}{{ $rights = append $rights "cluster-extensions" }}{{ end }}
{{- range $value, $granted := .Values.rights }}
{{- if and $granted (or $.Values.ordering.enabled (ne $value "configurationPolicies")) }}{{ $rights = append $rights (kebabcase $value) }}{{ end }}
{{- end }}
{{- end }}
{{- toJson $rights }}
{{- end }}

{{/*
The namespaces of catalogs, as a list in JSON; "*" alone for all. By default that in which OLM looks for catalogs that serve every namespace:
its own, or OpenShift's, also where OLM runs outside of the cluster.
*/}}
{{- define "opgate.catalogNamespaces" -}}
{{- $olm := include "opgate.olm" . | fromYaml }}
{{- $namespace := "openshift-marketplace" }}
{{- if and $olm.account $olm.identity }}{{/* helm lint goes on after fail */}}
{{- $namespace = index (splitList ":" $olm.identity) 2 | replace "openshift-operator-lifecycle-manager" $namespace }}
{{- end }}
{{- $namespaces := .Values.olm.catalogNamespaces | default (list $namespace) }}
{{- if and (has "*" $namespaces) (gt (len $namespaces) 1) }}
{{- fail "olm.catalogNamespaces: \"*\" stands for all namespaces, so name no others" }}
{{- end }}
{{- toJson $namespaces }}
{{- end }}

{{/* What endpoints of a ServiceMonitor and a PodMonitor have in common, of the list of root and values. */}}
{{- define "opgate.endpoint" -}}
{{- $root := index . 0 }}
{{- with index . 1 }}
{{- $fields := pick . "interval" "scrapeTimeout" "honorLabels" "relabelings" "metricRelabelings" }}
{{- if $root.Values.metrics.secure }}
{{- $secret := include "opgate.certificateSecret" $root }}
{{- $source := dict "name" ($secret | default "opgate-ca") "key" "ca.crt" }}
{{- $tls := dict "ca" (dict (ternary "secret" "configMap" (ne $secret "")) $source) "serverName" (printf "opgate-webhook.%s.svc" $root.Release.Namespace) }}
{{- $_ := set $fields "tlsConfig" (.tlsConfig | default $tls) }}
{{- end }}
{{- range $name, $value := $fields }}
{{- if $value }}
{{ dict $name $value | toYaml }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What pods of this image may connect to. */}}
{{- define "opgate.egress" -}}
# DNS, for clusters where pods reach the API server by name. OpenShift's listens on 5353.
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
    - {port: 5353, protocol: UDP}
    - {port: 5353, protocol: TCP}
# The API server, on the ports behind its Service.
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* true if there is a test: nothing is refused in a namespace that is excluded. */}}
{{- define "opgate.testable" -}}
{{- if not (has .Values.test.namespace (append .Values.policy.excludedNamespaces .Release.Namespace)) }}true{{ end }}
{{- end }}

{{- define "opgate.subjects" -}}
- kind: ServiceAccount
  name: {{ include "opgate.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
