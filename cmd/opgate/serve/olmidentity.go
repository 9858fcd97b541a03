package serve

import (
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission/olmidentity"
)

// addOLMIdentity adds the verification of OLM's account to the manager.
func addOLMIdentity(mgr manager.Manager, config *rest.Config, rights authorizationclient.SubjectAccessReviewInterface, o *Options, log logr.Logger) (*olmidentity.Identity, error) {
	account, err := o.olmAccount()
	if err != nil {
		return nil, fmt.Errorf("--olm-identity: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	identity := olmidentity.New(account)
	if err := metrics.Registry.Register(olmidentity.NewCollector(identity)); err != nil {
		return nil, fmt.Errorf("register the metric of OLM's identity: %w", err)
	}
	watcher := olmidentity.NewWatcher(olmidentity.Options{Identity: identity, Metadata: client, Rights: rights,
		Namespace: o.Namespace, AcknowledgedNamespace: types.UID(o.OLMNamespaceUID), Log: log})
	if err := mgr.Add(watcher); err != nil {
		return nil, fmt.Errorf("add %T: %w", watcher, err)
	}
	return identity, nil
}
