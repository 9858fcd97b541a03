package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/certs"
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
	if c.ca == nil {
		<-ctx.Done()
		return nil
	}
	c.ca.Run(ctx, 1)
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
