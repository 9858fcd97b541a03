package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	caSecret   = "opgate-ca"
	serverName = "opgate-webhook." + cluster.OpgateNamespace + ".svc"
)

var (
	secretResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	mutatingResource  = schema.GroupVersionResource{
		Group:    "admissionregistration.k8s.io",
		Version:  "v1",
		Resource: "mutatingwebhookconfigurations",
	}

	// registrations are the names of the objects by which the API server calls Opgate.
	registrations = map[schema.GroupVersionResource]string{
		mutatingResource:           "opgate",
		harness.ValidatingResource: "opgate",
		harness.DefinitionResource: "operatorpolicies.policy.open-cluster-management.io",
	}
)

// certified are two processes with self-managed certificates. The API server is not made to call them: here it could
// not by the names that the certificates are for. Clients do that in its place.
type certified struct {
	*harness.Env
	processes [2]*cluster.Companion
	addresses [2]string     // of the webhooks
	overlap   time.Duration // of a new CA with the one before
}

func startCertified(t *testing.T) *certified {
	t.Helper()
	e := harness.Start(t, cluster.Options{Audit: true, OpenShift: harness.OpenShiftVersion, Log: os.Stderr})
	var err error
	// The backstop would keep others from writing the ConfigMap.
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{WithoutBackstop: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Gate.Stop(); err != nil { // the webhook configurations that lead to it stay
		t.Fatal(err)
	}
	r := &certified{Env: e, overlap: speed.Scale(time.Second)}
	t.Cleanup(func() { // before the cluster
		for i := range r.processes {
			if err := r.processes[i].Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range r.processes {
		r.run(t, i)
	}
	return r
}

// run starts a replica.
func (r *certified) run(t *testing.T, i int) {
	t.Helper()
	addresses, err := r.Addresses(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	server, err := r.Programs().Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.addresses[i] = addresses[0]
	r.processes[i], err = r.StartCompanion(context.WithoutCancel(t.Context()), "opgate", nil, server, "serve",
		"--kubeconfig="+r.OpgateKubeconfig(), "--namespace="+cluster.OpgateNamespace, "--background-loop=false",
		"--drain-delay=0s",
		"--webhook-bind-address="+addresses[0], "--health-probe-bind-address="+addresses[1],
		"--metrics-bind-address="+addresses[2],
		"--ca-overlap="+r.overlap.String(), "--olm-identity="+cluster.OLMUserName)
	if err != nil {
		t.Fatal(err)
	}
}

// TestCertificates follows self-managed certificates through what can happen to them, on a cluster of its own, whose
// webhook configurations lead to no one.
func TestCertificates(t *testing.T) {
	t.Parallel()
	r := startCertified(t)
	r.awaitBundles(t)

	t.Run("opgate writes nothing but what is its own", func(t *testing.T) {
		for resource, name := range registrations {
			u := r.read(t, resource, cluster.Admin, "", name)
			owned := 0
			for _, fields := range u.GetManagedFields() {
				if fields.Manager != "opgate-certs" {
					continue
				}
				for _, field := range regexp.MustCompile(`f:\w+`).FindAllString(fields.FieldsV1.GetRawString(), -1) {
					if !slices.Contains([]string{"f:webhooks", "f:name", "f:clientConfig", "f:caBundle", "f:url",
						"f:rules", "f:spec", "f:conversion", "f:webhook", "f:metadata", "f:ownerReferences"}, field) {
						t.Errorf("%s: it owns %s", resource.Resource, field)
					}
				}
				owned++
			}
			if owned != 1 {
				t.Errorf("%s: %d entries say what it owns", resource.Resource, owned)
			}
			owners := u.GetOwnerReferences()
			if resource == harness.DefinitionResource {
				if len(owners) > 0 {
					t.Errorf("the CRD has owners %v: policies would go with the namespace", owners)
				}
			} else if len(owners) != 1 || owners[0].Kind != "Namespace" || owners[0].Name != cluster.OpgateNamespace {
				t.Errorf("%s has owners %v", resource.Resource, owners)
			}
		}
	})

	t.Run("overwritten, emptied and made anew", func(t *testing.T) {
		foreign := r.Gate.CA()
		bundle := base64.StdEncoding.EncodeToString(foreign)
		r.patch(t, harness.DefinitionResource, "", registrations[harness.DefinitionResource],
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":"%s"}}}}}`, bundle)
		r.patch(t, configMapResource, cluster.OpgateNamespace, caSecret,
			`{"data":{"ca.crt":null,"other.crt":"kept"},"binaryData":{"ca.crt":"Z2FyYmFnZQ=="}}`)
		r.patch(t, mutatingResource, "", "opgate", `{"metadata":{"ownerReferences":null}}`)
		_, err := r.admin().Resource(mutatingResource).Patch(t.Context(), "opgate", types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/webhooks/1/clientConfig/caBundle"}]`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		configuration := r.read(t, harness.ValidatingResource, cluster.Admin, "", "opgate")
		if err := r.admin().Resource(harness.ValidatingResource).Delete(t.Context(), "opgate",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"uid", "resourceVersion", "managedFields", "ownerReferences"} {
			unstructured.RemoveNestedField(configuration.Object, "metadata", field)
		}
		webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
		for _, w := range webhooks {
			unstructured.RemoveNestedField(w.(map[string]any), "clientConfig", "caBundle")
		}
		configuration.Object["webhooks"] = webhooks
		if _, err := r.admin().Resource(harness.ValidatingResource).Create(t.Context(), configuration,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.awaitBundles(t)
		published := r.read(t, configMapResource, cluster.Admin, cluster.OpgateNamespace, caSecret)
		if other, _, _ := unstructured.NestedString(published.Object, "data", "other.crt"); other != "kept" {
			t.Errorf("data of others in the ConfigMap became %q", other)
		}
		if err := r.admin().Resource(configMapResource).Namespace(cluster.OpgateNamespace).Delete(t.Context(), caSecret,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.awaitBundles(t)
	})

	for name, rotate := range map[string]func(t *testing.T){
		"rotation asked for": func(t *testing.T) {
			harness.Kubectl(t, r.Cluster, cluster.Admin, "", "annotate", "secret", caSecret, "-n",
				cluster.OpgateNamespace, "opgate.io/rotate-ca="+time.Now().Format(time.RFC3339Nano), "--overwrite")
		},
		"Secret deleted": func(t *testing.T) {
			harness.Kubectl(t, r.Cluster, cluster.Admin, "", "delete", "secret", caSecret, "-n",
				cluster.OpgateNamespace)
		},
		"Secret with another key": func(t *testing.T) {
			_, key := harness.Authority(t, time.Hour)
			r.patch(t, secretResource, cluster.OpgateNamespace, caSecret, `{"data":{"tls.key":"%s"}}`,
				base64.StdEncoding.EncodeToString(key))
		},
		"Secret with garbage in every place": func(t *testing.T) {
			garbage := base64.StdEncoding.EncodeToString([]byte("garbage"))
			r.patch(t, secretResource, cluster.OpgateNamespace, caSecret,
				`{"data":{"tls.crt":"%[1]s","tls.key":"%[1]s","ca.crt":"%[1]s","next.crt":"%[1]s"}}`, garbage)
		},
		"Secret emptied": func(t *testing.T) {
			r.patch(t, secretResource, cluster.OpgateNamespace, caSecret, `{"data":null}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.signer(t)
			trusting := r.trusting(t)
			rotate(t)
			harness.Eventually(t, "see the new CA sign", func(context.Context) error {
				if u, err := r.admin().Resource(secretResource).Namespace(cluster.OpgateNamespace).Get(t.Context(),
					caSecret, metav1.GetOptions{}); err != nil {
					return err
				} else if now := content(u, "tls.crt"); bytes.Equal(now, before) || len(now) == 0 ||
					len(content(u, "next.crt")) > 0 {
					return errors.New("the CA is not another one yet")
				}
				return nil
			})
			r.awaitBundles(t)
			trusting()
			if bundle := content(r.read(t, secretResource, cluster.Admin, cluster.OpgateNamespace, caSecret),
				"ca.crt"); !bytes.Contains(bundle, before) {
				t.Error("the old CA has left the bundle: a replica that lags is not trusted any more")
			}
		})
	}

	t.Run("old CAs are not to be trusted any more", func(t *testing.T) {
		harness.Kubectl(t, r.Cluster, cluster.Admin, "", "patch", "secret", caSecret, "-n", cluster.OpgateNamespace,
			"--type=json", "-p",
			`[{"op":"copy","from":"/data/tls.crt","path":"/data/ca.crt"}]`)
		r.awaitBundles(t)
		if bundle := content(r.read(t, secretResource, cluster.Admin, cluster.OpgateNamespace, caSecret),
			"ca.crt"); !bytes.Equal(bundle, r.signer(t)) {
			t.Error("the bundle holds more than the CA that signs")
		}
	})

	t.Run("another replica leads", func(t *testing.T) {
		for i := range r.processes { // whichever leads
			if err := r.processes[i].Stop(); err != nil {
				t.Fatal(err)
			}
			other := 1 - i
			r.patch(t, configMapResource, cluster.OpgateNamespace, caSecret,
				`{"data":{"ca.crt":null,"other.crt":"kept"},"binaryData":{"ca.crt":"Z2FyYmFnZQ=="}}`)
			r.patch(t, mutatingResource, "", "opgate", `{"metadata":{"ownerReferences":null}}`)
			harness.Eventually(t, "see the other replica lead", func(context.Context) error {
				if owners := r.read(t, mutatingResource, cluster.Admin, "",
					"opgate").GetOwnerReferences(); len(owners) != 1 {
					return fmt.Errorf("owners are %v", owners)
				}
				return r.dial(other, content(r.read(t, secretResource, cluster.Admin, cluster.OpgateNamespace,
					caSecret), "ca.crt"))
			})
			r.run(t, i)
		}
		r.awaitBundles(t)
	})

	t.Run("expired CA at the start", func(t *testing.T) {
		for i := range r.processes {
			if err := r.processes[i].Stop(); err != nil {
				t.Fatal(err)
			}
		}
		cert, key := harness.Authority(t, -time.Minute)
		encode := base64.StdEncoding.EncodeToString
		r.patch(t, secretResource, cluster.OpgateNamespace, caSecret,
			`{"data":{"tls.crt":"%[1]s","tls.key":"%[2]s","ca.crt":"%[1]s"}}`, encode(cert), encode(key))
		for i := range r.processes {
			r.run(t, i)
		}
		r.awaitBundles(t)
		if bytes.Contains(content(r.read(t, secretResource, cluster.Admin, cluster.OpgateNamespace, caSecret),
			"ca.crt"), cert) {
			t.Error("the expired CA is still in the bundle")
		}
	})
}

func (r *certified) admin() *harness.Client { return r.Clients[cluster.Admin] }

func (r *certified) read(
	t *testing.T, resource schema.GroupVersionResource, user cluster.User, namespace, name string,
) *unstructured.Unstructured {
	t.Helper()
	u, err := r.Clients[user].Resource(resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (r *certified) patch(
	t *testing.T, resource schema.GroupVersionResource, namespace, name, format string, args ...any,
) {
	t.Helper()
	_, err := r.admin().Resource(resource).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// signer is the CA that the Secret states signs, as PEM.
func (r *certified) signer(t *testing.T) []byte {
	return content(r.read(t, secretResource, cluster.Admin, cluster.OpgateNamespace, caSecret), "tls.crt")
}

// content is an entry of a Secret.
func content(secret *unstructured.Unstructured, key string) []byte {
	text, _, _ := unstructured.NestedString(secret.Object, "data", key)
	data, _ := base64.StdEncoding.DecodeString(text)
	return data
}

// bundles are the caBundles of an object, decoded.
func bundles(u *unstructured.Unstructured) [][]byte {
	var configs []any
	if webhooks, found, _ := unstructured.NestedSlice(u.Object, "webhooks"); found {
		for _, w := range webhooks {
			configs = append(configs, w.(map[string]any)["clientConfig"])
		}
	} else {
		config, _, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook", "clientConfig")
		configs = append(configs, config)
	}
	var out [][]byte
	for _, c := range configs {
		text, _ := c.(map[string]any)["caBundle"].(string)
		bundle, _ := base64.StdEncoding.DecodeString(text)
		out = append(out, bundle)
	}
	return out
}

// awaitBundles waits until every caBundle is what the Secret states, and a client with it trusts both replicas.
func (r *certified) awaitBundles(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "see everything trust the replicas", func(ctx context.Context) error {
		for i := range r.processes {
			if err := r.processes[i].Err(); err != nil {
				t.Fatal(err)
			}
		}
		secret, err := r.admin().Resource(secretResource).Namespace(cluster.OpgateNamespace).Get(ctx, caSecret,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := content(secret, "ca.crt")
		published, err := r.admin().Resource(configMapResource).Namespace(cluster.OpgateNamespace).Get(ctx, caSecret,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		data, _, _ := unstructured.NestedStringMap(published.Object, "data")
		if data["ca.crt"] != string(want) {
			return errors.New("the ConfigMap has not the bundle of the Secret")
		}
		if text := fmt.Sprint(published.Object); strings.Contains(text, "PRIVATE KEY") {
			t.Fatal("the ConfigMap has a key")
		}
		for resource, name := range registrations {
			u, err := r.admin().Resource(resource).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for i, bundle := range bundles(u) {
				if !bytes.Equal(bundle, want) {
					return fmt.Errorf("caBundle %d of %s is not that of the Secret", i, resource.Resource)
				}
			}
			if resource != harness.DefinitionResource && len(u.GetOwnerReferences()) == 0 {
				return fmt.Errorf("%s has no owner", resource.Resource)
			}
		}
		return errors.Join(r.dial(0, want), r.dial(1, want))
	})
}

// dial connects to a replica as a client that trusts a bundle.
func (r *certified) dial(i int, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	connection, err := tls.Dial("tcp", r.addresses[i], &tls.Config{
		RootCAs:    roots,
		ServerName: serverName,
		MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return fmt.Errorf("replica %d: %w", i, err)
	}
	return connection.Close()
}

// trusting connects to both replicas all the time as clients that learn of each caBundle half an overlap late, until
// the function that it returns is called. A client that was so slow that it lagged for a whole overlap may fail: that
// proves nothing.
func (r *certified) trusting(t *testing.T) (stop func()) {
	t.Helper()
	type seen struct {
		bundle []byte
		first  time.Time // that it was known
		last   time.Time // that it was certainly the newest
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var failures []error
	connections := 0
	running.Go(func() {
		var history []seen
		for ctx.Err() == nil {
			asked := time.Now()
			u, err := r.admin().Resource(harness.ValidatingResource).Get(ctx, "opgate", metav1.GetOptions{})
			if err != nil {
				if ctx.Err() == nil {
					failures = append(failures, err)
				}
				return
			}
			now, newest := time.Now(), bundles(u)[0]
			if n := len(history); n == 0 || !bytes.Equal(history[n-1].bundle, newest) {
				history = append(history, seen{bundle: newest, first: now})
			}
			history[len(history)-1].last = asked
			for len(history) > 1 && now.Sub(history[1].first) >= r.overlap/2 {
				history = history[1:]
			}
			for i := range r.addresses {
				err := r.dial(i, history[0].bundle)
				if time.Since(history[0].last) >= r.overlap {
					continue
				}
				if err != nil {
					failures = append(failures, err)
				}
				connections++
			}
		}
	})
	return func() {
		t.Helper()
		cancel()
		running.Wait()
		if len(failures) > 0 || connections == 0 {
			t.Errorf("%d of %d connections failed, the first with: %v", len(failures), connections,
				errors.Join(failures[:min(len(failures), 1)]...))
		}
	}
}
