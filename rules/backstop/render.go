package backstop

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/kept"
)

//go:embed policies
var files embed.FS

var (
	// scheme has the kinds of the objects in the templates.
	scheme = runtime.NewScheme()
	_      = admissionv1.AddToScheme(scheme)

	lineBreak = regexp.MustCompile(`\n\s*`)
	kindLine  = regexp.MustCompile(`(?m)^kind: (\w+)$`)
)

// render returns the objects in a template of folder policies. The templates are part of the program: one that cannot
// be rendered panics.
func render(name string, data any) []runtime.Object {
	t := template.New("").Option("missingkey=error")
	execute := func(name string, argument ...any) string {
		var b strings.Builder
		var data any
		if len(argument) > 0 {
			data = argument[0]
		}
		must(t.ExecuteTemplate(&b, name, data))
		return b.String()
	}
	t.Funcs(template.FuncMap{
		"include":    execute,
		"quote":      quote,
		"quotes":     quoteList,
		"values":     table.values,
		"list":       func(list ...string) []string { return list },
		"configMaps": kept.ConfigMaps,
		"leases":     kept.Leases,
		"json":       func(v any) (string, error) { raw, err := json.Marshal(v); return string(raw), err },
	})
	// A part of an expression is in one line of it.
	shared := lineBreak.ReplaceAllString(read("expressions.tmpl"), " ")
	must(t.New("expressions").Parse(shared))
	must(t.New(name).Parse(read(name + ".yaml.tmpl")))
	var objects []runtime.Object
	for _, document := range strings.Split(execute(name, data), "\n---\n") {
		object, err := scheme.New(admissionv1.SchemeGroupVersion.WithKind(kindLine.FindStringSubmatch(document)[1]))
		must(err)
		must(yaml.UnmarshalStrict([]byte(document), object))
		objects = append(objects, object)
	}
	return objects
}

func read(name string) string {
	text, err := files.ReadFile("policies/" + name)
	must(err)
	return string(text)
}

// must panics if the last of some results is an error.
func must(results ...any) {
	if err, _ := results[len(results)-1].(error); err != nil {
		panic(fmt.Sprintf("render the admission policies: %v", err))
	}
}

// literals makes a string literal of Go one of CEL, in single quotes.
var literals = strings.NewReplacer(`\\`, `\\`, `\"`, `"`, `"`, `'`, `'`, `\'`)

// quote returns a string literal of CEL. It holds printable ASCII only.
func quote(s string) string {
	return literals.Replace(strconv.QuoteToASCII(strings.ToValidUTF8(s, string(utf8.RuneError))))
}

// quoteList returns a list literal of CEL.
func quoteList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}

// maxText is the size in bytes of the largest text: with what a match condition has beside it, it is less than the
// 100,000 characters that the compiler of CEL reads.
const maxText = 88 << 10

// table is some values by key, as text in which they are looked up: a literal list or map of this size would take the
// API server seconds to compile.
type table struct {
	// key is an expression for the key that is looked up.
	key string
	// text is an expression for the text with the lines "KEY VALUE" of the key, each after a line feed.
	text      string
	variables []admissionv1.Variable
}

// newTable returns a table. What does not fit into one text is in variables, whose names begin with name.
func newTable(name, key string, values map[string][]string) table {
	t := table{key: key}
	texts, first := [][]string{{"\n"}}, []string{""}
	last, size := 0, 0
	for _, k := range slices.Sorted(maps.Keys(values)) {
		lines := ""
		for _, value := range values[k] {
			lines += k + " " + value + "\n"
		}
		quoted := len(quote(lines))
		if size > 0 && size+quoted > maxText {
			texts, first, size, last = append(texts, []string{"\n"}), append(first, k), 0, last+1
		}
		size += quoted
		texts[last] = append(texts[last], lines)
	}
	if last == 0 {
		t.text = quote(strings.Join(texts[0], ""))
		return t
	}
	for i, text := range slices.Backward(texts) {
		v := admissionv1.Variable{Name: fmt.Sprintf("%s%d", name, i), Expression: quote(strings.Join(text, ""))}
		t.variables = append(t.variables, v)
		if t.text == "" {
			t.text = "variables." + v.Name
		} else {
			t.text = fmt.Sprintf("%s < %s ? variables.%s : %s", key, quote(first[i+1]), v.Name, t.text)
		}
	}
	return t
}

// values is an expression for the list of the values of the key. What precedes the first of them is nothing, or lines of
// other keys.
func (t table) values() string {
	return "(" + t.text + `).split('\n' + ` + t.key + ` + ' ').map(v, v != '' && !v.startsWith('\n'), v.split('\n', 2)[0])`
}

// sizeOf is the size of the lines of a key, in bytes of JSON.
func sizeOf(key string, values []string) int {
	size := 0
	for _, value := range values {
		raw, _ := json.Marshal(quote(key + " " + value + "\n")) // a string
		size += len(raw)
	}
	return size
}
