package inflight

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// What decoding takes for what is in a body, in bytes. TestA3DecodingFitsItsPrice compares.
const (
	// perByte is for the copies that are made of strings: text inside text is unquoted once more for each level.
	perByte = 4
	// perValue is for the struct, the map entry or the interface that a value becomes.
	perValue = 256
	// perLevel is for the stacks of the decoder and the encoder, which recurse; a stack that grows is copied.
	perLevel = 3 << 10
)

var errNotUTF8 = errors.New("it is not UTF-8")

// price returns how many bytes it takes at most to decode a body and to judge or convert what is in it; an error if nothing
// could be decoded that way. It looks at the text alone, once, and allocates nothing: what is too much must be refused before
// it becomes millions of structs.
func price(body []byte, most int64) (int64, error) {
	if !utf8.Valid(body) {
		// The API server sends none. Each bad byte would become three.
		return 0, errNotUTF8
	}
	values, depth := measure(body)
	if total := perByte*int64(len(body)) + perValue*int64(values) + perLevel*int64(depth); total <= most {
		return total, nil
	}
	return 0, fmt.Errorf("it has %d bytes, %d values and %d levels, which is more than is read: at most %d values in as many bytes and levels",
		len(body), values, depth, max(0, most-perByte*int64(len(body))-perLevel*int64(depth))/perValue)
}

// What a byte of JSON outside of strings is.
const (
	other = iota
	quote
	comma
	opening
	closing
)

var classes = [256]uint8{'"': quote, ',': comma, '{': opening, '[': opening, '}': closing, ']': closing}

// measure counts the values in a JSON text, at least as many as a decoder finds, and how deep they are nested. It does not
// mind what is not JSON.
func measure(text []byte) (values, depth int) {
	values = 1
	level := 0
	for i := 0; i < len(text); i++ {
		switch classes[text[i]] {
		case quote:
			i = endOfString(text, i)
		case comma:
			values++
		case opening:
			values++ // too many by one where nothing is in it
			level++
			depth = max(depth, level)
		case closing:
			level--
		}
	}
	return values, depth
}

// endOfString returns the index of the quote that ends the string which begins at an index, or the length of the text.
func endOfString(text []byte, begin int) int {
	// Most strings end soon, and long ones are skipped faster from quote to quote.
	const soon = 24
	i := begin + 1
	for end := min(len(text), i+soon); i < end; i++ {
		switch text[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	for begin = i; i < len(text); i++ {
		next := bytes.IndexByte(text[i:], '"')
		if next < 0 {
			break
		}
		i += next
		escapes := i
		for escapes > begin && text[escapes-1] == '\\' {
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i
		}
	}
	return len(text)
}
