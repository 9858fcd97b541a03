{{/*
Names that values do not have here, though users may expect them: those of other charts, and those of this one before its values had groups.
values.schema.json lets them pass, so that the refusal can say the name to use instead.
*/}}
{{- define "opgate.refuseNames" -}}
{{- $names := dict
      "replicaCount" "replicas"
      "env" "extraEnv"
      "extraEnvVars" "extraEnv"
      "args" "extraArgs"
      "annotations" "commonAnnotations"
      "labels" "commonLabels"
      "resourcesPreset" "resources"
      "containerSecurityContext" "securityContext"
      "failurePolicy" "webhooks.failurePolicy"
      "timeoutSeconds" "webhooks.timeoutSeconds"
      "excludedNamespaces" "policy.excludedNamespaces"
      "approvalMode" "policy.approvalMode"
      "backstop" "policy.backstop"
      "ungoverned" "policy.ungoverned"
      "defaultNamespace" "policy.defaultNamespace"
      "statusHistoryLength" "policy.statusHistoryLength"
      "maxStaleness" "policy.maxStaleness"
      "probeStaticPolicies" "policy.probeStaticPolicies"
      "templates" "policy.lookupRules"
      "backgroundLoop" "policy.backgroundLoop"
      "consent" "policy.consent"
      "reports" "policy.reports"
      "aggregateRoles" "rbac.aggregateRoles"
      "constraintReader" "rbac.constraintReader"
      "serviceMonitor" "metrics.serviceMonitor"
      "podMonitor" "metrics.podMonitor"
      "prometheusRule" "metrics.prometheusRule"
      "dashboard" "metrics.dashboard"
      "drainDelay" "drain.delay"
      "drainTimeout" "drain.timeout" }}
{{- range $name, $ours := $names }}
{{- if hasKey $.Values $name }}
{{- fail (printf "value %s does not exist in this chart: set %s" $name $ours) }}
{{- end }}
{{- end }}
{{- $fixed := "names of objects are fixed, since one cluster holds one Opgate, and admission policies and files of the control plane name them" }}
{{- $absent := dict
      "nameOverride" $fixed
      "fullnameOverride" $fixed
      "namespaceOverride" "objects are in the namespace of the release: set --namespace"
      "autoscaling" "reviews need little CPU time and no pod answers for another, so the number of replicas is for availability: set replicas" }}
{{- range $name, $why := $absent }}
{{- if hasKey $.Values $name }}
{{- fail (printf "value %s does not exist in this chart: %s" $name $why) }}
{{- end }}
{{- end }}
{{- if hasKey .Values.image "pullSecrets" }}
{{- fail "value image.pullSecrets does not exist in this chart: set imagePullSecrets" }}
{{- end }}
{{- end }}
