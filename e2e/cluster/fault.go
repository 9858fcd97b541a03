package cluster

import "context"

// Fail records why the cluster cannot do what is expected of it, however long a test waits. It ends all contexts of
// Working. The first error counts.
func (c *Cluster) Fail(err error) { c.fail(err) }

// Working returns a context that ends with ctx, and when Fail is called: then its cause is that error. The caller must
// call cancel.
func (c *Cluster) Working(ctx context.Context) (working context.Context, cancel func()) {
	working, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.failed, func() { end(context.Cause(c.failed)) })
	return working, func() {
		stop()
		end(nil)
	}
}
