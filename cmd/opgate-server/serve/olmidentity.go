package serve

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission/olmidentity"
)

// addOLMIdentity adds the verification of OLM's account, and returns it with the users that may be OLM instead.
func (p *process) addOLMIdentity(
	rights authorizationclient.SubjectAccessReviewInterface,
) (*olmidentity.Identity, *olmidentity.Candidates, error) {
	account, err := p.options.olmAccount()
	if err != nil {
		return nil, nil, fmt.Errorf("--olm-identity: %w", err)
	}
	client, err := metadata.NewForConfig(p.config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	identity, log := olmidentity.New(account), p.log.WithName("olm-identity")
	metrics.Registry.MustRegister(olmidentity.NewCollector(identity), olmidentity.NewLastSeen(identity))
	watcher := olmidentity.NewWatcher(olmidentity.Options{Identity: identity, Metadata: client, Rights: rights,
		Namespace: p.options.Namespace, AcknowledgedNamespace: types.UID(p.options.OLMNamespaceUID), Log: log})
	return identity, olmidentity.NewCandidates(account, metrics.Registry, log, p.now), p.add(watcher)
}
