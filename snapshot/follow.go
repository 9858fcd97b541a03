package snapshot

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// followPolicies watches policies in the versions that PolicyVersions says, one after another, where another program
// owns their definition. The returned channel is closed once policies have been read, or it is known that none can
// exist. While the version changes, policies stay in force as they were last read.
func (f *Feed) followPolicies(ctx context.Context, running *sync.WaitGroup) <-chan struct{} {
	policies, progress := newMirror(f.note), f.Store.follow(OperatorPolicies, f.MaxStaleness)
	running.Go(func() {
		stop := func() {} // it ends the watch, and waits until it notes nothing any more
		for {
			select {
			case <-ctx.Done():
				stop()
				return
			case version := <-f.PolicyVersions:
				stop()
				if version == "" {
					progress.Forget()
					_ = policies.Replace(nil, "") // returns no error
					stop = func() {}
					continue
				}
				resource := OperatorPolicies.GroupVersionResource()
				resource.Version = version
				watching, cancel := context.WithCancel(ctx)
				var one sync.WaitGroup
				one.Go(func() { f.reflect(watching, OperatorPolicies, resource, metav1.NamespaceAll, progress, policies) })
				stop = func() { cancel(); one.Wait() }
			}
		}
	})
	running.Go(func() {
		if wait(ctx, policies.known) {
			f.happened(event{synced: OperatorPolicies})
		}
	})
	return policies.known
}
