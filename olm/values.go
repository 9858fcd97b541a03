package olm

import "bytes"

// CountValues counts, without decoding, the values in a JSON text at any depth: elements of lists and members of objects. For invalid JSON
// it returns some number, too. It takes about a nanosecond per byte.
func CountValues(raw []byte) int {
	count := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = endOfText(raw, i+1)
		case ',':
			count++
		case '[', '{':
			// The first value has no comma before it. An empty list has none, and is counted as a value of its parent.
			if next := bytes.TrimLeft(raw[i+1:min(len(raw), i+64)], " \t\r\n"); len(next) == 0 || next[0] != ']' && next[0] != '}' {
				count++
			}
		}
	}
	return count
}

// endOfText returns the end of a JSON string that begins before i.
func endOfText(raw []byte, i int) int {
	for i < len(raw) {
		quote := bytes.IndexByte(raw[i:], '"')
		if quote < 0 {
			break
		}
		end := i + quote
		escapes := 0
		for end-escapes > i && raw[end-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
		i = end + 1
	}
	return len(raw)
}

// Depth returns how deep objects and lists are nested in a JSON text, without decoding it.
func Depth(raw []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = endOfText(raw, i+1)
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}
