package operatorpolicy

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
)

// unrecorded are objects that policies have created, and that no status in the snapshot has yet: where writing it
// fails, the next one has them. The zero value is ready for use.
type unrecorded struct {
	mu       sync.Mutex
	byPolicy map[types.NamespacedName]createdObjects
}

// createdObjects are what a policy, of this UID, has created.
type createdObjects struct {
	policy  types.UID
	objects []policyv1beta2.RelatedObject
}

// in returns a policy whose status records its objects.
func (u *unrecorded) in(op *policyv1beta2.OperatorPolicy) *policyv1beta2.OperatorPolicy {
	u.mu.Lock()
	defer u.mu.Unlock()
	missing := u.byPolicy[client.ObjectKeyFromObject(op)]
	if missing.policy != op.UID || len(missing.objects) == 0 {
		return op
	}
	recorded := *op
	recorded.Status.RelatedObjects = compliance.Record(op.Status.RelatedObjects, missing.objects)
	return &recorded
}

// set sets the objects of a policy.
func (u *unrecorded) set(op *policyv1beta2.OperatorPolicy, objects []policyv1beta2.RelatedObject) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(objects) == 0 {
		delete(u.byPolicy, client.ObjectKeyFromObject(op))
		return
	}
	if u.byPolicy == nil {
		u.byPolicy = map[types.NamespacedName]createdObjects{}
	}
	u.byPolicy[client.ObjectKeyFromObject(op)] = createdObjects{op.UID, objects}
}

// forget forgets a policy that was deleted.
func (u *unrecorded) forget(policy types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byPolicy, policy)
}
