//go:build race

package templates

// With the race detector sync.Pool drops at random what is put into it, so that regular expressions allocate for each
// match.
func init() { poolsDrop = true }
