package templates

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// maxGiven bounds what is passed to one call of a function, in bytes, and maxParsed that of one that parses or splits
	// text. A value of a list or map counts for valueSize, and a text for its length.
	maxGiven  = 8 << 10
	maxParsed = 64 << 10
	valueSize = 64
	// maxProduced bounds what all calls of the functions of a policy make together, maxLookedUp what they look up.
	maxProduced = 16 << 20
	maxLookedUp = 64 << 20
	// maxDepth bounds how deep lists and maps are nested: functions that print them recurse, also where a map contains
	// itself.
	maxDepth = 100
	// maxMade bounds a text that a function makes much of little for, in bytes.
	maxMade = 1 << 20
	// maxVerbs bounds the verbs of a format.
	maxVerbs = 100
	// maxExpression bounds a regular expression, and maxSearched what it is applied to, in bytes.
	maxExpression, maxSearched = 100, 1 << 10
)

// accessors return a part of what is passed to them, or a number: neither is counted.
var accessors = sets.New("get", "hasKey", "dig", "default", "coalesce", "ternary", "empty", "first", "last",
	"mustFirst", "mustLast", "kindOf", "kindIs", "typeOf", "typeIs", "hasPrefix", "hasSuffix", "contains", "atoi")

// constructors make a list or map of values that are not copied: only its own size is counted.
var constructors = sets.New("list", "tuple", "dict", "append", "push", "prepend", "mustAppend", "mustPush",
	"mustPrepend", "set", "unset", "rest", "mustRest", "initial", "mustInitial", "reverse", "mustReverse", "slice",
	"mustSlice", "values", "pick", "omit", "pluck")

// parsers read or split a text, which may be a whole document.
var parsers = sets.New("fromJson", "fromJSON", "mustFromJson", "mustFromJSON", "fromYaml", "fromYAML", "split",
	"splitList", "splitn", "b64dec", "base64dec", "trim")

// counted are the functions whose calls are counted: sprig's, and those of text/template and of the library that make
// text.
var counted = func() template.FuncMap {
	functions := sprig.TxtFuncMap()
	maps.DeleteFunc(functions, func(name string, _ any) bool { return accessors.Has(name) })
	maps.Copy(functions, template.FuncMap{"print": fmt.Sprint, "printf": fmt.Sprintf, "println": fmt.Sprintln,
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
		"fromYaml": fromYAML, "toYaml": toYAML})
	for alias, name := range map[string]string{"base64enc": "b64enc", "base64dec": "b64dec", "fromYAML": "fromYaml",
		"toYAML": "toYaml", "fromJSON": "fromJson", "mustFromJSON": "mustFromJson", "toJSON": "toJson",
		"mustToJSON": "mustToJson", "toRawJSON": "toRawJson", "mustToRawJSON": "mustToRawJson"} {
		functions[alias] = functions[name]
	}
	return functions
}()

// functions returns the functions that are not the library's.
func (l *limits) functions() template.FuncMap {
	functions := template.FuncMap{stepFunction: l.step, outputFunction: l.out}
	for name, function := range counted {
		functions[name] = l.counting(name, function)
	}
	return functions
}

// counting returns a function with the same parameters that counts what it is given and what it makes.
func (l *limits) counting(name string, function any) any {
	f := reflect.ValueOf(function)
	var in []reflect.Type
	for i := range f.Type().NumIn() {
		in = append(in, f.Type().In(i))
	}
	out := []reflect.Type{f.Type().Out(0), reflect.TypeFor[error]()}
	signature := reflect.FuncOf(in, out, f.Type().IsVariadic())
	return reflect.MakeFunc(signature, func(args []reflect.Value) []reflect.Value {
		result, err := l.call(name, f, args)
		return []reflect.Value{result, reflect.ValueOf(&err).Elem()}
	}).Interface()
}

func (l *limits) call(name string, f reflect.Value, args []reflect.Value) (result reflect.Value, err error) {
	result = reflect.Zero(f.Type().Out(0))
	if err := l.given(name, args); err != nil {
		return result, err
	}
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	results := call(args)
	if len(results) > 1 && !results[1].IsNil() {
		return result, results[1].Interface().(error)
	}
	return results[0], l.makes(name, results[0].Interface())
}

// given bounds what is passed to a function.
func (l *limits) given(name string, args []reflect.Value) error {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg.Interface()
	}
	limit := maxGiven
	if parsers.Has(name) {
		limit = maxParsed
	}
	if !constructors.Has(name) && measure(values, limit) > limit {
		return limitErrorf("what it passes to %s is larger than %d KiB in all, or nested too deep", name, limit>>10)
	}
	if check := checks[name]; check != nil {
		return cmp.Or(l.inTime(), check(values))
	}
	return l.inTime()
}

// makes counts what a function has made.
func (l *limits) makes(name string, value any) error {
	if !constructors.Has(name) {
		return l.produce(measure(value, maxProduced))
	}
	size := valueSize
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		size += v.Len() * valueSize / 4
	}
	return l.produce(size)
}

// produce counts bytes that a function makes.
func (l *limits) produce(size int) error {
	if l.produced += min(size, maxProduced+1); l.produced > maxProduced {
		return limitErrorf("its functions make more than %d MiB", maxProduced>>20)
	}
	return nil
}

// lookedUp counts what was found.
func (l *limits) lookedUp(value any) error {
	if l.found += measure(value, maxLookedUp); l.found > maxLookedUp {
		return limitErrorf("its lookups find more than %d MiB", maxLookedUp>>20)
	}
	return nil
}

func fromYAML(text string) (value any, err error) {
	if anchor.MatchString(text) {
		return nil, limitErrorf("the functions of templates read no YAML with anchors")
	}
	return value, yaml.Unmarshal([]byte(text), &value)
}

func toYAML(value any) (string, error) {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// anchor and alias match text that YAML may take for one: a word that begins with & or *. A few aliases of an anchor are a
// large document.
var (
	anchor = regexp.MustCompile(`(^|[^0-9A-Za-z])&[0-9A-Za-z_-]`)
	alias  = regexp.MustCompile(`(^|[^0-9A-Za-z])\*[0-9A-Za-z_-]`)
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
	"replace": func(args []any) error { // each character may be replaced by another text
		if (len(args[2].(string))+1)*len(args[1].(string)) > maxMade {
			return limitErrorf("a function makes a text of more than 1 MiB")
		}
		return nil
	},
	"regexMatch": searches, "mustRegexMatch": searches, "regexFind": searches, "mustRegexFind": searches,
	"regexFindAll": searches, "mustRegexFindAll": searches, "regexSplit": searches, "mustRegexSplit": searches,
	"regexReplaceAll": searches, "mustRegexReplaceAll": searches, "regexReplaceAllLiteral": searches,
	"mustRegexReplaceAllLiteral": searches,
	"printf":                     formats,
}

// searches bounds a regular expression and the text that it is applied to: each match may look at all that follows, and
// no deadline ends a search. A repetition with numbers is compiled to as many expressions.
func searches(args []any) error {
	expression, text := args[0].(string), args[1].(string)
	if len(expression) > maxExpression || len(text) > maxSearched || strings.Contains(expression, "{") {
		return limitErrorf("a regular expression has more than %d bytes or a \"{\", or is applied to more than %d bytes",
			maxExpression, maxSearched)
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
