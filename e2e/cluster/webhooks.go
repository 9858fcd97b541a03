package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// configurationName is the name of both webhook configurations.
const configurationName = "opgate"

// routeTimeout bounds the time until Opgate has written paths and rules into the webhook configurations; it takes
// milliseconds.
const routeTimeout = speed.Wait

// installWebhooks creates or updates the webhook configurations in the file at path, and waits until Opgate has written
// its paths and the API server acts on them. All that differs from the file is the target.
func installWebhooks(ctx context.Context, c client.Client, path string, to target) error {
	installed := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	switch err := c.Get(ctx, client.ObjectKey{Name: configurationName}, installed); {
	case err == nil: // applying manifests again leaves the rules as they are
		to.inEffect = to.inEffect || slices.ContainsFunc(installed.Webhooks,
			func(w admissionregistrationv1.ValidatingWebhook) bool { return len(w.Rules) > 0 })
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("install webhooks: %w", err)
	}
	configurations, err := readWebhooks(path, to)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, configuration := range configurations {
		if err := createOrUpdate(ctx, c, configuration); err != nil {
			return fmt.Errorf("install webhooks: %w", err)
		}
	}
	if err := waitForPaths(ctx, c); err != nil {
		return fmt.Errorf("install webhooks: %w", err)
	}
	return waitForWebhooks(ctx, c)
}

// target is what webhook configurations call: webhooks at url, trusted by ca, instead of a Service, with olm as OLM's
// user name.
type target struct {
	url string
	ca  []byte
	olm string
	// inEffect is whether entries have rules from the start, as Opgate writes them when it has been ready.
	inEffect bool
}

// waitForPaths waits until every webhook has a path and rules. Manifests have none: Opgate fills them in, with the
// token by which it knows the API server.
func waitForPaths(ctx context.Context, c client.Client) error {
	var bare string
	err := speed.Poll(ctx, pollInterval, routeTimeout, func(ctx context.Context) (bool, error) {
		mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{},
			&admissionregistrationv1.ValidatingWebhookConfiguration{}
		configs := map[string]admissionregistrationv1.WebhookClientConfig{}
		rules := map[string]int{}
		for _, into := range []client.Object{mutating, validating} {
			if err := c.Get(ctx, client.ObjectKey{Name: configurationName}, into); err != nil {
				return false, err
			}
		}
		for _, webhook := range mutating.Webhooks {
			configs["mutating "+webhook.Name], rules["mutating "+webhook.Name] = webhook.ClientConfig,
				len(webhook.Rules)
		}
		for _, webhook := range validating.Webhooks {
			configs["validating "+webhook.Name], rules["validating "+webhook.Name] = webhook.ClientConfig,
				len(webhook.Rules)
		}
		for name, config := range configs {
			target, err := url.Parse(*config.URL)
			if err != nil {
				return false, err
			}
			if target.Path == "" || rules[name] == 0 {
				bare = name
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait until opgate has written path and rules of webhook %s: %w", bare, err)
	}
	return nil
}

// readWebhooks reads a file with one MutatingWebhookConfiguration and one ValidatingWebhookConfiguration.
func readWebhooks(path string, to target) ([]client.Object, error) {
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

	// Opgate completes the entries; a process that is killed and started again has to do so at once, which here the
	// cluster does for it. Without rules they match nothing.
	complete, err := webhooks.New(webhooks.Settings{OLM: to.olm, FailurePolicy: admissionregistrationv1.Fail,
		TimeoutSeconds: 5})
	if err != nil {
		return nil, err
	}
	for i := range mutating.Webhooks {
		entry, err := to.complete(mutating.Webhooks[i].Name, complete.Mutating, mutating.Webhooks[i].ClientConfig)
		if err != nil {
			return nil, err
		}
		entry.NamespaceSelector = mutating.Webhooks[i].NamespaceSelector
		mutating.Webhooks[i] = entry
	}
	for i := range validating.Webhooks {
		entry, err := to.complete(validating.Webhooks[i].Name, complete.Validating, validating.Webhooks[i].ClientConfig)
		if err != nil {
			return nil, err
		}
		validating.Webhooks[i] = admissionregistrationv1.ValidatingWebhook{Name: entry.Name,
			ClientConfig: entry.ClientConfig, Rules: entry.Rules, FailurePolicy: entry.FailurePolicy,
			MatchPolicy: entry.MatchPolicy, NamespaceSelector: validating.Webhooks[i].NamespaceSelector,
			ObjectSelector: entry.ObjectSelector, SideEffects: entry.SideEffects, TimeoutSeconds: entry.TimeoutSeconds,
			AdmissionReviewVersions: entry.AdmissionReviewVersions, MatchConditions: entry.MatchConditions}
	}
	return []client.Object{mutating, validating}, nil
}

// complete returns the entry of a name, which calls the target in place of the Service.
func (to target) complete(
	name string, all []webhooks.Entry, config admissionregistrationv1.WebhookClientConfig,
) (webhooks.Entry, error) {
	i := slices.IndexFunc(all, func(e webhooks.Entry) bool { return e.Name == name })
	if i < 0 {
		return webhooks.Entry{}, fmt.Errorf("webhook %s: Opgate has no such entry", name)
	}
	entry := all[i]
	if !to.inEffect {
		entry.Rules = nil
	}
	entry.ClientConfig = config
	if err := redirect(&entry.ClientConfig, to); err != nil {
		return webhooks.Entry{}, fmt.Errorf("webhook %s: %w", name, err)
	}
	return entry, nil
}

// document is one object in a file of manifests.
type document struct {
	metav1.TypeMeta
	text []byte
}

// readDocuments splits a file of manifests.
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

// redirect replaces a reference to a Service with a URL. Neither has a path.
func redirect(config *admissionregistrationv1.WebhookClientConfig, to target) error {
	if config.Service == nil || config.Service.Path != nil {
		return errors.New("clientConfig has no service, or one with a path, which is for opgate to write")
	}
	*config = admissionregistrationv1.WebhookClientConfig{URL: &to.url, CABundle: to.ca}
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
