package apijson

import "bytes"

// What a byte of JSON outside of strings is.
const (
	other = iota
	quote
	comma
	opening
	closing
)

var classes = [256]uint8{'"': quote, ',': comma, '{': opening, '[': opening, '}': closing, ']': closing}

// Measure returns how many values a JSON text holds, at any depth: elements of lists and members of objects, without
// the text's own value; and how deep lists and objects are nested. It decodes nothing, so that a text which would take
// too much memory is refused before it becomes values.
//
// It is exact for JSON without white space in empty lists and objects, each of which counts as one value otherwise. For
// what is not JSON it counts at least what a decoder finds before the fault. It takes less than a nanosecond per byte.
func Measure(text []byte) (values, depth int) {
	values, _, depth = MeasureWithin(text, "")
	return values, depth
}

// MeasureWithin is Measure that also returns how many of the values are in values of members with a name, at any depth.
// A name that is written with first, or with white space before its colon, is not found.
func MeasureWithin(text []byte, name string) (values, within, depth int) {
	level, member := 0, 0 // the level of the object that has the member, 0 outside of one
	for i := 0; i < len(text); i++ {
		switch classes[text[i]] {
		case quote:
			begin := i + 1
			i = endOfString(text, begin)
			if name != "" && member == 0 && i+1 < len(text) && text[i+1] == ':' && string(text[begin:i]) == name {
				member = level
			}
		case comma:
			values++
			switch {
			case member == level:
				member = 0
			case member > 0:
				within++
			}
		case opening:
			// The first value has no comma before it.
			if next := i + 1; next == len(text) || classes[text[next]] != closing {
				values++
				if member > 0 {
					within++
				}
			}
			level++
			depth = max(depth, level)
		case closing:
			level--
			if level < member {
				member = 0
			}
		}
	}
	return values, within, depth
}

// endOfString returns the index of the quote that ends a string, from the begin of the string on; the length of the text
// if there is none.
func endOfString(text []byte, begin int) int {
	for i := begin; ; i++ {
		next := bytes.IndexByte(text[i:], '"')
		if next < 0 {
			return len(text)
		}
		i += next
		first := i
		for first > begin && text[first-1] == '\\' {
			first--
		}
		if (i-first)%2 == 0 {
			return i
		}
	}
}
