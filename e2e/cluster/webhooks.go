package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// installWebhooks creates or updates the webhook configurations in the file at path, and waits until the API server acts on
// them. All that differs from the file is where the webhooks are: at url, trusted by ca, instead of behind a Service.
func installWebhooks(ctx context.Context, c client.Client, path, url string, ca []byte) error {
	configurations, err := readWebhooks(path, url, ca)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, configuration := range configurations {
		if err := createOrUpdate(ctx, c, configuration); err != nil {
			return fmt.Errorf("install webhooks: %w", err)
		}
	}
	return waitForWebhooks(ctx, c)
}

// readWebhooks reads a file with one MutatingWebhookConfiguration and one ValidatingWebhookConfiguration.
func readWebhooks(path, url string, ca []byte) ([]client.Object, error) {
	documents, err := readDocuments(path)
	if err != nil {
		return nil, err
	}
	var (
		mutating   *admissionregistrationv1.MutatingWebhookConfiguration
		validating *admissionregistrationv1.ValidatingWebhookConfiguration
	)
	for _, d := range documents {
		var into any
		switch {
		case d.Kind == "MutatingWebhookConfiguration" && mutating == nil:
			mutating = &admissionregistrationv1.MutatingWebhookConfiguration{}
			into = mutating
		case d.Kind == "ValidatingWebhookConfiguration" && validating == nil:
			validating = &admissionregistrationv1.ValidatingWebhookConfiguration{}
			into = validating
		default:
			return nil, fmt.Errorf("unexpected or repeated %s", d.GroupVersionKind())
		}
		if err := yaml.UnmarshalStrict(d.text, into); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Kind, err)
		}
	}
	if mutating == nil || validating == nil {
		return nil, errors.New("want a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration")
	}

	for i := range mutating.Webhooks {
		webhook := &mutating.Webhooks[i]
		if err := redirect(&webhook.ClientConfig, url, ca); err != nil {
			return nil, fmt.Errorf("webhook %s: %w", webhook.Name, err)
		}
	}
	for i := range validating.Webhooks {
		webhook := &validating.Webhooks[i]
		if err := redirect(&webhook.ClientConfig, url, ca); err != nil {
			return nil, fmt.Errorf("webhook %s: %w", webhook.Name, err)
		}
	}
	return []client.Object{mutating, validating}, nil
}

// document is one object in a file of manifests.
type document struct {
	metav1.TypeMeta
	text []byte
}

// readDocuments takes a file of manifests apart.
func readDocuments(path string) ([]document, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var documents []document
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(text, &meta); err != nil {
			return nil, err
		}
		if meta != (metav1.TypeMeta{}) { // else a document of comments
			documents = append(documents, document{meta, text})
		}
	}
}

// redirect replaces a reference to a Service with a URL that has the same path.
func redirect(config *admissionregistrationv1.WebhookClientConfig, url string, ca []byte) error {
	if config.Service == nil || config.Service.Path == nil {
		return errors.New("clientConfig.service has no path")
	}
	target := url + *config.Service.Path
	*config = admissionregistrationv1.WebhookClientConfig{URL: &target, CABundle: ca}
	return nil
}

func createOrUpdate(ctx context.Context, c client.Client, object client.Object) error {
	err := c.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	current := &metav1.PartialObjectMetadata{}
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	current.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
		return err
	}
	object.SetResourceVersion(current.ResourceVersion)
	return c.Update(ctx, object)
}
