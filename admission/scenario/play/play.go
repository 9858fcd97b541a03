// Package play sends the write of a scenario through the handlers of a gate, as the API server would send it, over a
// cluster that holds the scenario's objects.
package play

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// OLM is the name that user olm of scenarios writes as.
const OLM = "system:serviceaccount:olm:olm-operator-serviceaccount"

// Cluster is what exists before the write.
type Cluster struct {
	// Objects are read as the feed of the gate reads them. The namespaces of objects exist, with the labels that they
	// have in the objects, if they are there.
	Objects []*unstructured.Unstructured
	// Versions are those of the cluster.
	Versions facts.Cluster
	// Packages are what catalogs offer. Default: nothing is known of them.
	Packages state.Packages
	// Read makes of an object what the gate keeps of it. Default: its own code does, and what it cannot read is an
	// error.
	Read func(*snapshot.Kind, *unstructured.Unstructured) (*snapshot.Object, error)
}

// Snapshot returns the cluster as the gate holds it. Errors are about objects of kinds that the gate does not follow,
// and about what Read returns.
func (c *Cluster) Snapshot() (*snapshot.Snapshot, error) {
	read := c.Read
	if read == nil {
		read = readStored
	}
	var files contents.Files
	var kept []*snapshot.Object
	keep := func(kind *snapshot.Kind, u *unstructured.Unstructured) error {
		o, err := read(kind, u)
		if err != nil {
			return fmt.Errorf("%s %s: %w", u.GetKind(), named(u), err)
		}
		kept = append(kept, o)
		return nil
	}
	for _, name := range namespacesOf(c.Objects) {
		namespace := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
		if err := keep(snapshot.Namespaces, labelledByName(namespace)); err != nil {
			return nil, err
		}
	}
	for _, u := range c.Objects {
		raw, err := json.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		files.Add(raw, "")
		kind := KindOf(u)
		switch {
		case u.GetKind() == "ConfigMap" && !isRecord(u.GetName()):
			continue // is read for the plan that refers to it
		case JudgedAlone(u):
			continue
		case kind == nil:
			return nil, fmt.Errorf("kind %s is not one that the gate follows", u.GetKind())
		case kind == snapshot.Namespaces:
			u = labelledByName(u)
		}
		if err := keep(kind, u); err != nil {
			return nil, err
		}
	}
	builder := snapshot.Builder{Packages: c.Packages, Changes: files.Changes, WithoutServices: true}
	builder.Put(time.Time{}, kept...)
	return builder.SetCluster(time.Time{}, c.Versions), nil
}

// readStored reads as the gate's feed does.
func readStored(kind *snapshot.Kind, u *unstructured.Unstructured) (o *snapshot.Object, err error) {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	reader := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName,
		problem error) {
		err = problem
	}}
	o = reader.Read(kind, raw)
	return o, err
}

// KindOf returns the kind of an object as the gate follows it; nil if it does not.
func KindOf(u *unstructured.Unstructured) *snapshot.Kind {
	kinds := snapshot.Kinds()
	i := slices.IndexFunc(kinds,
		func(k *snapshot.Kind) bool { return k.Kind == u.GetKind() && k.Readers != snapshot.Leader })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// JudgedAlone reports whether an object is of a kind of which the gate reads no more than what reviews hold.
func JudgedAlone(u *unstructured.Unstructured) bool {
	kind := u.GroupVersionKind()
	return kind == olm.ClusterExtensionGVK || kind == olm.ClusterCatalogGVK
}

func named(u *unstructured.Unstructured) string {
	return strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
}

// labelledByName is a namespace with the label that the API server sets.
func labelledByName(namespace *unstructured.Unstructured) *unstructured.Unstructured {
	namespace = namespace.DeepCopy()
	// Labels that are no object are an error when the namespace is read.
	_ = unstructured.SetNestedField(namespace.Object, namespace.GetName(), "metadata", "labels", metakey.NamespaceName)
	return namespace
}

func namespacesOf(objects []*unstructured.Unstructured) (names []string) {
	for _, u := range objects {
		if name := u.GetNamespace(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// isRecord reports whether a ConfigMap of this name, in Opgate's own namespace, is followed.
func isRecord(name string) bool {
	_, installed := state.RecordedNamespace(name)
	return installed || name == catalog.RecordsName
}

// Marked is a Policy as it is stored after a user with all rights has written it, signed with a key. Other objects stay
// as they are.
func Marked(u *unstructured.Unstructured, key []byte) (*unstructured.Unstructured, error) {
	if u.GetKind() != "Policy" {
		return u, nil
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	p := &policyv1.Policy{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("read Policy %s: %w", named(u), err)
	}
	digest, err := dependency.DigestOf(p)
	if err != nil {
		return nil, fmt.Errorf("read Policy %s: %w", named(u), err)
	}
	u = u.DeepCopy()
	return u, unstructured.SetNestedField(u.Object, dependency.Sign(key, p, digest, dependency.Verification{}),
		"metadata", "annotations", metakey.Verified)
}

// Write is one write by one user.
type Write struct {
	// User is a name; that of OLM may be written as olm.
	User string
	// Status is set for a write to the status.
	Status bool
	// Old is the object that is written to, nil on create; New is it after the write.
	Old, New *unstructured.Unstructured
}

// Outcome is what a user sees of a write, and what is stored of it.
type Outcome struct {
	// Decision is Allow, Deny or Hold.
	Decision string
	// Message is the refusal.
	Message string
	// Warnings are sorted, each one once.
	Warnings []string
	// Object is the JSON of what is stored.
	Object []byte
	// Audit are the annotations of the validating answer that go to the audit log, by their keys.
	Audit map[string]string
}

// user returns the name of the user.
func (w *Write) user() string {
	if w.User == "olm" {
		return OLM
	}
	return w.User
}

// Send passes a write through the mutating and then the validating webhooks, as the API server does: only through those
// whose conditions match. The handlers are those of a gate, by their paths.
func (w *Write) Send(ctx context.Context, handlers map[string]http.Handler) (*Outcome, error) {
	object, err := json.Marshal(w.New.Object)
	if err != nil {
		return nil, err
	}
	got := &Outcome{Object: object, Decision: verdict.Allow.String()}
	for i := range shipped() {
		h := &shipped()[i]
		if !h.concerns(w) {
			continue
		}
		matches, err := h.matches(ctx, w)
		if err != nil {
			return nil, err
		}
		if !matches {
			continue
		}
		body, err := Review(w.user(), w.Status, w.Old, got.Object)
		if err != nil {
			return nil, err
		}
		answer, err := Post(ctx, handlers[h.path], body)
		if err != nil {
			return nil, err
		}
		got.Warnings = append(got.Warnings, answer.Warnings...)
		got.Audit = answer.AuditAnnotations
		if !answer.Allowed {
			got.Decision, got.Message = cmp.Or(answer.AuditAnnotations["decision"], verdict.Deny.String()),
				answer.Result.Message
			break
		}
		if answer.Patch != nil {
			patch, err := jsonpatch.DecodePatch(answer.Patch)
			if err != nil {
				return nil, err
			}
			if got.Object, err = patch.Apply(got.Object); err != nil {
				return nil, err
			}
			if w, err = w.withObject(got.Object); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(got.Warnings)
	got.Warnings = slices.Compact(got.Warnings)
	return got, nil
}

// ResourceOf is the resource of an object.
func ResourceOf(u *unstructured.Unstructured) string {
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	return plural.Resource
}

// Review is the body that the API server sends for a write.
func Review(user string, status bool, old *unstructured.Unstructured, object []byte) ([]byte, error) {
	req := &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: user, Groups: []string{"system:authenticated"}},
		Object:   runtime.RawExtension{Raw: object},
	}
	var head metav1.PartialObjectMetadata
	if json.Unmarshal(object, &head) == nil { // what is no object is sent all the same
		req.Namespace = head.Namespace
	}
	if old != nil {
		data, err := json.Marshal(old.Object)
		if err != nil {
			return nil, err
		}
		req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: data}
	}
	if status {
		req.SubResource = "status"
	}
	in := admissionv1.AdmissionReview{Request: req}
	in.Kind, in.APIVersion = "AdmissionReview", "admission.k8s.io/v1"
	return json.Marshal(in)
}

// Post sends a body to a handler and returns the answer, which must be an AdmissionReview for every body.
func Post(ctx context.Context, handler http.Handler, body []byte) (*admissionv1.AdmissionResponse, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, request)
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil || w.Code != http.StatusOK {
		return nil, fmt.Errorf("answer %d is no AdmissionReview: %s", w.Code, strings.TrimSpace(w.Body.String()))
	}
	if !out.Response.Allowed && (out.Response.Result == nil || out.Response.Result.Message == "") {
		return nil, errors.New("a refusal without a message")
	}
	return out.Response, nil
}
