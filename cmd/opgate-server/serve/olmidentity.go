package serve

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission/olmidentity"
)

// addOLMIdentity adds the verification of OLM's account to the manager, and returns it with the users that may be OLM instead.
func addOLMIdentity(
	mgr manager.Manager, config *rest.Config, rights authorizationclient.SubjectAccessReviewInterface, o *Options, now func() time.Time,
	log logr.Logger,
) (*olmidentity.Identity, *olmidentity.Candidates, error) {
	account, err := o.olmAccount()
	if err != nil {
		return nil, nil, fmt.Errorf("--olm-identity: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	identity := olmidentity.New(account)
	metrics.Registry.MustRegister(olmidentity.NewCollector(identity), olmidentity.NewLastSeen(identity))
	watcher := olmidentity.NewWatcher(olmidentity.Options{Identity: identity, Metadata: client, Rights: rights,
		Namespace: o.Namespace, AcknowledgedNamespace: types.UID(o.OLMNamespaceUID), Log: log})
	if err := mgr.Add(watcher); err != nil {
		return nil, nil, fmt.Errorf("add %T: %w", watcher, err)
	}
	return identity, olmidentity.NewCandidates(account, metrics.Registry, log, now), nil
}
