package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
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

// harmless are the fields of a bundle that are no change, by the reason; of annotations olm.HarmlessAnnotations. All but
// metadata that the API server sets are in the digest.
var harmless = byPath([]row{ //nolint:gosec // no credentials: names of fields
	{describes, "csv.", `annotations description displayName icon keywords labels links maintainers maturity provider selector
		relatedImages[].name`},
	{describes, "csv.apiservicedefinitions.owned[].", `kind displayName description resources statusDescriptors specDescriptors
		actionDescriptors name`},
	{describes, "metadata.labels.", `operatorframework.io/ app.kubernetes.io/version`},
	{describes, "pod.metadata.", `labels.app.kubernetes.io/version`},
	{describes, "deployment.", `label`},
	{describes, "webhook.", `matchConditions[].name`},
	{describes, "console.openshift.io/", `ConsoleYAMLSample.spec ConsoleQuickStart.spec`},
	{"names the version, which policies judge", "csv.", `version release`},
	{"is the order of versions in a channel, which bundle/replaces judges", "csv.", `replaces skips`},
	{"describes definitions to people: the definitions are objects of the bundle; those that are required are requirements", "csv.", `
		customresourcedefinitions`},
	{"is deployment, the only one that OLM has", "csv.install.", `strategy`},
	{"is a condition of the installation", "csv.", `nativeAPIs`},
	{ownService, "csv.apiservicedefinitions.owned[].", `deploymentName containerPort`},
	{ownService, "webhook.", `containerPort deploymentName targetPort webhookPath`},
	{"is set by the API server", "pod.metadata.", `creationTimestamp`},
	{"is set by the API server", "crd.", `status`},
	{running, "deployment.spec.", `minReadySeconds paused progressDeadlineSeconds replicas revisionHistoryLimit strategy`},
	{running, "pod.spec.", `activeDeadlineSeconds affinity.podAntiAffinity restartPolicy terminationGracePeriodSeconds
		topologySpreadConstraints`},
	{running, "pod.spec.containers[].", `env[].valueFrom.secretKeyRef.optional env[].valueFrom.configMapKeyRef.optional
		envFrom[].secretRef.optional envFrom[].configMapRef.optional imagePullPolicy probe.failureThreshold
		probe.initialDelaySeconds probe.periodSeconds probe.sleep probe.successThreshold probe.terminationGracePeriodSeconds
		probe.timeoutSeconds resizePolicy resources.limits.cpu resources.limits.memory resources.limits.ephemeral-storage
		resources.requests.cpu resources.requests.memory resources.requests.ephemeral-storage restartPolicy restartPolicyRules`},
	{running, "pod.spec.volumes[].", `secret.optional configMap.optional projected.sources[].configMap.optional
		projected.sources[].secret.optional`},
	{"selects the pods of the template, and the API server refuses others", "deployment.spec.", `selector`},
	{inImage, "pod.spec.containers[].", `args command workingDir env[].name env[].value envFrom[].prefix probe.exec`},
	{inImage, "/", `ConfigMap.data ConfigMap.binaryData`},
	{inPod, "pod.spec.containers[].", `env[].valueFrom.fieldRef env[].valueFrom.resourceFieldRef env[].valueFrom.fileKeyRef name
		ports[].containerPort ports[].name ports[].protocol probe.grpc probe.httpGet.httpHeaders probe.httpGet.path
		probe.httpGet.port probe.httpGet.scheme probe.tcpSocket.port lifecycle.stopSignal terminationMessagePath
		terminationMessagePolicy volumeMounts[].mountPath volumeMounts[].name volumeMounts[].subPath volumeMounts[].subPathExpr`},
	{inPod, "pod.spec.volumes[].", `name emptyDir downwardAPI secret.defaultMode configMap.defaultMode configMap.defaultUser
		secret.defaultUser projected.defaultMode projected.defaultUser projected.sources[].downwardAPI
		projected.sources[].serviceAccountToken.path projected.sources[].serviceAccountToken.user`},
	{"is a part of a Secret that is compared by name", "pod.spec.containers[].", `env[].valueFrom.secretKeyRef.key`},
	{"is a part of a Secret that is compared by name", "pod.spec.volumes[].", `secret.items projected.sources[].secret.items`},
	{"is a part of a ConfigMap that is compared by name", "pod.spec.containers[].", `env[].valueFrom.configMapKeyRef.key`},
	{"is a part of a ConfigMap that is compared by name", "pod.spec.volumes[].", `configMap.items
		projected.sources[].configMap.items`},
	{"is checked before the path is mounted, and the path is compared", "pod.spec.volumes[].", `hostPath.type`},
	{"is renewed by the node for as long as the pod runs", "pod.spec.volumes[].", `
		projected.sources[].serviceAccountToken.expirationSeconds`},
	{"is the format of the review", "webhook.", `admissionReviewVersions`},
	{"is the format of the review", "crd.spec.", `conversion.webhook.conversionReviewVersions`},
	{"says what the webhook does beside answering, and changes nothing about what it is sent", "webhook.", `sideEffects`},
	{served, "crd.", `metadata`},
	{served, "crd.spec.", `names.categories names.listKind names.shortNames names.singular`},
	{served, "crd.spec.versions[].", `additionalPrinterColumns deprecated deprecationWarning selectableFields storage
		subresources.scale`},
	{oneValue, rbacv1.GroupName + "/", `ClusterRoleBinding.roleRef.apiGroup ClusterRoleBinding.subjects[].apiGroup
		RoleBinding.roleRef.apiGroup RoleBinding.subjects[].apiGroup`},
	{"is what alerts are about", "", `monitoring.coreos.com/PrometheusRule.spec`},
})

// judged are the fields that code of this package compares, by where.
var judged = byPath([]row{
	{"readRights", "csv.install.", `spec.clusterPermissions spec.permissions`},
	{"readRights", rbacv1.GroupName + "/", `ClusterRole.aggregationRule ClusterRole.rules ClusterRoleBinding.roleRef
		ClusterRoleBinding.subjects Role.rules RoleBinding.roleRef RoleBinding.subjects`},
	{"pods", "csv.install.", `spec.deployments`},
	{"pods", "/", `Pod.spec PodTemplate.template ReplicationController.spec.template`},
	{"pods", "apps/", `DaemonSet.spec.template Deployment.spec.template ReplicaSet.spec.template StatefulSet.spec.template`},
	{"pods", "batch/", `CronJob.spec.jobTemplate.spec.template Job.spec.template`},
	{"pods", "deployment.spec.", `template`},
	{"compareScope", "csv.", `installModes`},
	{"compareScope", "deployment.", `name`},
	{"compareRequirements", "csv.", `minKubeVersion`},
	{"compareScope, compareRequirements", "csv.", `apiservicedefinitions`},
	{"compareImages", "csv.", `relatedImages`},
	{"compareImages", "pod.spec.containers[].", `image`},
	{"compareWebhooks", "csv.", `webhookdefinitions`},
	{"compareWebhooks", admissionv1.GroupName + "/", `MutatingWebhookConfiguration.webhooks
		ValidatingWebhookConfiguration.webhooks`},
	{"target", "webhook.", `clientConfig.service clientConfig.url`},
	{"converts", "webhook.", `conversionCRDs`},
	{"compareWebhook", "webhook.", `failurePolicy matchConditions matchPolicy namespaceSelector objectSelector rules`},
	{"readWebhooks", "webhook.", `generateName name type`},
	{"readDefinitions", "crd.", `apiVersion kind`},
	{"target, compareDefinitions", "crd.spec.", `conversion`},
	{"compareDefinitions", "crd.spec.", `group names.kind names.plural preserveUnknownFields scope`},
	{"compareDefinitions", "crd.spec.versions[].", `name served`},
	{"compareSchemas", "crd.spec.versions[].", `schema`},
	{"compareVersion", "crd.spec.versions[].", `subresources.status`},
	{"addPod", "pod.spec.", `automountServiceAccountToken hostIPC hostNetwork hostPID`},
	{"accountsOf", "pod.spec.", `serviceAccount serviceAccountName`},
	{"addReferences", "pod.spec.containers[].", `env[].valueFrom.configMapKeyRef env[].valueFrom.secretKeyRef
		envFrom[].configMapRef envFrom[].secretRef`},
	{"addContainer", "pod.spec.containers[].", `ports[].hostPort securityContext.allowPrivilegeEscalation
		securityContext.capabilities.add securityContext.privileged securityContext.readOnlyRootFilesystem
		securityContext.runAsUser`},
	{"addContainer", "pod.spec.", `securityContext.runAsUser`},
	{"addVolumes", "pod.spec.containers[].", `volumeMounts[].readOnly`},
	{"addVolumes", "pod.spec.volumes[].", `configMap hostPath projected secret`},
})

// row are fields with one reason, or compared in one place: what follows the prefix of their paths, as words.
type row struct{ reason, prefix, fields string }

// byPath returns the reasons by path.
func byPath(table []row) map[string]string {
	paths := map[string]string{}
	for _, r := range table {
		for field := range strings.FieldsSeq(r.fields) {
			paths[r.prefix+field] = r.reason
		}
	}
	return paths
}

// fields are the fields of objects by path, with the set of values that each has. The elements of a list have the
// path of the list with [].
type fields map[string]sets.Set[string]

// read adds the fields at and below a value, except for those that are harmless or judged elsewhere. An element of a
// list is one value, so that its fields stay together, unless the list is entered.
func (f fields) read(path string, value any) {
	if skipped(path) || value == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			child := childOf(path, key)
			domain, _, qualified := strings.Cut(key, "/")
			switch {
			case qualified && skipped(path+"."+domain+"/"), skipped(child),
				path == annotationPath && olm.IsHarmlessAnnotation(key):
			case path == volumePath:
				f.add(child, field)
			default:
				f.read(child, field)
			}
		}
	case []any:
		for _, element := range v {
			if entered[path+"[]"] {
				f.read(path+"[]", element)
			} else if !skipped(path + "[]") {
				f.add(path, element)
			}
		}
	default:
		f.add(path, v)
	}
}

// childOf returns the path of a field.
func childOf(path, key string) string {
	switch alias := aliases[key]; {
	case path == "pod.spec.containers[].lifecycle" && (key == "postStart" || key == "preStop"):
		return "pod.spec.containers[].probe"
	case alias != "" && (path == "pod.spec" || path == "pod.spec.containers[]"):
		return path + "." + alias
	}
	return path + "." + key
}

func (f fields) add(path string, value any) {
	shown, ok := value.(string)
	if !ok {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err) // built from decoded JSON
		}
		shown = string(raw)
	}
	if f[path] == nil {
		f[path] = sets.New[string]()
	}
	f[path].Insert(shown)
}

// skipped reports whether the fields at and below a path are not compared here.
func skipped(path string) bool { return harmless[path] != "" || judged[path] != "" }

// readJSON reads an object as a whole.
func (f fields) readJSON(path string, raw []byte) error {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	f.read(path, value)
	return nil
}

// readLazily reads an object, or a list that is entered, without decoding what is skipped: schemas are large.
func (f fields) readLazily(path string, raw []byte) error {
	var list []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case skipped(path):
		return nil
	case entered[path+"[]"] && json.Unmarshal(raw, &list) == nil:
		for _, element := range list {
			if err := f.readLazily(path+"[]", element); err != nil {
				return err
			}
		}
		return nil
	case json.Unmarshal(raw, &object) != nil || object == nil:
		return f.readJSON(path, raw)
	}
	for key, field := range object {
		if err := f.readLazily(childOf(path, key), field); err != nil {
			return err
		}
	}
	return nil
}

// readTyped reads a value of a Go type as it is encoded.
func (f fields) readTyped(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.readJSON(path, raw)
}

// changed returns the paths that have other values in f than before, in order.
func (f fields) changed(before fields) []string {
	var paths []string
	for _, path := range sorted(slices.Concat(sortedKeys(f), sortedKeys(before))) {
		if !f[path].Equal(before[path]) {
			paths = append(paths, path)
		}
	}
	return paths
}

// difference returns the values that only one of two sets has, in order.
func difference(now, before sets.Set[string]) (added, removed []string) {
	return sets.List(now.Difference(before)), sets.List(before.Difference(now))
}

// describe returns what changed at a path: "priorityClassName a, before b", or "no longer priorityClassName b".
func (f fields) describe(path string, before fields) string {
	added, removed := difference(f[path], before[path])
	name := text.Escape(shortPath(path))
	switch {
	case len(added) == 0:
		return fmt.Sprintf("no longer %s %s", name, text.Join(removed, maxListed))
	case len(removed) == 0:
		return fmt.Sprintf("%s %s", name, text.Join(added, maxListed))
	}
	return fmt.Sprintf("%s %s, before %s", name, text.Join(added, maxListed), text.Join(removed, maxListed))
}

// shortPath returns a path as messages show it.
func shortPath(path string) string {
	for _, root := range []string{"pod.spec.", "pod.", "deployment.spec.", "webhook.", "crd.spec.", "csv."} {
		if short, ok := strings.CutPrefix(path, root); ok {
			path = short
			break
		}
	}
	return strings.ReplaceAll(path, "[]", "")
}
