{{/* Selector labels of the pods. They are immutable in a Deployment, so they contain nothing that an upgrade changes. */}}
{{- define "opgate.selectorLabels" -}}
app.kubernetes.io/name: opgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of the release for what is not deleted by label: the definitions. */}}
{{- define "opgate.releaseLabels" -}}
{{- $labels := dict
      "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63)
      "app.kubernetes.io/managed-by" .Release.Service
      "app.kubernetes.io/part-of" "opgate"
      "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_" | trunc 63) }}
{{- merge $labels .Values.commonLabels | toYaml }}
{{- end }}

{{/* Labels of all other objects. Selector labels take precedence over values. */}}
{{- define "opgate.labels" -}}
{{- merge (include "opgate.selectorLabels" . | fromYaml) (include "opgate.releaseLabels" . | fromYaml) | toYaml }}
{{- end }}

{{- define "opgate.podLabels" -}}
{{- merge (include "opgate.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml }}
{{- end }}

{{- define "opgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* true if certificates come from cert-manager, else empty. */}}
{{- define "opgate.certManager" -}}
{{- if eq .Values.certificates.mode "cert-manager" }}true{{ end }}
{{- end }}

{{/* cert-manager's cainjector sets caBundle where this annotation names a certificate. */}}
{{- define "opgate.caAnnotations" -}}
{{- if include "opgate.certManager" . -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/opgate-webhook
{{- end }}
{{- end }}

{{/*
The account of OLM, as YAML: identity, account (its name) and namespaceUID. It is looked up once for each rendering. There is no
default: an account that does not exist on this cluster is for whoever creates its namespace (threat O16).
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
{{- fail (printf "OLM was not found: there is no Deployment olm-operator in namespaces olm and openshift-operator-lifecycle-manager, or helm was not to ask the cluster (helm template, --dry-run=client). If OLM is installed, %s" $how) }}
{{- end }}
{{- if gt (len $running) 1 }}
{{- fail (printf "OLM was found twice, as %s: at most one of them is OLM, and the other may be a tenant's. Look at both, then %s" (join " and " $running) $how) }}
{{- end }}
{{- $identity = join "" $running }}
{{- end }}
{{- /* helm lint goes on after fail. */}}
{{- $parts := splitList ":" ($identity | default "system:serviceaccount:none:none") }}
{{- $namespace := index $parts 2 }}
{{- $account := index $parts 3 }}
{{- $uid := .Values.olm.namespaceUID }}
{{- if and (not $uid) (eq $account (include "opgate.olmAccountIn" $namespace)) }}
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
Whether a request is OLM's, in CEL. The name alone is no evidence. OLM may escalate ClusterRoles, since it makes the roles of operators;
who else may do that is cluster admin, and gains nothing by the name. Who may not is judged like everybody else (threat O16).
*/}}
{{- define "opgate.isOLM" -}}
request.userInfo.username == '{{ (include "opgate.olm" . | fromYaml).identity }}' &&
authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()
{{- end }}

{{/* Excluded namespaces, by the name, which is immutable (threat G12); Opgate's own is always one (threat G15). */}}
{{- define "opgate.namespaceSelector" -}}
matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ concat (list .Release.Namespace) .Values.excludedNamespaces | uniq | toJson }}}
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
{{- ternary (.Values.backstop | default "off") "off" .Values.backgroundLoop.enabled }}
{{- end }}

{{- define "opgate.subjects" -}}
- kind: ServiceAccount
  name: opgate
  namespace: {{ .Release.Namespace }}
{{- end }}
