package constraint

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"github.com/google/cel-go/cel"
	"k8s.io/utils/lru"
)

// programsKept bounds the cache. A program takes about 60 KiB.
const programsKept = 1024

// programKey identifies a program: the source, what it judges, and the result type.
type programKey struct {
	digest [sha256.Size]byte
	on     Target
	text   bool // a messageExpression
}

// compiled is a program or a compile error. Errors are cached too: otherwise an attacker could make every request
// compile again.
type compiled struct {
	once    sync.Once
	done    atomic.Bool
	program *program
	err     error
}

// programs caches the last compiled programs of all definitions and bundles. Definitions also hold their own programs,
// so that an eviction never affects a cluster constraint.
var programs = lru.New(programsKept)

// ruleKey returns the key of a rule on bundles.
func ruleKey(source string) programKey { return programKey{digest: sha256.Sum256([]byte(source))} }

// compileCached returns the cached program of an expression with result bool, or string, and compiles it if needed.
func compileCached(source string, on Target, text bool) (*program, error) {
	key := ruleKey(source)
	key.on, key.text = on, text
	entry, ok := lookup(key)
	if !ok {
		entry = new(compiled)
		// Two definitions may compile the same rule concurrently; both results are equal.
		programs.Add(key, entry)
	}
	entry.once.Do(func() {
		result := cel.BoolType
		if text {
			result = cel.StringType
		}
		entry.program, entry.err = vocabularies[on].compile(source, result)
		entry.done.Store(true)
	})
	return entry.program, entry.err
}

// ready returns the result without waiting for a compilation in progress.
func (c *compiled) ready() (*program, error) {
	if !c.done.Load() {
		return nil, errNotCompiled
	}
	return c.program, c.err
}

func lookup(key programKey) (*compiled, bool) {
	if v, ok := programs.Get(key); ok {
		entry, ok := v.(*compiled)
		return entry, ok
	}
	return nil, false
}
