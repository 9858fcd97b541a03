package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	policyDefinition = "operatorpolicies.policy.open-cluster-management.io"
	conversionPath   = "/convert"
)

// installConversion makes the API server convert policies by the webhook at url, trusted by ca.
func (c *Cluster) installConversion(ctx context.Context, url string, ca []byte) error {
	target := url + conversionPath
	return c.SetConversion(ctx, apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &target, CABundle: ca},
			ConversionReviewVersions: []string{"v1"},
		},
	})
}

// SetConversion sets how the API server converts policies. It takes effect with a short delay.
func (c *Cluster) SetConversion(ctx context.Context, conversion apiextensionsv1.CustomResourceConversion) error {
	return c.changeDefinition(ctx,
		func(definition *apiextensionsv1.CustomResourceDefinition) { definition.Spec.Conversion = &conversion })
}

// changeDefinition changes the definition of policies, unless a test has deleted it.
func (c *Cluster) changeDefinition(ctx context.Context, change func(*apiextensionsv1.CustomResourceDefinition)) error {
	config, err := c.RESTConfig(Admin)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err = admin.Get(ctx, client.ObjectKey{Name: policyDefinition}, definition)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("change the definition of policies: %w", err)
	}
	before := definition.DeepCopy()
	change(definition)
	if err := admin.Patch(ctx, definition, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("change the definition of policies: %w", err)
	}
	return nil
}

// SetStorageVersion makes the API server store policies in a version from now on. Stored objects are not rewritten.
func (c *Cluster) SetStorageVersion(ctx context.Context, version string) error {
	return c.changeDefinition(ctx, func(definition *apiextensionsv1.CustomResourceDefinition) {
		for i := range definition.Spec.Versions {
			definition.Spec.Versions[i].Storage = definition.Spec.Versions[i].Name == version
		}
	})
}

// StorePolicy writes a policy to etcd, past the API server and what it validates.
func (c *Cluster) StorePolicy(ctx context.Context, policy *unstructured.Unstructured) error {
	value, err := json.Marshal(policy)
	if err != nil {
		return err
	}
	key := []byte(policyKeys + policy.GetNamespace() + "/" + policy.GetName())
	return c.etcd(ctx, "put", map[string]any{"key": key, "value": value}, nil)
}

// StoredPolicies returns the apiVersion that each policy is stored in. The keys are namespace/name. It reads etcd,
// since the API server returns every policy in the requested version.
func (c *Cluster) StoredPolicies(ctx context.Context) (map[string]string, error) {
	end := strings.TrimSuffix(policyKeys, "/") + "0" // the key after all of them
	var content stored
	if err := c.etcd(ctx, "range", map[string]any{"key": []byte(policyKeys), "range_end": []byte(end)},
		&content); err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, kv := range content.KVs {
		var object metav1.TypeMeta
		if err := json.Unmarshal(kv.Value, &object); err != nil {
			return nil, fmt.Errorf("read etcd: %s: %w", kv.Key, err)
		}
		versions[strings.TrimPrefix(string(kv.Key), policyKeys)] = object.APIVersion
	}
	return versions, nil
}

// policyKeys begins the keys of policies in etcd.
const policyKeys = "/registry/policy.open-cluster-management.io/operatorpolicies/"

// stored is what etcd has.
type stored struct {
	KVs []struct {
		Key, Value []byte
	}
}

// etcd sends a request to etcd, and decodes the answer unless into is nil.
func (c *Cluster) etcd(ctx context.Context, operation string, content map[string]any, into any) error {
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	target := c.plane.Etcd.URL.JoinPath("/v3/kv/" + operation).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask etcd: %s of %s", response.Status, operation)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("ask etcd: %s: %w", response.Status, err)
	}
	return nil
}
