package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/snapshot"
)

// The ClusterRoles of the release that grant what is read.
const (
	// RoleReader grants what is listed.
	RoleReader = "opgate-reader"
	// RoleContents grants what the contents of plans are compared with.
	RoleContents = "opgate-contents"
)

// Right is a right that the user does not have.
type Right struct {
	Verb     string
	Resource schema.GroupResource
	// Namespace is empty for all namespaces.
	Namespace string
	// Role is the ClusterRole of the release that grants it.
	Role string
}

// String returns "list installplans.operators.coreos.com", with the namespace if it is for one.
func (r Right) String() string {
	s := r.Verb + " " + r.Resource.String()
	if r.Namespace != "" {
		return s + " in namespace " + text.Name(r.Namespace)
	}
	return s
}

// Forbidden is the error for missing rights.
type Forbidden struct{ Rights []Right }

// Error names the rights and the roles that grant them.
func (e *Forbidden) Error() string {
	var missing, roles []string
	for _, r := range e.Rights {
		missing = append(missing, r.String())
		roles = append(roles, "ClusterRole "+r.Role)
	}
	slices.Sort(missing)
	slices.Sort(roles)
	return fmt.Sprintf("this user may not %s; granted by %s", strings.Join(missing, ", "),
		strings.Join(slices.Compact(roles), " and "))
}

// NotServed is the error for a kind that the API server does not serve.
type NotServed struct{ Kind *snapshot.Kind }

// Error names what is not installed.
func (e *NotServed) Error() string {
	missing := "OLM"
	switch e.Kind {
	case snapshot.OperatorPolicies, snapshot.Constraints, snapshot.Policies, snapshot.PolicySets:
		missing = "Opgate"
	}
	return fmt.Sprintf("the API server does not serve %s: %s is not installed on this cluster",
		e.Kind.GroupVersionResource().GroupResource(), missing)
}

// asForbidden returns the right that an error of a request lacks, nil for other errors.
func asForbidden(err error, verb, role string) *Forbidden {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	d := status.Status().Details
	return &Forbidden{Rights: []Right{{Verb: verb, Resource: schema.GroupResource{Group: d.Group, Resource: d.Kind},
		Role: role}}}
}

// explained says of an API server that does not answer where it was looked for.
func explained(err error, host string) error {
	var request *url.Error
	if !errors.As(err, &request) {
		return err
	}
	why := request.Err
	var dial *net.OpError
	if errors.As(err, &dial) {
		why = dial
	}
	return fmt.Errorf("the API server %s cannot be reached: %w", text.Escape(host), why)
}
