package snapshot

import (
	"hash/maphash"
	"iter"
	"maps"
)

// shardCount is the number of maps in a table. A change copies one of them: with 10,000 entries that is some 20.
const shardCount = 512

// table is a map of which each version shares nearly all data with the previous one. It is immutable; nil is an
// empty one.
type table[V any] struct {
	shards [shardCount]map[string]V
	size   int
}

var seed = maphash.MakeSeed()

func shardOf(key string) int { return int(maphash.String(seed, key) % shardCount) }

func (t *table[V]) get(key string) (value V, ok bool) {
	if t == nil {
		return value, false
	}
	value, ok = t.shards[shardOf(key)][key]
	return value, ok
}

func (t *table[V]) len() int {
	if t == nil {
		return 0
	}
	return t.size
}

// all yields the entries in no particular order.
func (t *table[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if t == nil {
			return
		}
		for _, shard := range t.shards {
			for key, value := range shard {
				if !yield(key, value) {
					return
				}
			}
		}
	}
}

// edit builds a new version of a table.
type edit[V any] struct {
	next   *table[V]
	copied [shardCount]bool
}

func (t *table[V]) edit() *edit[V] {
	e := &edit[V]{next: &table[V]{}}
	if t != nil {
		*e.next = *t
	}
	return e
}

func (e *edit[V]) shard(key string) map[string]V {
	i := shardOf(key)
	if !e.copied[i] {
		e.copied[i] = true
		if e.next.shards[i] == nil {
			e.next.shards[i] = map[string]V{}
		} else {
			e.next.shards[i] = maps.Clone(e.next.shards[i])
		}
	}
	return e.next.shards[i]
}

func (e *edit[V]) set(key string, value V) {
	shard := e.shard(key)
	before := len(shard)
	shard[key] = value
	e.next.size += len(shard) - before
}

func (e *edit[V]) remove(key string) {
	shard := e.shard(key)
	before := len(shard)
	delete(shard, key)
	e.next.size += len(shard) - before
}
