package templates

import (
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
)

const (
	// maxPattern and maxSubject bound a regular expression and what it is applied to: a pattern of few bytes compiles
	// to many. maxPattern bounds a set of characters, too.
	maxPattern, maxSubject = 1 << 10, 64 << 10
	// maxWork bounds the comparisons of values or of characters by one call of a function whose time is not linear: no
	// deadline ends a call.
	maxWork = 1 << 23
	// maxParsed bounds the values in a text that a function parses or splits: each takes many times its bytes.
	maxParsed = 20_000
	// maxWidth bounds widths, precisions and indexes in a format.
	maxWidth = 1_000
)

// checks are of functions that make more than a few bytes for each byte that they are given, or compare each value with
// each other. They refuse before anything is made.
var checks = map[string]func(args []any) error{
	"repeat": func(args []any) error {
		count, text := args[0].(int), args[1].(string)
		if count < 0 || count > maxOutput/max(1, len(text)) {
			return limitErrorf("cannot repeat %d bytes that many times", len(text))
		}
		return nil
	},
	"replace": func(args []any) error {
		old, with, text := args[0].(string), args[1].(string), args[2].(string)
		return fits(len(text), strings.Count(text, old), len(with))
	},
	"join": func(args []any) error {
		return fits(measure(args[1], maxOutput), measure(args[1], maxOutput)/valueSize, len(args[0].(string)))
	},
	"wrapWith": func(args []any) error {
		return fits(len(args[2].(string)), len(args[2].(string))+1, len(args[1].(string)))
	},
	"indent":    indents,
	"nindent":   indents,
	"split":     splits,
	"splitList": splits,
	"splitn":    func(args []any) error { return splits([]any{args[0], args[2]}) },
	"printf":    formats,
	"fromJson":  parses, "mustFromJson": parses, "fromYaml": parses,
	"regexMatch": matches, "mustRegexMatch": matches, "regexFind": matches, "mustRegexFind": matches,
	"regexFindAll": matchesAll, "mustRegexFindAll": matchesAll, "regexSplit": matchesAll, "mustRegexSplit": matchesAll,
	"regexReplaceAll": replaces, "mustRegexReplaceAll": replaces, "regexReplaceAllLiteral": replaces,
	"mustRegexReplaceAllLiteral": replaces,
	"uniq":                       compares, "mustUniq": compares, "without": compares, "mustWithout": compares,
	"trimAll": trims, "trimall": trims,
}

// fits reports whether a text and a number of others that are put into it are small enough.
func fits(size, count, each int) error {
	if size > maxOutput || count > 0 && each > (maxOutput-size)/count {
		return limitErrorf("a function makes a text of more than 1 MiB")
	}
	return nil
}

func indents(args []any) error {
	spaces, text := args[0].(int), args[1].(string)
	if spaces < 0 {
		return limitErrorf("cannot indent by less than nothing")
	}
	return fits(len(text), strings.Count(text, "\n")+1, spaces)
}

func splits(args []any) error {
	separator, text := args[0].(string), args[1].(string)
	return values(strings.Count(text, separator))
}

// parses bounds the values in JSON or YAML: each but the first follows one of these characters.
func parses(args []any) error {
	count := 0
	for _, c := range []byte(args[0].(string)) {
		if strings.IndexByte("\n,:[{-?!", c) >= 0 {
			count++
		}
	}
	return values(count)
}

func values(count int) error {
	if count > maxParsed {
		return limitErrorf("a function reads a text of more than %d values", maxParsed)
	}
	return nil
}

func matches(args []any) error { return search(args, 1) }

// matchesAll is of functions that search on after each match: a search may look at all that follows.
func matchesAll(args []any) error { return search(args, len(args[1].(string))) }

func search(args []any, searches int) error {
	pattern, text := args[0].(string), args[1].(string)
	if len(pattern) > maxPattern || len(text) > maxSubject {
		return limitErrorf("a regular expression is longer than 1 KiB, or what it is applied to is longer than 64 KiB")
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil //nolint:nilerr // the function itself reports it
	}
	if states(parsed)*len(text)*searches > 16*maxWork {
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

// compares bounds the comparisons of each value of a list with each other, or with what is to be left out.
func compares(args []any) error {
	list := reflect.ValueOf(args[0])
	if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
		return nil
	}
	if list.Len()*measure(args, maxValue)/valueSize > maxWork {
		return limitErrorf("a function compares each of %d values with each other", list.Len())
	}
	return nil
}

func trims(args []any) error {
	if len(args[0].(string)) > maxPattern {
		return limitErrorf("a set of characters is longer than 1 KiB")
	}
	return nil
}

func replaces(args []any) error {
	if err := matchesAll(args); err != nil {
		return err
	}
	text, with := args[1].(string), args[2].(string)
	return fits(len(text)*(1+strings.Count(with, "$")), len(text)+1, len(with))
}

// wide is a width or precision of more than three digits, or one that is passed.
var wide = regexp.MustCompile(`%[^%a-zA-Z]*(\*|[0-9]{4})`)

// formats bounds what printf makes: for each verb, what it is given in full, with an escape for each byte.
func formats(args []any) error {
	format := args[0].(string)
	if wide.MatchString(format) {
		return limitErrorf("a format has a width or precision of more than three digits, or one that is passed to it")
	}
	if strings.Count(format, "%") > maxProduced/(2*maxWidth+6*measure(args[1], maxValue)) {
		return limitErrorf("a function makes a text of more than %d MiB", maxProduced>>20)
	}
	return nil
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
