package serve

import (
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/internal/events"
)

// certificates returns the source of serving certificates and their controller, nil for none.
func certificates(config *rest.Config, o *Options, tokens *certs.Callers, ready <-chan struct{},
	recorder *events.Recorder, now func() time.Time, log logr.Logger) (certs.Source, *certs.Controller, error) {
	certMetrics := certs.NewMetrics(metrics.Registry)
	if o.SelfSigned {
		source, err := selfSigned(o)
		if err != nil {
			return nil, nil, err
		}
		certMetrics.Serving(source)
		return source, nil, nil // local use: nothing in the cluster is touched
	}
	entries, err := o.webhooks()
	if err != nil {
		return nil, nil, err
	}
	options := certs.Options{
		Webhooks: entries,
		Config:   config, Namespace: o.Namespace, Metrics: certMetrics, Events: recorder, Log: log.WithName("certs"),
		Now: now, Callers: tokens, Ready: ready, Unowned: !o.WebhooksOwned,
		ExternalDefinition: o.externalDefinition(),
		Lifetimes:          certs.Lifetimes{CA: o.CALifetime, Leaf: o.CertificateLifetime, Overlap: o.CAOverlap},
	}
	if o.CertFile == "" {
		return certs.NewManaged(options)
	}
	source, err := certs.Files(o.CertFile, o.KeyFile, now)
	if err != nil {
		return nil, nil, err
	}
	controller, err := certs.NewController(options, source)
	return source, controller, err
}

func selfSigned(o *Options) (certs.Source, error) {
	host, err := hostOf(o.WebhookAddress)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "localhost"
	}
	source, bundle, err := certs.SelfSigned(host)
	if err != nil || o.SelfSignedCA == "" {
		return source, err
	}
	if err := os.WriteFile(o.SelfSignedCA, bundle, 0o600); err != nil {
		return nil, fmt.Errorf("write the CA: %w", err)
	}
	return source, nil
}

// webhooks returns the entries of the webhook configurations.
func (o *Options) webhooks() (webhooks.Configurations, error) {
	return webhooks.New(webhooks.Settings{OLM: o.OLMIdentity[0],
		FailurePolicy:      admissionregistrationv1.FailurePolicyType(o.WebhookFailurePolicy),
		TimeoutSeconds:     int32(o.WebhookTimeout / time.Second), //nolint:gosec // at most 30
		ExternalDefinition: o.externalDefinition()})
}
