package templates

import (
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
)

const (
	// maxMade bounds a text that a function makes much of little for, in bytes.
	maxMade = 1 << 20
	// maxVerbs bounds the verbs of a format.
	maxVerbs = 100
	// maxWork bounds the states that the search for a regular expression may go through: no deadline ends a call.
	maxWork = 1 << 27
)

// checks are of functions that may make or do more than what they are given bounds. They refuse before anything is
// made.
var checks = map[string]func(args []any) error{
	"repeat": func(args []any) error {
		if count := args[0].(int); count < 0 || count > maxGiven/max(1, len(args[1].(string))) {
			return limitErrorf("cannot repeat %d bytes that many times", len(args[1].(string)))
		}
		return nil
	},
	"until": func(args []any) error {
		if count := args[0].(int); count < -maxSteps || count > maxSteps {
			return limitErrorf("a list of more than %d numbers", maxSteps)
		}
		return nil
	},
	"printf":     formats,
	"replace":    func(args []any) error { return replaces(args[2], args[1]) },
	"regexMatch": matches, "mustRegexMatch": matches, "regexFind": matches, "mustRegexFind": matches,
	"regexFindAll": matchesAll, "mustRegexFindAll": matchesAll, "regexSplit": matchesAll, "mustRegexSplit": matchesAll,
	"regexReplaceAll": replacesAll, "mustRegexReplaceAll": replacesAll, "regexReplaceAllLiteral": replacesAll,
	"mustRegexReplaceAllLiteral": replacesAll,
}

// replaces bounds a text in which each character may be replaced by another text.
func replaces(text, with any) error {
	if (len(text.(string))+1)*len(with.(string)) > maxMade {
		return limitErrorf("a function makes a text of more than 1 MiB")
	}
	return nil
}

// unbounded is a width or precision of more than three digits, or one that is passed.
var unbounded = regexp.MustCompile(`%[^%a-zA-Z]*(\*|[0-9]{4})`)

func formats(args []any) error {
	if format := args[0].(string); unbounded.MatchString(format) || strings.Count(format, "%") > maxVerbs {
		return limitErrorf("a format has more than %d verbs, a width or precision of more than three digits, or one that is passed to it",
			maxVerbs)
	}
	return nil
}

func matches(args []any) error { return search(args, 1) }

// matchesAll is of functions that search on after each match: a search may look at all that follows.
func matchesAll(args []any) error { return search(args, len(args[1].(string))) }

func replacesAll(args []any) error {
	if err := matchesAll(args); err != nil {
		return err
	}
	return replaces(args[1], args[2])
}

func search(args []any, searches int) error {
	parsed, err := syntax.Parse(args[0].(string), syntax.Perl)
	if err != nil {
		return nil //nolint:nilerr // the function itself reports it
	}
	// each search begins with the states that the expression is compiled to
	if states(parsed)*(maxGiven+len(args[1].(string))*searches) > maxWork {
		return limitErrorf("a regular expression with what it repeats, and what it is applied to, are too long together")
	}
	return nil
}

// states returns how many states a regular expression has, of which a search may be in all at each character.
func states(e *syntax.Regexp) int {
	n := 1 + len(e.Sub)
	if e.Op == syntax.OpLiteral {
		n = len(e.Rune)
	}
	for _, sub := range e.Sub {
		n += states(sub)
	}
	if e.Op == syntax.OpRepeat {
		n *= max(e.Min, e.Max) + 1
	}
	return n
}

// measure returns the size of a value, and one above the limit as soon as it exceeds that or is nested too deep.
func measure(value any, limit int) int {
	size := 0
	if text, ok := value.(string); ok {
		size = len(text)
	} else if !add(reflect.ValueOf(value), &size, limit, maxDepth) {
		return limit + 1
	}
	return min(size, limit+1)
}

func add(v reflect.Value, size *int, limit, depth int) bool {
	if *size += valueSize; *size > limit || depth == 0 {
		return false
	}
	switch v.Kind() {
	case reflect.String:
		*size += v.Len()
	case reflect.Interface, reflect.Pointer:
		*size -= valueSize // what it refers to counts
		return v.IsNil() || add(v.Elem(), size, limit, depth-1)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			*size += v.Len()
			break
		}
		for i := range v.Len() {
			if !add(v.Index(i), size, limit, depth-1) {
				return false
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if !add(entry.Key(), size, limit, depth-1) || !add(entry.Value(), size, limit, depth-1) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !add(v.Field(i), size, limit, depth-1) {
				return false
			}
		}
	default: // numbers and what has no content
	}
	return *size <= limit
}
