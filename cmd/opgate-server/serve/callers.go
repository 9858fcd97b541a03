package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/internal/events"
)

// callers distinguishes the API server from other clients that reach the port of the webhooks: by a client
// certificate, where an administrator has configured one, else by the token in the path that it calls.
type callers struct {
	tokens *certs.Callers // nil with client certificates

	ca    *dynamiccertificates.DynamicFileCAContent // nil without
	names []string
}

func newCallers(o *Options, now func() time.Time) (*callers, error) {
	if o.ClientCAFile == "" {
		return &callers{tokens: &certs.Callers{Now: now}}, nil
	}
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	return &callers{ca: ca, names: o.ClientNames}, nil
}

// Start reads the file of the CA again when it changes.
func (c *callers) Start(ctx context.Context) error {
	if c.ca != nil {
		c.ca.Run(ctx, 1)
	}
	return nil
}

// listen returns a TLS configuration that checks the certificates of clients that have one. Others are accepted:
// conversion, for which no API server has a certificate, is served on the same port, and shows nothing but what it was
// sent.
func (c *callers) listen(base *tls.Config) *tls.Config {
	if c.ca == nil {
		return base
	}
	checked := base.Clone()
	checked.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		options, ok := c.ca.VerifyOptions()
		if !ok {
			return nil, errors.New("the CA of clients cannot be used")
		}
		config := base.Clone()
		config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, options.Roots
		config.SessionTicketsDisabled = true // a resumed session would not be checked against a CA that has changed
		return config, nil
	}
	return checked
}

// authenticated reports whether a request comes from the API server.
func (c *callers) authenticated(r *http.Request) bool {
	if c.ca == nil {
		return c.tokens.Knows(r.PathValue("token"))
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return false
	}
	return len(c.names) == 0 || slices.Contains(c.names, r.TLS.PeerCertificates[0].Subject.CommonName)
}

// exposed records that the URL of a request may have been shown to a user.
func (c *callers) exposed(r *http.Request) {
	if c.ca == nil {
		c.tokens.Expose(r.PathValue("token"))
	}
}

// register registers an endpoint. Where the API server has a certificate, no other client is answered, but for refusals
// of steps of plans.
func (c *callers) register(server webhook.Server, path string, endpoint http.Handler) {
	handler := endpoint
	if c.ca != nil && !admission.IsStep(path) {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !c.authenticated(r) {
				http.Error(w, "a client certificate of the API server is required", http.StatusUnauthorized)
				return
			}
			endpoint.ServeHTTP(w, r)
		})
	}
	server.Register(path, handler)
}

// certificates returns the source of serving certificates and their controller, nil for none.
func certificates(
	config *rest.Config, o *Options, tokens *certs.Callers, ready <-chan struct{}, recorder *events.Recorder,
	log logr.Logger,
) (source certs.Source, controller *certs.Controller, err error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 5, 50
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client of certificates: %w", err)
	}
	options := certs.Options{
		Client: client, Namespace: o.Namespace, Metrics: certs.NewMetrics(metrics.Registry), Events: recorder,
		Log: log.WithName("certs"), Now: time.Now, Callers: tokens, Ready: ready, Unowned: !o.WebhooksOwned,
		ExternalDefinition: o.externalDefinition(),
		Lifetimes:          certs.Lifetimes{CA: o.CALifetime, Leaf: o.CertificateLifetime, Overlap: o.CAOverlap},
	}
	if options.Webhooks, err = o.webhooks(); err != nil {
		return nil, nil, err
	}
	switch {
	case o.SelfSigned: // local use: nothing in the cluster is touched
		source, err = selfSigned(o)
	case o.CertFile == "":
		source, controller = certs.NewManaged(options)
	default:
		if source, err = certs.Files(o.CertFile, o.KeyFile, time.Now); err == nil {
			controller = certs.NewController(options, source)
		}
	}
	if err == nil {
		options.Metrics.Serving(source)
	}
	return source, controller, err
}

func selfSigned(o *Options) (certs.Source, error) {
	host, err := hostOf(o.WebhookAddress)
	if err != nil {
		return nil, err
	}
	source, bundle, err := certs.SelfSigned(cmp.Or(host, "localhost"))
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
