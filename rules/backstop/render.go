package backstop

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"text/template"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/kept"
)

//go:embed policies
var files embed.FS

// kinds are those of the objects in the templates.
var kinds = map[string]func() runtime.Object{
	"ValidatingAdmissionPolicy":        func() runtime.Object { return &admissionv1.ValidatingAdmissionPolicy{} },
	"ValidatingAdmissionPolicyBinding": func() runtime.Object { return &admissionv1.ValidatingAdmissionPolicyBinding{} },
	"MutatingAdmissionPolicy":          func() runtime.Object { return &admissionv1.MutatingAdmissionPolicy{} },
	"MutatingAdmissionPolicyBinding":   func() runtime.Object { return &admissionv1.MutatingAdmissionPolicyBinding{} },
}

var lineBreak = regexp.MustCompile(`\n\s*`)

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
		var meta struct{ Kind string }
		must(yaml.Unmarshal([]byte(document), &meta))
		object := kinds[meta.Kind]()
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

// quote returns a string literal of CEL. It holds printable ASCII only.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// quoteList returns a list literal of CEL.
func quoteList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}
