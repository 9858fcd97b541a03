package owned

import (
	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/watched"
)

// Owner is the watch of the ClusterRole that grants the rights to objects, and owns them.
type Owner struct {
	*watched.Object
	name, grants string
	log          logr.Logger
	missing      bool
}

// NewOwner returns the watch of an owner, which grants the rights to some objects. Changed is called after each change.
func NewOwner(client dynamic.Interface, name, grants string, changed func(), log logr.Logger) (*Owner, error) {
	object, err := watched.New(client, rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "", name, changed, log)
	return &Owner{Object: object, name: name, grants: grants, log: log}, err
}

// Reference returns the reference to the ClusterRole, nil if that does not exist, which is logged once.
func (o *Owner) Reference() *metav1.OwnerReference {
	role := o.Get()
	missing := role == nil || role.GetDeletionTimestamp() != nil
	if missing && !o.missing {
		o.log.Info("ClusterRole not found: it grants the rights to "+o.grants+
			" and owns them, so nothing is written without it", "clusterrole", o.name)
	}
	if o.missing = missing; missing {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: role.GetAPIVersion(), Kind: role.GetKind(), Name: role.GetName(),
		UID: role.GetUID()}
}
