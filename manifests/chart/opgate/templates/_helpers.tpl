{{/* What pods are found by. It is immutable in a Deployment, so nothing that an upgrade changes may be in it. */}}
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

{{/* Labels of all other objects. Nothing that is set by hand wins over what pods are found by. */}}
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

{{/* cert-manager's cainjector fills in caBundle where this annotation says which certificate to trust. */}}
{{- define "opgate.caAnnotations" -}}
{{- if include "opgate.certManager" . -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/opgate-webhook
{{- end }}
{{- end }}

{{/* The user names of OLM, in CEL. */}}
{{- define "opgate.olmUsers" -}}
{{- range $i, $user := .Values.olm.identities }}
{{- if $i }},
{{ end }}'{{ $user }}'
{{- end }}
{{- end }}

{{/* Namespaces that are not judged, by the name that nobody can change (threat G12); Opgate's own is always one (threat G15). */}}
{{- define "opgate.namespaceSelector" -}}
matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ concat (list .Release.Namespace) .Values.excludedNamespaces | uniq | toJson }}}
{{- end }}

{{/* The pod's security context. OpenShift gives each namespace users of its own and refuses pods that ask for others. */}}
{{- define "opgate.podSecurityContext" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup" | toYaml }}
{{- else }}
{{- toYaml .Values.podSecurityContext }}
{{- end }}
{{- end }}

{{- define "opgate.subjects" -}}
- kind: ServiceAccount
  name: opgate
  namespace: {{ .Release.Namespace }}
{{- end }}
