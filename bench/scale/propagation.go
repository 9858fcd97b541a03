package scale

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
)

const (
	// askInterval is the pause between two reviews that ask a replica whether it judges by an edit.
	askInterval = 2 * time.Millisecond
	// editTimeout bounds the time until it does.
	editTimeout = 2 * time.Minute
)

// asker sends reviews to one replica, as the API server would.
type asker struct {
	url    string
	client *http.Client
}

// askers returns one for each replica.
func (s *site) askers(ctx context.Context) ([]*asker, error) {
	u, err := s.admin.Resource(validating).Get(ctx, "opgate", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &configuration); err != nil {
		return nil, err
	}
	path := ""
	for _, webhook := range configuration.Webhooks {
		target, err := url.Parse(*webhook.ClientConfig.URL)
		if err != nil {
			return nil, err
		}
		if len(webhook.Rules) > 0 && slices.Equal(webhook.Rules[0].Resources, []string{installPlans.Resource}) {
			path = target.Path
		}
	}
	if path == "" {
		return nil, errors.New("no webhook has a path for installplans")
	}
	var all []*asker
	for _, replica := range s.replicas {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(replica.CA())
		all = append(all, &asker{url: replica.WebhookURL() + path, client: &http.Client{
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
			Timeout:   editTimeout}})
	}
	return all, nil
}

// approvalOf returns the body of a review of an approval, by a user, of a plan with the allowed version.
func approvalOf(namespace string) ([]byte, error) {
	owner, err := objectOf("Subscription", namespace, allowed, secondPlan)
	if err != nil {
		return nil, err
	}
	old, err := planOf(namespace, secondPlan, allowed, owner)
	if err != nil {
		return nil, err
	}
	now := old.DeepCopy()
	now.Object["spec"].(map[string]any)["approved"] = true
	before, err := json.Marshal(old.Object)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(now.Object)
	if err != nil {
		return nil, err
	}
	kind, no := metav1.GroupVersionKind(now.GroupVersionKind()), false
	resource := metav1.GroupVersionResource(installPlans)
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Kind: kind, RequestKind: &kind, Resource: resource,
			RequestResource: &resource,
			Name:            now.GetName(), Namespace: namespace, Operation: admissionv1.Update, DryRun: &no,
			UserInfo: authenticationv1.UserInfo{Username: string(cluster.Admin),
				Groups: []string{"system:authenticated"}},
			Object: runtime.RawExtension{Raw: after}, OldObject: runtime.RawExtension{Raw: before},
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		}})
}

// allows sends a review, and reports whether it is allowed.
func (a *asker) allows(ctx context.Context, review []byte) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(review))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Response == nil {
		return false, fmt.Errorf("review: %s (%w)", response.Status, err)
	}
	return answer.Response.Allowed, nil
}

// until asks until the answer is the wanted one, and returns how long that is after an instant.
func (a *asker) until(ctx context.Context, s *site, review []byte, want bool, since time.Time) (time.Duration, error) {
	for {
		got, err := a.allows(ctx, review)
		took := s.Now().Sub(since)
		switch {
		case err != nil:
			return 0, err
		case got == want:
			return took, nil
		case took > editTimeout:
			return 0, fmt.Errorf("a replica does not judge by an edit after %s", editTimeout)
		}
		if err := s.pause(ctx, askInterval); err != nil {
			return 0, err
		}
	}
}

// propagation edits one policy after another, and measures how long after the API server's answer each replica refuses
// what it allowed before.
func (s *site) propagation(ctx context.Context) error {
	askers, err := s.askers(ctx)
	if err != nil {
		return err
	}
	took := make([][]time.Duration, len(askers))
	for i := range s.Edits {
		each, err := s.edit(ctx, askers, s.names[i*len(s.names)/s.Edits%len(s.names)])
		if err != nil {
			return err
		}
		for r := range askers {
			took[r] = append(took[r], each[r])
		}
	}
	for _, of := range took {
		s.row.Propagation = append(s.row.Propagation,
			Propagation{Edits: len(of), P50: percentile(of, 50).Seconds(), P99: percentile(of, 99).Seconds(),
				Most: percentile(of, 100).Seconds()})
	}
	return nil
}

// edit makes a policy allow another version than its plan has, and that version again. It returns how long after the
// API server's answer to the first of both each replica refused.
func (s *site) edit(ctx context.Context, askers []*asker, name string) ([]time.Duration, error) {
	review, err := approvalOf(name)
	if err != nil {
		return nil, err
	}
	if _, err := s.judged(ctx, askers, review, true); err != nil {
		return nil, err
	}
	if err := s.allow(ctx, name, "0.9.1"); err != nil {
		return nil, err
	}
	refused, err := s.judged(ctx, askers, review, false)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	if err := s.allow(ctx, name, allowed); err != nil {
		return nil, err
	}
	_, err = s.judged(ctx, askers, review, true)
	return refused, err
}

// allow makes a policy allow one version.
func (s *site) allow(ctx context.Context, name, version string) error {
	patch := fmt.Appendf(nil, `{"spec":{"versions":["etcdoperator.v%s"]}}`, version)
	_, err := again(ctx, s, func() (*unstructured.Unstructured, error) {
		return s.admin.Resource(policies).Namespace(policyNamespace).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{})
	})
	return err
}

// judged asks all replicas until each answers as wanted, and returns how long each took.
func (s *site) judged(ctx context.Context, askers []*asker, review []byte, want bool) ([]time.Duration, error) {
	began := s.Now()
	took, failures := make([]time.Duration, len(askers)), make([]error, len(askers))
	var asked sync.WaitGroup
	for i, a := range askers {
		asked.Go(func() { took[i], failures[i] = a.until(ctx, s, review, want, began) })
	}
	asked.Wait()
	return took, errors.Join(failures...)
}
