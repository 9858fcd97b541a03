package operatorpolicy

import "sync"

// Changes hands on the namespaces that changed to the loop while this replica runs it. The zero value is
// ready for use.
type Changes struct {
	mu   sync.Mutex
	take func(namespace string)
}

// Namespaces tells of namespaces that changed; it returns at once. "" stands for the policies that govern
// nothing yet.
func (c *Changes) Namespaces(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.take == nil {
		return
	}
	for _, name := range names {
		c.take(name)
	}
}

// follow sends what changes from now on to a function, which must return at once; nil sends it nowhere.
func (c *Changes) follow(take func(namespace string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take = take
}
