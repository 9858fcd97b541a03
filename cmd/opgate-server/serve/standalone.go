package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// Reviews serves the endpoints of reviews as Run does, without an API server: the snapshot is the caller's, every
// request counts as the API server's, and no user has rights. "make bench" measures it. It calls listening with the
// address and with the CA that clients must trust, PEM-encoded, and serves until the context ends.
func Reviews(
	ctx context.Context, o Options, store *snapshot.Store, listening func(address net.Addr, ca []byte) error,
) error {
	log, _, err := newLogger(&o, os.Stderr)
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	if err := limitMemory(); err != nil {
		return err
	}
	account, err := olmidentity.Parse(o.OLMIdentity[0])
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.WebhookAddress)
	if err != nil {
		return err
	}
	source, ca, err := certs.SelfSigned(host)
	if err != nil {
		return err
	}
	known := &callers{tokens: &certs.Callers{Now: time.Now}}
	server, err := newWebhookServer(ctx, o.WebhookAddress, source, known, log)
	if err != nil {
		return err
	}
	gate, err := admission.New(admission.Options{
		Store:         store,
		Metrics:       admission.NewMetrics(metrics.Registry, store, time.Now),
		Budget:        inflight.NewBudget(metrics.Registry),
		Panics:        panics.NewRecorder(metrics.Registry, log.WithName("panics")),
		Authorizer:    noRights{},
		Authenticated: func(*http.Request) bool { return true },
		OLM:           olmidentity.New(account),
		ApprovalMode:  rules.ApprovalMode(o.ApprovalMode),
		Log:           log.WithName("admission"),
		Now:           time.Now,
	})
	if err != nil {
		return err
	}
	for path, handler := range gate.Handlers() {
		known.register(server, path, handler)
	}
	if err := listening(server.connections.listener.Addr(), ca); err != nil {
		return err
	}
	return server.Start(ctx)
}

// noRights answers for an API server that is not there.
type noRights struct{}

func (noRights) May(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
	return false, errors.New("there is no API server")
}
