package admission

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// rightsTimeout bounds a SubjectAccessReview within the 5 s that the API server waits for a webhook.
const rightsTimeout = 3 * time.Second

// Authorizer reports whether a user has a right.
type Authorizer interface {
	May(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error)
}

// SubjectAccessReviews is the Authorizer that asks the API server.
type SubjectAccessReviews struct {
	Client authorizationclient.SubjectAccessReviewInterface
}

// May creates one SubjectAccessReview and returns its answer.
func (a SubjectAccessReviews) May(
	ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes,
) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := a.Client.Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra, ResourceAttributes: what,
		}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may %s %s: %w", user.Username, what.Verb, what.Resource, err)
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}
