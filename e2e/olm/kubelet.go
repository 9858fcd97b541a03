package olm

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

const (
	// managedLabel is on everything that OLM creates.
	managedLabel = "olm.managed"
	// unpackLabel is on a Job that unpacks a bundle, and names the ConfigMap that it is to write.
	unpackLabel = "operatorframework.io/bundle-unpack-ref"
)

// kubelet replaces all that runs pods on a real cluster. It writes the status of every Deployment of an operator for
// the stored generation and that of the pods of catalogs, and does the work of Jobs that unpack bundles.
type kubelet struct {
	client kubernetes.Interface
	// config is that of the client, who may impersonate others.
	config *rest.Config
	images *images
	// node is whether a node runs pods.
	node bool
	log  io.Writer
	stop func()
}

func startKubelet(
	ctx context.Context, config *rest.Config, images *images, node bool, log io.Writer,
) (*kubelet, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = managedLabel + "=true"
		}))
	k := &kubelet{client: client, config: config, images: images, node: node, log: log,
		stop: func() { cancel(); factory.Shutdown() }}
	for _, informer := range []cache.SharedInformer{factory.Apps().V1().Deployments().Informer(),
		factory.Batch().V1().Jobs().Informer(), factory.Core().V1().Pods().Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { k.observe(ctx, object) },
			UpdateFunc: func(_, object any) { k.observe(ctx, object) },
		})
		if err != nil {
			k.stop()
			return nil, fmt.Errorf("play the kubelet: %w", err)
		}
	}
	factory.Start(ctx.Done())
	return k, nil
}

// observe handles a changed object.
func (k *kubelet) observe(ctx context.Context, object any) {
	var err error
	switch object := object.(type) {
	case *appsv1.Deployment:
		err = k.run(ctx, object.DeepCopy())
	case *batchv1.Job:
		err = k.unpack(ctx, object.DeepCopy())
	case *corev1.Pod:
		err = k.serve(ctx, object.DeepCopy())
	}
	// After a conflict a newer state follows, which is observed as well.
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		fmt.Fprintf(k.log, "a stand-in for pods failed: %v\n", err)
	}
}

// run writes the status of the pods of a Deployment.
func (k *kubelet) run(ctx context.Context, deployment *appsv1.Deployment) error {
	if k.node || deployment.Status.ObservedGeneration == deployment.Generation {
		return nil
	}
	deployment.Status = deploymentStatus(*deployment.Spec.Replicas)
	deployment.Status.ObservedGeneration = deployment.Generation
	_, err := k.client.AppsV1().Deployments(deployment.Namespace).UpdateStatus(ctx, deployment, metav1.UpdateOptions{})
	return err
}

// deploymentStatus is what the controller of Deployments writes.
func deploymentStatus(replicas int32) appsv1.DeploymentStatus {
	return appsv1.DeploymentStatus{
		Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable",
		}, {
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable",
		}},
	}
}

// serve writes the status of a pod of a catalog that is an image here. Its digest is what the tag points to by then.
func (k *kubelet) serve(ctx context.Context, pod *corev1.Pod) error {
	if k.node || pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	container := pod.Spec.Containers[0]
	digest := k.images.digest(container.Image)
	if digest == "" || container.Name != imageServer {
		return nil
	}
	repository, _, _ := strings.Cut(container.Image, ":")
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: container.Name, Image: container.Image, ImageID: repository + "@" + digest, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}},
		}},
	}
	_, err := k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// unpack writes the content of a bundle to the ConfigMap where OLM reads it, and then completes the Job.
func (k *kubelet) unpack(ctx context.Context, job *batchv1.Job) error {
	name := job.Labels[unpackLabel]
	if name == "" || job.Status.CompletionTime != nil {
		return nil
	}
	var manifests map[string][]byte
	for _, container := range job.Spec.Template.Spec.InitContainers {
		if manifests = k.images.manifests(container.Image); manifests != nil {
			break
		}
	}
	if manifests == nil {
		return fmt.Errorf("job %s/%s unpacks no image of a catalog", job.Namespace, job.Name)
	}
	// The API server authorizes and admits this as the Job's own account.
	config := rest.CopyConfig(k.config)
	// OLM v0.28 names none; the API server sets this one for pods
	accountName := cmp.Or(job.Spec.Template.Spec.ServiceAccountName, "default")
	config.Impersonate.UserName = "system:serviceaccount:" + job.Namespace + ":" + accountName
	account, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	configMaps := account.CoreV1().ConfigMaps(job.Namespace)
	// OLM writes owners and labels of the ConfigMap meanwhile. That is no change of the Job, so nothing would be
	// observed again.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		configMap, err := configMaps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the configmap of job %s/%s: %w", job.Namespace, job.Name, err)
		}
		// As "opm alpha bundle extract -z" writes it.
		metav1.SetMetaDataAnnotation(&configMap.ObjectMeta, "olm.contentEncoding", "gzip+base64")
		configMap.BinaryData = map[string][]byte{}
		for name, manifest := range manifests {
			configMap.BinaryData[name] = compress(manifest)
		}
		_, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		//nolint:errorlint // a conflict is reported as well: nothing observes it again
		return fmt.Errorf("unpack for job %s/%s: %v", job.Namespace, job.Name, err)
	}
	started := &job.CreationTimestamp
	if job.Status.StartTime != nil { // by the controller of Jobs, where one runs
		started = job.Status.StartTime
	}
	job.Status = batchv1.JobStatus{Succeeded: 1, StartTime: started, CompletionTime: started}
	for _, condition := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions,
			batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
	}
	_, err = k.client.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
	return err
}

// compress returns a manifest in gzip and base64. Writing to memory does not fail.
func compress(manifest []byte) []byte {
	var out bytes.Buffer
	encoder := base64.NewEncoder(base64.StdEncoding, &out)
	writer := gzip.NewWriter(encoder)
	_, _ = writer.Write(manifest)
	_ = writer.Close()
	_ = encoder.Close()
	return out.Bytes()
}
