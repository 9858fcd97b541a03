package inflight

import "sync"

// buffers pools the memory of bodies, by size: firstPart, twice that and so on. Larger bodies are rare and would keep
// memory from the rest of the process. A buffer takes up to twice what is reserved for its body, and at least
// firstPart, which the number of connections bounds.
var buffers [7]sync.Pool

// getBuffer returns a buffer of at least n bytes, with any content.
func getBuffer(n int64) *[]byte {
	size := int64(firstPart)
	for i := range buffers {
		if n <= size {
			if b, ok := buffers[i].Get().(*[]byte); ok {
				return b
			}
			b := make([]byte, size)
			return &b
		}
		size *= 2
	}
	b := make([]byte, n)
	return &b
}

// putBuffer returns a buffer of getBuffer, which must not be read any more.
func putBuffer(b *[]byte) {
	for i := range buffers {
		if len(*b) == firstPart<<i {
			buffers[i].Put(b)
		}
	}
}
