package change

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The tables name fields by path. The elements of a list have the path of the list with []; a path that ends
// with / stands for the labels and annotations of that domain. Paths begin with
//
//   - csv: the spec of a ClusterServiceVersion
//   - deployment: one of its Deployments, or the spec of one among the objects
//   - pod: a pod template, with the annotations of the ClusterServiceVersion, which OLM copies into it
//   - webhook: an admission webhook
//   - crd: the spec of a CustomResourceDefinition
//   - metadata: that of every other object
//   - group/Kind: every other object
//
// A field that no table names counts as a change, whatever it means: of pods and Deployments as PodSecurity, of
// webhooks as Webhooks, of definitions as BreakingCRDs, of objects as classOf says.

// volumePath is that of volumes, whose sources are compared as a whole.
const volumePath = "pod.spec.volumes[]"

// The paths of the labels and annotations of a ClusterServiceVersion.
const (
	labelPath      = "metadata.labels"
	annotationPath = "pod.metadata.annotations"
)

// aliases are the fields of pods that are compared as one.
var aliases = map[string]string{
	"initContainers": "containers",
	"livenessProbe":  "probe", "readinessProbe": "probe", "startupProbe": "probe",
}

// entered are the lists whose elements are compared field by field. An element of another list is compared as a whole.
var entered = map[string]bool{
	"pod.spec.containers[]":                true,
	"pod.spec.containers[].env[]":          true,
	"pod.spec.containers[].envFrom[]":      true,
	"pod.spec.containers[].ports[]":        true,
	"pod.spec.containers[].volumeMounts[]": true,
	volumePath:                             true,
	"crd.spec.versions[]":                  true,
}

// The reasons why a field is harmless.
const (
	describes  = "describes the operator to people"
	inImage    = "is passed to an image, which any version exchanges: what it can do is bounded by its rights and its pod"
	inPod      = "moves or names what is inside of a pod"
	running    = "says when and how often the pod runs, not what it can reach"
	served     = "concerns the clients of the operator's own kinds, and the comparison of schemas covers what they may lose"
	oneValue   = "has one value that the API server accepts"
	ownService = "is served by the operator's own pods, whose Deployments are compared"
)

// harmless are the fields of a bundle that are no change, each with the reason. All but metadata that the API server
// sets are in the digest.
var harmless = map[string]string{ //nolint:gosec // no credentials: names of fields
	// What a ClusterServiceVersion says about itself.
	"csv.annotations": describes, "csv.description": describes, "csv.displayName": describes, "csv.icon": describes,
	"csv.keywords": describes,
	"csv.labels":   describes, "csv.links": describes, "csv.maintainers": describes, "csv.maturity": describes,
	"csv.provider":                  describes,
	"csv.selector":                  describes,
	"csv.version":                   "names the version, which policies judge",
	"csv.release":                   "names the version, which policies judge",
	"csv.replaces":                  "is the order of versions in a channel, which policies judge",
	"csv.skips":                     "is the order of versions in a channel, which policies judge",
	"csv.customresourcedefinitions": "describes definitions to people: the definitions are objects of the bundle; those that are required are requirements",
	"csv.install.strategy":          "is deployment, the only one that OLM has",
	"csv.nativeAPIs":                "is a condition of the installation",
	"csv.relatedImages[].name":      describes,
	"csv.apiservicedefinitions.owned[].deploymentName": ownService,
	"csv.apiservicedefinitions.owned[].containerPort":  ownService,
	"csv.apiservicedefinitions.owned[].kind":           describes, "csv.apiservicedefinitions.owned[].displayName": describes,
	"csv.apiservicedefinitions.owned[].description":       describes,
	"csv.apiservicedefinitions.owned[].resources":         describes,
	"csv.apiservicedefinitions.owned[].statusDescriptors": describes,
	"csv.apiservicedefinitions.owned[].specDescriptors":   describes,
	"csv.apiservicedefinitions.owned[].actionDescriptors": describes,
	"csv.apiservicedefinitions.owned[].name":              describes,

	// Annotations that describe a ClusterServiceVersion, and those that OLM sets. All others may concern whoever admits
	// pods.
	"pod.metadata.annotations.alm-examples": describes, "pod.metadata.annotations.alm-examples-metadata": describes,
	"pod.metadata.annotations.capabilities": describes, "pod.metadata.annotations.categories": describes,
	"pod.metadata.annotations.certified": describes, "pod.metadata.annotations.containerImage": describes,
	"pod.metadata.annotations.createdAt": describes, "pod.metadata.annotations.description": describes,
	"pod.metadata.annotations.repository": describes, "pod.metadata.annotations.support": describes,
	"pod.metadata.annotations.tectonic-visibility":                   describes,
	"pod.metadata.annotations.features.operators.openshift.io/":      describes,
	"pod.metadata.annotations.operators.openshift.io/":               describes,
	"pod.metadata.annotations.operators.operatorframework.io/":       describes,
	"pod.metadata.annotations.operatorframework.io/":                 "describes the operator to OLM, which has its properties from the catalog",
	"pod.metadata.annotations.olm.operatorGroup":                     "is set by OLM",
	"pod.metadata.annotations.olm.operatorNamespace":                 "is set by OLM",
	"pod.metadata.annotations.olm.targetNamespaces":                  "is set by OLM",
	"pod.metadata.annotations.kubectl.kubernetes.io/":                "is read by kubectl alone",
	"metadata.labels.operatorframework.io/":                          describes,
	"pod.metadata.labels.app.kubernetes.io/version":                  describes,
	"metadata.labels.app.kubernetes.io/version":                      describes,
	"pod.metadata.creationTimestamp":                                 "is set by the API server",
	"deployment.label":                                               describes,
	"deployment.spec.minReadySeconds":                                running,
	"deployment.spec.paused":                                         running,
	"deployment.spec.progressDeadlineSeconds":                        running,
	"deployment.spec.replicas":                                       running,
	"deployment.spec.revisionHistoryLimit":                           running,
	"deployment.spec.selector":                                       "selects the pods of the template, and the API server refuses others",
	"deployment.spec.strategy":                                       running,
	"pod.spec.activeDeadlineSeconds":                                 running,
	"pod.spec.affinity.podAntiAffinity":                              running,
	"pod.spec.restartPolicy":                                         running,
	"pod.spec.terminationGracePeriodSeconds":                         running,
	"pod.spec.topologySpreadConstraints":                             running,
	"pod.spec.containers[].args":                                     inImage,
	"pod.spec.containers[].command":                                  inImage,
	"pod.spec.containers[].workingDir":                               inImage,
	"pod.spec.containers[].env[].name":                               inImage,
	"pod.spec.containers[].env[].value":                              inImage,
	"pod.spec.containers[].env[].valueFrom.fieldRef":                 inPod,
	"pod.spec.containers[].env[].valueFrom.resourceFieldRef":         inPod,
	"pod.spec.containers[].env[].valueFrom.fileKeyRef":               inPod,
	"pod.spec.containers[].env[].valueFrom.secretKeyRef.key":         "is a part of a Secret that is compared by name",
	"pod.spec.containers[].env[].valueFrom.secretKeyRef.optional":    running,
	"pod.spec.containers[].env[].valueFrom.configMapKeyRef.key":      "is a part of a ConfigMap that is compared by name",
	"pod.spec.containers[].env[].valueFrom.configMapKeyRef.optional": running,
	"pod.spec.containers[].envFrom[].prefix":                         inImage,
	"pod.spec.containers[].envFrom[].secretRef.optional":             running,
	"pod.spec.containers[].envFrom[].configMapRef.optional":          running,
	"pod.spec.containers[].imagePullPolicy":                          running,
	"pod.spec.containers[].name":                                     inPod,
	"pod.spec.containers[].ports[].containerPort":                    inPod,
	"pod.spec.containers[].ports[].name":                             inPod,
	"pod.spec.containers[].ports[].protocol":                         inPod,
	"pod.spec.containers[].probe.exec":                               inImage,
	"pod.spec.containers[].probe.failureThreshold":                   running,
	"pod.spec.containers[].probe.grpc":                               inPod,
	"pod.spec.containers[].probe.httpGet.httpHeaders":                inPod,
	"pod.spec.containers[].probe.httpGet.path":                       inPod,
	"pod.spec.containers[].probe.httpGet.port":                       inPod,
	"pod.spec.containers[].probe.httpGet.scheme":                     inPod,
	"pod.spec.containers[].probe.initialDelaySeconds":                running,
	"pod.spec.containers[].probe.periodSeconds":                      running,
	"pod.spec.containers[].probe.sleep":                              running,
	"pod.spec.containers[].probe.successThreshold":                   running,
	"pod.spec.containers[].probe.tcpSocket.port":                     inPod,
	"pod.spec.containers[].probe.terminationGracePeriodSeconds":      running,
	"pod.spec.containers[].probe.timeoutSeconds":                     running,
	"pod.spec.containers[].lifecycle.stopSignal":                     inPod,
	"pod.spec.containers[].resizePolicy":                             running,
	"pod.spec.containers[].resources.limits.cpu":                     running,
	"pod.spec.containers[].resources.limits.memory":                  running,
	"pod.spec.containers[].resources.limits.ephemeral-storage":       running,
	"pod.spec.containers[].resources.requests.cpu":                   running,
	"pod.spec.containers[].resources.requests.memory":                running,
	"pod.spec.containers[].resources.requests.ephemeral-storage":     running,
	"pod.spec.containers[].restartPolicy":                            running,
	"pod.spec.containers[].restartPolicyRules":                       running,
	"pod.spec.containers[].terminationMessagePath":                   inPod,
	"pod.spec.containers[].terminationMessagePolicy":                 inPod,
	"pod.spec.containers[].volumeMounts[].mountPath":                 inPod,
	"pod.spec.containers[].volumeMounts[].name":                      inPod,
	"pod.spec.containers[].volumeMounts[].subPath":                   inPod,
	"pod.spec.containers[].volumeMounts[].subPathExpr":               inPod,
	"pod.spec.volumes[].name":                                        inPod,
	"pod.spec.volumes[].emptyDir":                                    inPod,
	"pod.spec.volumes[].downwardAPI":                                 inPod,
	"pod.spec.volumes[].hostPath.type":                               "is checked before the path is mounted, and the path is compared",
	"pod.spec.volumes[].secret.defaultMode":                          inPod,
	"pod.spec.volumes[].secret.items":                                "is a part of a Secret that is compared by name",
	"pod.spec.volumes[].secret.optional":                             running,
	"pod.spec.volumes[].configMap.defaultMode":                       inPod,
	"pod.spec.volumes[].configMap.items":                             "is a part of a ConfigMap that is compared by name",
	"pod.spec.volumes[].configMap.optional":                          running,

	"pod.spec.volumes[].configMap.defaultUser":                                     inPod,
	"pod.spec.volumes[].secret.defaultUser":                                        inPod,
	"pod.spec.volumes[].projected.defaultMode":                                     inPod,
	"pod.spec.volumes[].projected.defaultUser":                                     inPod,
	"pod.spec.volumes[].projected.sources[].configMap.items":                       "is a part of a ConfigMap that is compared by name",
	"pod.spec.volumes[].projected.sources[].configMap.optional":                    running,
	"pod.spec.volumes[].projected.sources[].downwardAPI":                           inPod,
	"pod.spec.volumes[].projected.sources[].secret.items":                          "is a part of a Secret that is compared by name",
	"pod.spec.volumes[].projected.sources[].secret.optional":                       running,
	"pod.spec.volumes[].projected.sources[].serviceAccountToken.expirationSeconds": "is renewed by the node for as long as the pod runs",
	"pod.spec.volumes[].projected.sources[].serviceAccountToken.path":              inPod,
	"pod.spec.volumes[].projected.sources[].serviceAccountToken.user":              inPod,

	// Webhooks and definitions.
	"webhook.admissionReviewVersions": "is the format of the review",
	"webhook.containerPort":           ownService,
	"webhook.deploymentName":          ownService,
	"webhook.sideEffects":             "says what the webhook does beside answering, and changes nothing about what it is sent",
	"webhook.targetPort":              ownService,
	"webhook.webhookPath":             ownService,
	"webhook.matchConditions[].name":  describes,

	"crd.metadata":              served,
	"crd.status":                "is set by the API server",
	"crd.spec.names.categories": served,
	"crd.spec.names.listKind":   served,
	"crd.spec.names.shortNames": served,
	"crd.spec.names.singular":   served,
	"crd.spec.conversion.webhook.conversionReviewVersions": "is the format of the review",
	"crd.spec.versions[].additionalPrinterColumns":         served,
	"crd.spec.versions[].deprecated":                       served,
	"crd.spec.versions[].deprecationWarning":               served,
	"crd.spec.versions[].selectableFields":                 served,
	"crd.spec.versions[].storage":                          served,
	"crd.spec.versions[].subresources.scale":               served,

	// Other objects.
	rbacv1.GroupName + "/ClusterRoleBinding.roleRef.apiGroup": oneValue, rbacv1.GroupName +
		"/ClusterRoleBinding.subjects[].apiGroup": oneValue,
	rbacv1.GroupName + "/RoleBinding.roleRef.apiGroup": oneValue, rbacv1.GroupName +
		"/RoleBinding.subjects[].apiGroup": oneValue,
	"/ConfigMap.data":                             inImage,
	"/ConfigMap.binaryData":                       inImage,
	"monitoring.coreos.com/PrometheusRule.spec":   "is what alerts are about",
	"console.openshift.io/ConsoleYAMLSample.spec": describes,
	"console.openshift.io/ConsoleQuickStart.spec": describes,
}

// judged are the fields that code of this package compares, by what they mean, and where.
var judged = map[string]string{
	"csv.install.spec.clusterPermissions":     "readRights",
	"csv.install.spec.permissions":            "readRights",
	"csv.install.spec.deployments":            "pods",
	"csv.installModes":                        "compareScope",
	"csv.minKubeVersion":                      "compareRequirements",
	"csv.apiservicedefinitions":               "compareScope, compareRequirements",
	"csv.relatedImages":                       "compareImages",
	"csv.webhookdefinitions":                  "compareWebhooks",
	"webhook.clientConfig.service":            "target",
	"webhook.clientConfig.url":                "target",
	"webhook.conversionCRDs":                  "converts",
	"webhook.failurePolicy":                   "compareWebhook",
	"webhook.generateName":                    "readWebhooks",
	"webhook.matchConditions":                 "compareWebhook",
	"webhook.matchPolicy":                     "compareWebhook",
	"webhook.name":                            "readWebhooks",
	"webhook.namespaceSelector":               "compareWebhook",
	"webhook.objectSelector":                  "compareWebhook",
	"webhook.rules":                           "compareWebhook",
	"webhook.type":                            "readWebhooks",
	"crd.apiVersion":                          "readDefinitions",
	"crd.kind":                                "readDefinitions",
	"crd.spec.conversion":                     "target, compareDefinitions",
	"crd.spec.group":                          "compareDefinitions",
	"crd.spec.names.kind":                     "compareDefinitions",
	"crd.spec.names.plural":                   "compareDefinitions",
	"crd.spec.preserveUnknownFields":          "compareDefinitions",
	"crd.spec.scope":                          "compareDefinitions",
	"crd.spec.versions[].name":                "compareDefinitions",
	"crd.spec.versions[].schema":              "compareSchemas",
	"crd.spec.versions[].served":              "compareDefinitions",
	"crd.spec.versions[].subresources.status": "compareVersion",

	admissionv1.GroupName + "/MutatingWebhookConfiguration.webhooks":   "compareWebhooks",
	admissionv1.GroupName + "/ValidatingWebhookConfiguration.webhooks": "compareWebhooks",
	rbacv1.GroupName + "/ClusterRole.aggregationRule":                  "readRights",
	rbacv1.GroupName + "/ClusterRole.rules":                            "readRights",
	rbacv1.GroupName + "/ClusterRoleBinding.roleRef":                   "readRights",
	rbacv1.GroupName + "/ClusterRoleBinding.subjects":                  "readRights",
	rbacv1.GroupName + "/Role.rules":                                   "readRights",
	rbacv1.GroupName + "/RoleBinding.roleRef":                          "readRights",
	rbacv1.GroupName + "/RoleBinding.subjects":                         "readRights",

	"/Pod.spec":                                    "pods",
	"/PodTemplate.template":                        "pods",
	"/ReplicationController.spec.template":         "pods",
	"apps/DaemonSet.spec.template":                 "pods",
	"apps/Deployment.spec.template":                "pods",
	"apps/ReplicaSet.spec.template":                "pods",
	"apps/StatefulSet.spec.template":               "pods",
	"batch/CronJob.spec.jobTemplate.spec.template": "pods",
	"batch/Job.spec.template":                      "pods",
	"deployment.name":                              "compareScope",
	"deployment.spec.template":                     "pods",
	"pod.spec.automountServiceAccountToken":        "addPod",
	"pod.spec.hostIPC":                             "addPod",
	"pod.spec.hostNetwork":                         "addPod",
	"pod.spec.hostPID":                             "addPod",
	"pod.spec.serviceAccount":                      "accountsOf",
	"pod.spec.serviceAccountName":                  "accountsOf",

	"pod.spec.containers[].env[].valueFrom.configMapKeyRef":          "addReferences",
	"pod.spec.containers[].env[].valueFrom.secretKeyRef":             "addReferences",
	"pod.spec.containers[].envFrom[].configMapRef":                   "addReferences",
	"pod.spec.containers[].envFrom[].secretRef":                      "addReferences",
	"pod.spec.containers[].image":                                    "compareImages",
	"pod.spec.containers[].ports[].hostPort":                         "addContainer",
	"pod.spec.containers[].securityContext.allowPrivilegeEscalation": "addContainer",
	"pod.spec.containers[].securityContext.capabilities.add":         "addContainer",
	"pod.spec.containers[].securityContext.privileged":               "addContainer",
	"pod.spec.containers[].securityContext.readOnlyRootFilesystem":   "addContainer",
	"pod.spec.containers[].securityContext.runAsUser":                "addContainer",
	"pod.spec.securityContext.runAsUser":                             "addContainer",
	"pod.spec.containers[].volumeMounts[].readOnly":                  "addVolumes",
	"pod.spec.volumes[].configMap":                                   "addVolumes",
	"pod.spec.volumes[].hostPath":                                    "addVolumes",
	"pod.spec.volumes[].projected":                                   "addVolumes",
	"pod.spec.volumes[].secret":                                      "addVolumes",
}
