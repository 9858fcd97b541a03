package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// Client sends requests to the API server as one user: typed for what tests set up, plain for what they test.
type Client struct {
	dynamic.Interface
	Host string
	HTTP *http.Client
}

// NewClient returns a client that acts as a user of the cluster.
func NewClient(c *cluster.Cluster, user cluster.User) (*Client, error) {
	config, err := c.RESTConfig(user)
	if err != nil {
		return nil, err
	}
	return ClientOf(config)
}

// ClientOf returns a client for the user of a configuration.
func ClientOf(config *rest.Config) (*Client, error) {
	config.QPS = -1 // no limit of our own
	config.WarningHandlerWithContext = rest.NoWarnings{}
	setUp := rest.CopyConfig(config)
	setUp.Wrap(retryWhileBusy)
	objects, err := dynamic.NewForConfig(setUp)
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
	return &Client{Interface: objects, Host: strings.TrimSuffix(host.String(), "/"), HTTP: plain}, nil
}

// Request is a request to the API server.
type Request struct {
	Method, Path string
	Query        url.Values
	ContentType  string
	Body         []byte
}

// Answer is the API server's answer. Refused is the text of the gate, or of the backstop, "" when neither refused.
type Answer struct {
	Code     int
	Body     []byte
	Message  string
	Refused  string
	Warnings []string
}

// DeniedBy is the prefix of the gate's text in the API server's answer to a refused request.
const DeniedBy = "denied the request: "

// HeldBy is the prefix of the backstop's text in the API server's answer.
const HeldBy = "ValidatingAdmissionPolicy 'opgate-backstop' with binding 'opgate-backstop' denied request: "

// HeldByDeletion is HeldBy of deletions.
const HeldByDeletion = "ValidatingAdmissionPolicy 'opgate-deletion' with binding 'opgate-deletion' denied request: "

// Send makes a request.
func (c *Client) Send(ctx context.Context, r Request) (Answer, error) {
	target := c.Host + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return Answer{}, err
	}
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	response, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	a := Answer{Code: response.StatusCode, Warnings: response.Header.Values("Warning")}
	if a.Body, err = io.ReadAll(response.Body); err != nil {
		return Answer{}, err
	}
	if !a.OK() {
		a.Message = string(a.Body)
		var status metav1.Status
		if json.Unmarshal(a.Body, &status) == nil && status.Message != "" {
			a.Message = status.Message
		}
		if _, refused, found := strings.Cut(a.Message, DeniedBy); found &&
			strings.HasPrefix(a.Message, "admission webhook ") {
			a.Refused = refused
		}
		for _, held := range []string{HeldBy, HeldByDeletion} {
			if _, refused, found := strings.Cut(a.Message, held); found {
				a.Refused = refused
			}
		}
	}
	return a, nil
}

// OK reports whether the request succeeded.
func (a Answer) OK() bool { return a.Code >= 200 && a.Code < 300 }

// String is the text of an answer in a failing test.
func (a Answer) String() string {
	if a.OK() {
		return fmt.Sprintf("%d", a.Code)
	}
	return fmt.Sprintf("%d %.500s", a.Code, a.Message)
}

// Object is the object in an answer, nil where there is none.
func (a Answer) Object() *unstructured.Unstructured {
	var u unstructured.Unstructured
	if json.Unmarshal(a.Body, &u.Object) != nil || u.GetKind() == "Status" {
		return nil
	}
	return &u
}

// Must is Send for tests that need an answer to continue. It sends a request again that the API server itself was too
// slow for, as controllers do: nothing has judged it to the end.
func (c *Client) Must(t testing.TB, r Request) Answer {
	t.Helper()
	waiting, cancel := speed.WithTimeout(t.Context(), WaitTimeout)
	defer cancel()
	for {
		a, err := c.Send(t.Context(), r)
		if err != nil {
			t.Fatalf("%s %s: %v", r.Method, r.Path, err)
		}
		if a.Code != http.StatusGatewayTimeout || waiting.Err() != nil {
			return a
		}
	}
}

// PathOf is the path of a resource, or of an object of it where name is given, or of its subresource.
func PathOf(resource schema.GroupVersionResource, namespace, name, subresource string) string {
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

// Of returns the interface for the resource and namespace of an object.
func (c *Client) Of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, ok := Resources[u.GetKind()]
	if !ok { // a kind of Kubernetes itself, whose plurals are regular
		resource, _ = meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	}
	if resource == Constraints && u.GetAPIVersion() != "" {
		resource.Version = u.GroupVersionKind().Version // a scenario writes either
	}
	if u.GetNamespace() == "" {
		return c.Resource(resource)
	}
	return c.Resource(resource).Namespace(u.GetNamespace())
}

// Discover lists the subresources of a resource, "" for itself, in every version of its group that has it. A
// subresource that is new to this test fails it: whether the gate judges it must be decided.
func (e *Env) Discover(t testing.TB, group, resource string) map[schema.GroupVersion][]string {
	t.Helper()
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	found := map[schema.GroupVersion][]string{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if version.Group != group {
			continue
		}
		for _, served := range list.APIResources {
			base, subresource, _ := strings.Cut(served.Name, "/")
			if base != resource {
				continue
			}
			if subresource != "" && subresource != "status" {
				t.Errorf("%s serves %s: it is not decided how the gate handles it", version, served.Name)
			}
			found[version] = append(found[version], subresource)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no version of %s serves %s", group, resource)
	}
	return found
}

// MergeQuery returns the parameters of both; those of a win.
func MergeQuery(a, b url.Values) url.Values {
	both := maps.Clone(b)
	maps.Copy(both, a)
	return both
}
