package templates

import (
	"fmt"
	"reflect"
	"strings"
	"text/template"
	"unicode"

	"github.com/Masterminds/sprig/v3"
	"go.yaml.in/yaml/v3"
)

const (
	// maxPattern and maxSubject bound a regular expression and what it is applied to: a pattern of few bytes compiles
	// to many.
	maxPattern, maxSubject = 1 << 10, 64 << 10
	// maxParsed bounds the values in a text that a function parses or splits: each takes many times its bytes.
	maxParsed = 20_000
	// maxWidth bounds widths, precisions and indexes in a format.
	maxWidth = 1_000
)

var standard = sprig.TxtFuncMap()

// checks are of functions that make more than a few bytes for each byte that they are given. They refuse before
// anything is made.
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
	"nindent":   func(args []any) error { return indents(args[0].(int), args[1].(string)) },
	"split":     splits,
	"splitList": splits,
	"splitn":    func(args []any) error { return splits([]any{args[0], args[2]}) },
	"printf":    func(args []any) error { return formats(args[0].(string), args[1].([]any)) },
	"fromJson":  parses, "mustFromJson": parses,
	"regexMatch": matches, "mustRegexMatch": matches, "regexFind": matches, "mustRegexFind": matches,
	"regexFindAll": matches, "mustRegexFindAll": matches, "regexSplit": matches, "mustRegexSplit": matches,
	"regexReplaceAll": replaces, "mustRegexReplaceAll": replaces, "regexReplaceAllLiteral": replaces,
	"mustRegexReplaceAllLiteral": replaces,
}

// checked are the functions of checks, and those of the library under other names.
var checked = func() template.FuncMap {
	functions := template.FuncMap{
		"fromYaml": func(text string) (value any, err error) {
			if err := parses([]any{text}); err != nil {
				return nil, err
			}
			if anchors(text) {
				return nil, limitErrorf("the functions of templates read no YAML with anchors")
			}
			return value, yaml.Unmarshal([]byte(text), &value)
		},
	}
	for name, check := range checks {
		function := standard[name]
		if name == "printf" {
			function = fmt.Sprintf
		}
		functions[name] = guarded(function, check)
	}
	functions["fromYAML"], functions["fromJSON"], functions["mustFromJSON"] = functions["fromYaml"],
		functions["fromJson"], functions["mustFromJson"]
	return functions
}()

// guarded returns a function with the same parameters that calls another only if a check passes.
func guarded(function any, check func(args []any) error) any {
	v := reflect.ValueOf(function)
	var in []reflect.Type
	for i := range v.Type().NumIn() {
		in = append(in, v.Type().In(i))
	}
	failure := reflect.TypeFor[error]()
	signature := reflect.FuncOf(in, []reflect.Type{v.Type().Out(0), failure}, v.Type().IsVariadic())
	return reflect.MakeFunc(signature, func(args []reflect.Value) []reflect.Value {
		values := make([]any, len(args))
		for i, arg := range args {
			values[i] = arg.Interface()
		}
		if err := check(values); err != nil {
			return []reflect.Value{reflect.Zero(v.Type().Out(0)), reflect.ValueOf(&err).Elem()}
		}
		call := v.Call
		if v.Type().IsVariadic() {
			call = v.CallSlice
		}
		got := call(args)
		if len(got) == 1 {
			got = append(got, reflect.Zero(failure))
		}
		return got
	}).Interface()
}

// indent is the library's, which trims its result, and counts what it makes itself: nothing can follow autoindent,
// which becomes indent.
func (l *limits) indent(spaces int, text string) (string, error) {
	if err := indents(spaces, text); err != nil {
		return "", err
	}
	pad := strings.Repeat(" ", spaces)
	indented := strings.TrimSpace(pad + strings.ReplaceAll(text, "\n", "\n"+pad))
	if l.output += len(indented); l.output > maxOutput {
		return "", limitErrorf("it resolves to more than 1 MiB")
	}
	return indented, l.produce(len(indented))
}

// fits reports whether a text and a number of others that are put into it are small enough.
func fits(size, count, each int) error {
	if size > maxOutput || count > 0 && each > (maxOutput-size)/count {
		return limitErrorf("a function makes a text of more than 1 MiB")
	}
	return nil
}

func indents(spaces int, text string) error {
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

func matches(args []any) error {
	if len(args[0].(string)) > maxPattern || len(args[1].(string)) > maxSubject {
		return limitErrorf("a regular expression is longer than 1 KiB, or what it is applied to is longer than 64 KiB")
	}
	return nil
}

func replaces(args []any) error {
	if err := matches(args); err != nil {
		return err
	}
	text, with := args[1].(string), args[2].(string)
	return fits(len(text)*(1+strings.Count(with, "$")), len(text)+1, len(with))
}

// formats bounds what printf makes: for each verb, what it is given in full, with an escape for each byte.
func formats(format string, args []any) error {
	passed, size := measure(args, maxValue), len(format)
	for rest := format; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return fits(size, 0, 0)
		}
		verb := strings.IndexFunc(after, unicode.IsLetter)
		flags := after[:max(0, verb)]
		number := 0
		for _, c := range []byte(flags) {
			if number = number*10 + int(c-'0'); c < '0' || c > '9' {
				number = 0
			}
			if c == '*' || number > maxWidth {
				return limitErrorf("a format has a width or precision above %d, or one that is passed to it", maxWidth)
			}
		}
		factor := 6
		if verb >= 0 && strings.IndexByte("sdvt", after[verb]) >= 0 && !strings.Contains(flags, "#") {
			factor = 1
		}
		size += 2*maxWidth + factor*passed
		if size > maxOutput {
			return fits(size, 0, 0)
		}
		rest = after
	}
}

// anchors reports whether a text that is read as YAML may define an anchor: a few aliases of it are a large document.
func anchors(text string) bool { return marks(text, '&') }

// marks reports whether a character begins a word: it follows neither a letter nor a digit, and is followed by one, or
// by _ or -.
func marks(text string, mark byte) bool {
	for i := range len(text) - 1 {
		if text[i] == mark && (i == 0 || !word(text[i-1])) &&
			(word(text[i+1]) || text[i+1] == '_' || text[i+1] == '-') {
			return true
		}
	}
	return false
}

func word(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
