package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/rules"
)

const (
	// waitTimeout bounds what takes milliseconds on a machine that has nothing else to do.
	waitTimeout  = speed.Wait
	pollInterval = 20 * time.Millisecond
)

var (
	olmVersion    = schema.GroupVersion{Group: "operators.coreos.com", Version: "v1alpha1"}
	subscriptions = olmVersion.WithResource("subscriptions")
	installPlans  = olmVersion.WithResource("installplans")
	policies      = schema.GroupVersionResource{Group: "policy.open-cluster-management.io", Version: "v1beta2", Resource: "operatorpolicies"}
	ordered       = schema.GroupVersionResource{Group: "policy.open-cluster-management.io", Version: "v1", Resource: "policies"}
	policySets    = schema.GroupVersionResource{Group: "policy.open-cluster-management.io", Version: "v1beta1", Resource: "policysets"}
	constraints   = schema.GroupVersionResource{Group: "operators.coreos.com", Version: "v1", Resource: "constraints"}
	namespaces    = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

	// resources are those of the kinds that tests write.
	resources = map[string]schema.GroupVersionResource{
		"Subscription":          subscriptions,
		"InstallPlan":           installPlans,
		"ClusterServiceVersion": olmVersion.WithResource("clusterserviceversions"),
		"CatalogSource":         olmVersion.WithResource("catalogsources"),
		"OperatorGroup":         operatorGroups,
		"OperatorPolicy":        policies,
		"Constraint":            constraints,
		"Policy":                ordered,
		"PolicySet":             policySets,
		"Namespace":             namespaces,
	}
)

// client talks to the API server as one user: with objects for what tests set up, and with plain requests for what they try.
type client struct {
	dynamic.Interface
	host string
	http *http.Client
}

func newClient(c *cluster.Cluster, user cluster.User) (*client, error) {
	config, err := c.RESTConfig(user)
	if err != nil {
		return nil, err
	}
	return clientOf(config)
}

// clientOf talks as whoever a configuration is of.
func clientOf(config *rest.Config) (*client, error) {
	config.QPS = -1 // no limit of our own
	config.WarningHandlerWithContext = rest.NoWarnings{}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &client{Interface: objects, host: strings.TrimSuffix(host.String(), "/"), http: plain}, nil
}

// request is one to the API server.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// answer is the API server's. Refused is the gate's own text, "" when the gate did not refuse.
type answer struct {
	code     int
	body     []byte
	message  string
	refused  string
	warnings []string
}

const deniedBy = "denied the request: "

// send makes a request.
func (c *client) send(ctx context.Context, r request) (answer, error) {
	target := c.host + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	response, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	a := answer{code: response.StatusCode, warnings: response.Header.Values("Warning")}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return answer{}, err
	}
	if !a.ok() {
		a.message = string(a.body)
		var status metav1.Status
		if json.Unmarshal(a.body, &status) == nil && status.Message != "" {
			a.message = status.Message
		}
		if _, refused, found := strings.Cut(a.message, deniedBy); found && strings.HasPrefix(a.message, "admission webhook ") {
			a.refused = refused
		}
	}
	return a, nil
}

func (a answer) ok() bool { return a.code >= 200 && a.code < 300 }

// String is what a failing test shows of an answer.
func (a answer) String() string {
	if a.ok() {
		return fmt.Sprintf("%d", a.code)
	}
	return fmt.Sprintf("%d %.500s", a.code, a.message)
}

// object is the object in an answer, nil where there is none.
func (a answer) object() *unstructured.Unstructured {
	var u unstructured.Unstructured
	if json.Unmarshal(a.body, &u.Object) != nil || u.GetKind() == "Status" {
		return nil
	}
	return &u
}

// must is send for tests that cannot go on without an answer.
func (c *client) must(t *testing.T, r request) answer {
	t.Helper()
	a, err := c.send(t.Context(), r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	return a
}

// pathOf is the path of a resource, or of an object of it where name is given, or of its subresource.
func pathOf(resource schema.GroupVersionResource, namespace, name, subresource string) string {
	path := "/apis/" + resource.Group + "/" + resource.Version
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	for _, part := range []string{resource.Resource, name, subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

func (c *client) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, ok := resources[u.GetKind()]
	if !ok {
		panic("kind " + u.GetKind() + " is not in resources")
	}
	if resource == constraints && u.GetAPIVersion() != "" {
		resource.Version = u.GroupVersionKind().Version // a scenario writes either
	}
	if u.GetNamespace() == "" {
		return c.Resource(resource)
	}
	return c.Resource(resource).Namespace(u.GetNamespace())
}

// put creates an object and then writes its status, if it has one, and removes the object after the test. It returns what is
// stored.
func (e *env) put(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := e.create(t.Context(), u)
	t.Cleanup(func() { e.remove(t, u) })
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// repeated does what OLM does with a step that is refused: it tries again. The gate may not have seen the plan yet.
func repeated(ctx context.Context, u *unstructured.Unstructured, write func() error) error {
	err := write()
	if u.GetKind() != "ClusterServiceVersion" {
		return err
	}
	_ = wait.PollUntilContextTimeout(ctx, pollInterval, 20*time.Second, false, func(context.Context) (bool, error) {
		if apierrors.IsForbidden(err) {
			err = write()
		}
		return !apierrors.IsForbidden(err), nil
	})
	return err
}

// create creates an object and then writes its status, if it has one. Who writes them on a real cluster does it here: OLM
// writes plans, ClusterServiceVersions and every status, Opgate virtual operators, an admin the rest.
func (e *env) create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	author := e.clients[cluster.Admin]
	switch kind := u.GetKind(); {
	case u.GetLabels()[rules.VirtualOperatorLabel] != "":
		var err error
		if author, err = e.inPlaceOfOpgate(); err != nil {
			return nil, err
		}
	case kind == "InstallPlan", kind == "ClusterServiceVersion":
		author = e.clients[cluster.OLM]
	}
	var stored *unstructured.Unstructured
	err := repeated(ctx, u, func() (err error) {
		stored, err = author.of(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	status, ok := u.Object["status"]
	if !ok {
		return stored, nil
	}
	stored.Object["status"] = status
	stored, err = e.clients[cluster.OLM].of(u).UpdateStatus(ctx, stored, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return stored, nil
}

// inPlaceOfOpgate is an admin who acts as Opgate: what Opgate itself asks for is compared with its rights.
func (e *env) inPlaceOfOpgate() (*client, error) {
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		return nil, err
	}
	config.Impersonate.UserName = cluster.OpgateUserName
	objects, err := dynamic.NewForConfig(config)
	return &client{Interface: objects}, err
}

// remove deletes an object that may be gone. It is for cleaning up, when the context of the test has ended.
func (e *env) remove(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	err := e.clients[cluster.Admin].of(u).Delete(context.WithoutCancel(t.Context()), u.GetName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// stored reads an object as admin; nil where there is none.
func (e *env) stored(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := e.clients[cluster.Admin].of(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return stored
}

// sync waits until the gate judges by what is stored now.
func (e *env) sync(t *testing.T) {
	t.Helper()
	if err := e.gate.WaitForSnapshot(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check returns nil.
func eventually(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// kubectl runs kubectl as a user and wants it to succeed. It returns what it printed, warnings included.
func kubectl(t testing.TB, c *cluster.Cluster, user cluster.User, stdin string, args ...string) string {
	t.Helper()
	result, err := c.Kubectl(t.Context(), user, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 0 {
		t.Fatalf("kubectl %s as %s: exit code %d\n%s", strings.Join(args, " "), user, result.ExitCode, result.Stderr)
	}
	return result.Stdout
}

// refused runs kubectl as a user and wants the API server to refuse, with all of the texts in its answer.
func refused(t *testing.T, c *cluster.Cluster, user cluster.User, stdin string, args []string, says ...string) {
	t.Helper()
	result, err := c.Kubectl(t.Context(), user, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode == 0 {
		t.Errorf("kubectl %s as %s was not refused:\n%s", strings.Join(args, " "), user, result.Stdout)
		return
	}
	for _, text := range says {
		if !strings.Contains(result.Stderr, text) {
			t.Errorf("kubectl %s as %s: got\n%s\nwant %q in it", strings.Join(args, " "), user, result.Stderr, text)
		}
	}
}
