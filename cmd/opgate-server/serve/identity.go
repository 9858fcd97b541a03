package serve

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// identityInterval is the interval between requests until one is answered.
const identityInterval = 2 * time.Second

// identity determines which user this process writes as. Until it is known no user may write virtual operators, this
// process included.
type identity struct {
	client authenticationclient.SelfSubjectReviewInterface
	log    logr.Logger
	name   atomic.Pointer[string]
}

func newIdentity(config *rest.Config, log logr.Logger) (*identity, error) {
	client, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &identity{client: client.SelfSubjectReviews(), log: log}, nil
}

// Username is the name, "" while it is not known.
func (i *identity) Username() string {
	if name := i.name.Load(); name != nil {
		return *name
	}
	return ""
}

// Start asks the API server until it answers.
func (i *identity) Start(ctx context.Context) error {
	// The end of the context is not an error.
	_ = wait.PollUntilContextCancel(ctx, identityInterval, true, func(ctx context.Context) (bool, error) {
		review, err := i.client.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			i.log.Info("which user this is could not be found out, it is tried again", "error", err.Error())
			return false, nil
		}
		i.name.Store(&review.Status.UserInfo.Username)
		return true, nil
	})
	return nil
}
