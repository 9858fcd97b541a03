// Package persistent has a map whose versions share nearly all of their data.
package persistent

import (
	"hash/maphash"
	"iter"
	"maps"
)

// shardCount is the number of maps in a Map. A change copies one of them: with 10,000 entries that is some 20.
const shardCount = 512

// Map is a map of which each version shares nearly all data with the previous one. It is immutable; nil is an empty
// one.
type Map[K comparable, V any] struct {
	shards [shardCount]map[K]V
}

var seed = maphash.MakeSeed()

func shardOf[K comparable](key K) int { return int(maphash.Comparable(seed, key) % shardCount) }

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	if m == nil {
		return value, false
	}
	value, ok = m.shards[shardOf(key)][key]
	return value, ok
}

// All yields the entries in no particular order.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m == nil {
			return
		}
		for _, shard := range m.shards {
			for key, value := range shard {
				if !yield(key, value) {
					return
				}
			}
		}
	}
}

// Edit returns an edit that begins with the entries of the map.
func (m *Map[K, V]) Edit() *Edit[K, V] {
	e := &Edit[K, V]{Next: &Map[K, V]{}}
	if m != nil {
		*e.Next = *m
	}
	return e
}

// Edit builds the next version of a Map.
type Edit[K comparable, V any] struct {
	// Next is the version that is built. It must not be shared before the last change.
	Next   *Map[K, V]
	copied [shardCount]bool
}

func (e *Edit[K, V]) shard(key K) map[K]V {
	i := shardOf(key)
	if !e.copied[i] {
		e.copied[i] = true
		if e.Next.shards[i] == nil {
			e.Next.shards[i] = map[K]V{}
		} else {
			e.Next.shards[i] = maps.Clone(e.Next.shards[i])
		}
	}
	return e.Next.shards[i]
}

// Set sets the value of a key.
func (e *Edit[K, V]) Set(key K, value V) { e.shard(key)[key] = value }

// Remove removes a key, if it exists.
func (e *Edit[K, V]) Remove(key K) { delete(e.shard(key), key) }
