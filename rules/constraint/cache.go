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

// programKey tells programs apart: the text and the type that it must give.
type programKey struct {
	digest [sha256.Size]byte
	text   bool // a messageExpression
}

// compiled is a program or why there is none: what does not compile is remembered too, since compiling it again for each
// request is what an attacker would ask for.
type compiled struct {
	once    sync.Once
	done    atomic.Bool
	program *program
	err     error
}

// programs keeps what was compiled last, over all definitions and bundles. Definitions also hold their own programs, so that
// an eviction never touches a cluster constraint.
var programs = lru.New(programsKept)

func ruleKey(source string) programKey { return programKey{digest: sha256.Sum256([]byte(source))} }

// compileCached compiles an expression that must give a bool, or a text, unless that was done before.
func compileCached(source string, text bool) (*program, error) {
	key := ruleKey(source)
	key.text = text
	entry, ok := lookup(key)
	if !ok {
		entry = new(compiled)
		// Two definitions may compile the same rule at the same time; both results are the same.
		programs.Add(key, entry)
	}
	entry.once.Do(func() {
		result := cel.BoolType
		if text {
			result = cel.StringType
		}
		entry.program, entry.err = compile(source, result)
		entry.done.Store(true)
	})
	return entry.program, entry.err
}

// ready returns the result without waiting for one who compiles it right now.
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
