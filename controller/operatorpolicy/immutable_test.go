package operatorpolicy_test

import (
	"fmt"
	"sync"

	"k8s.io/utils/dump"

	"github.com/opgate/opgate/snapshot"
)

// contents are those of each object that a snapshot had, as it was stored first. Reviews and reconciliations share
// these objects, and none of them may change one.
type contents struct {
	mu    sync.Mutex
	first map[*snapshot.Object]string
}

// follow notes the objects of each snapshot from now on.
func (c *contents) follow(store *snapshot.Store) {
	if c.first == nil {
		c.first = map[*snapshot.Object]string{}
	}
	store.Subscribe(func(change *snapshot.Change) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, namespace := range change.Namespaces {
			for kind, read := range forms {
				for _, o := range change.Snapshot.Objects(kind, snapshot.InNamespace(namespace)) {
					if _, known := c.first[o]; !known {
						c.first[o] = dump.ForHash(read(o))
					}
				}
			}
		}
	})
}

// forms are what is read of an object of a kind.
var forms = map[*snapshot.Kind]func(*snapshot.Object) any{
	snapshot.ClusterServiceVersions: func(o *snapshot.Object) any { return o.CSV() },
	snapshot.Subscriptions:          func(o *snapshot.Object) any { return o.Subscription() },
	snapshot.OperatorGroups:         func(o *snapshot.Object) any { return o.OperatorGroup() },
}

// changed returns an error for an object that is not as it was stored.
func (c *contents) changed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, first := range c.first {
		if now := dump.ForHash(forms[o.Kind()](o)); now != first {
			return fmt.Errorf("%s %s of the snapshot was changed from\n%s\nto\n%s", o.Kind().Resource, o.Key(), first,
				now)
		}
	}
	return nil
}
