package olm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	packagesGroup   = "packages.operators.coreos.com"
	packagesVersion = "v1"
	packagesService = "packageserver-service" // as on a real cluster
	packagesHost    = "127.0.0.1"
)

// PackageServer is the server of PackageManifests. Its Start registers it first where Options say WithoutPackageServer.
func (o *OLM) PackageServer() *Server { return o.packageServer }

// newPackageServer returns the package server with its program and address.
func (o *OLM) newPackageServer(ctx context.Context, kubeconfig string) (*Server, error) {
	addresses, err := o.cluster.Addresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	_, text, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil, err
	}
	return o.add(&Server{
		name: "the package server",
		launch: func(ctx context.Context) (*cluster.Companion, error) {
			if err := o.registerPackageServer(ctx, port); err != nil {
				return nil, err
			}
			return o.cluster.StartCompanion(ctx, "package-server", o.services.variables(),
				o.assets.PackageServer,
				"--kubeconfig", kubeconfig,
				"--global-namespace", cluster.OLMNamespace,
				"--bind-address", packagesHost, "--secure-port", text,
				"--cert-dir", filepath.Join(o.cluster.Dir(), "package-server"))
		},
		notice: func(ctx context.Context, answers bool) error {
			if err := o.waitForPackageServer(ctx, answers); err != nil || !answers || !o.catalog.runs() {
				return err
			}
			return o.waitForPackages(ctx, cluster.OLMNamespace, Catalog, true)
		},
	}), nil
}

// registerPackageServer makes the API server proxy requests for packages. Service addresses are not routed
// here, so the Service is of type ExternalName: this machine.
func (o *OLM) registerPackageServer(ctx context.Context, port int64) error {
	return o.create(ctx,
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OLMNamespace, Name: packagesService},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: packagesHost},
		},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1",
			"kind":       "APIService",
			"metadata":   map[string]any{"name": packagesVersion + "." + packagesGroup},
			"spec": map[string]any{
				"group": packagesGroup, "version": packagesVersion,
				"service": map[string]any{"namespace": cluster.OLMNamespace, "name": packagesService, "port": port},
				// It generates its own certificate when it starts, and listens on the loopback interface only.
				"insecureSkipTLSVerify": true,
				"groupPriorityMinimum":  int64(2000), "versionPriority": int64(15),
			},
		}},
	)
}

// waitForPackageServer waits until the API server reports that the package server is available, or that it is not.
func (o *OLM) waitForPackageServer(ctx context.Context, available bool) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OLMNamespace, Name: packagesService}}
	state := "not known"
	triggers := 0
	err := speed.Poll(ctx, pollInterval, readyTimeout, func(ctx context.Context) (bool, error) {
		if err := o.Err(); err != nil {
			return false, err
		}
		// The API server checks whether it is available every 30 seconds, and at once when the Service changes.
		triggers++
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.opgate.io/look":"%d"}}}`, triggers)
		if err := o.client.Patch(ctx, service, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			return false, err
		}
		registration := &unstructured.Unstructured{}
		registration.SetAPIVersion("apiregistration.k8s.io/v1")
		registration.SetKind("APIService")
		if err := o.client.Get(ctx, client.ObjectKey{Name: packagesVersion + "." + packagesGroup},
			registration); err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(registration.Object, "status", "conditions")
		if err != nil {
			return false, err
		}
		status := ""
		for _, condition := range conditions {
			if condition := condition.(map[string]any); condition["type"] == "Available" {
				status, _ = condition["status"].(string)
				state = fmt.Sprint(condition["message"])
			}
		}
		return available && status == "True" || !available && status == "False", nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server to notice, which says %q: %w", state, errors.Join(err, o.Err()))
	}
	return nil
}

// waitForPackages waits until the package server has read a catalog, or forgotten what was in it.
func (o *OLM) waitForPackages(ctx context.Context, namespace, catalog string, known bool) error {
	var last error
	err := speed.Poll(ctx, pollInterval, readyTimeout, func(ctx context.Context) (bool, error) {
		if err := o.Err(); err != nil {
			return false, err
		}
		last = o.checkPackages(ctx, namespace, catalog, known)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the packages of catalog %s: %w", catalog, errors.Join(err, last))
	}
	return nil
}

// checkPackages returns an error with what the package server knows of a catalog, if that is not as expected.
func (o *OLM) checkPackages(ctx context.Context, namespace, catalog string, known bool) error {
	path := "/apis/" + packagesGroup + "/" + packagesVersion + "/namespaces/" + namespace + "/packagemanifests"
	answer, err := o.clientset.CoreV1().RESTClient().Get().AbsPath(path).Param("labelSelector",
		"catalog="+catalog).DoRaw(ctx)
	if err != nil {
		return err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(answer, &list); err != nil {
		return err
	}
	if len(list.Items) > 0 != known {
		return fmt.Errorf("the package server knows %d", len(list.Items))
	}
	return nil
}
