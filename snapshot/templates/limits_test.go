package templates

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/sprig/v3"

	"github.com/opgate/opgate/internal/cputime"
)

// allocated returns the bytes that are allocated while a template is resolved, as an upper bound of the memory that it
// takes, and its problem.
func allocated(t *testing.T, s *session, entries ...string) (bytes uint64, problem string) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, problem, _ = resolved(t, s, entries...)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, problem
}

// TestF2TemplatesCountBytes resolves short templates that take much memory (threat O46).
func TestF2TemplatesCountBytes(t *testing.T) {
	const produced, passed = "its functions make more than 16 MiB", "what it passes to "
	const made = "a function makes a text of more than 1 MiB"
	const verbs, method = "a format has more than 100 verbs", "$t.Format is no function"
	double := func(how string) string { return `{{ $x := "xxxxxxxx" }}` + strings.Repeat(`{{ $x = `+how+` }}`, 24) }
	lists := func(how string) string { return `{{ $x := list 1 2 3 4 }}` + strings.Repeat(`{{ $x = `+how+` }}`, 30) }
	for _, tc := range []struct{ name, entry, want string }{
		{name: "control: a few doubles", entry: `{{ $x := "xxxxxxxx" }}` + strings.Repeat(`{{ $x = print $x $x }}`, 8) +
			`{{ len $x }}`},
		{name: "control: loops that make little",
			entry: `{{ range until 9999 }}{{ $x := repeat 1000 "x" | sha512sum }}{{ end }}`},
		{name: "control: a list that grows",
			entry: `{{ $l := list }}{{ range until 500 }}{{ $l = append $l "x" }}{{ end }}{{ len $l }}`},
		{name: "attack: text in a loop", entry: `{{ range until 9999 }}` + strings.Repeat("x", 60_000) + `{{ end }}`,
			want: "it resolves to more than 1 MiB"},
		{name: "attack: text in the branches of loops", entry: `{{ range until 99 }}{{ if true }}{{ range until 99 }}` +
			strings.Repeat("x", 60_000) + `{{ else }}y{{ end }}{{ end }}{{ end }}`,
			want: "it resolves to more than 1 MiB"},
		{name: "attack: a loop without a function", entry: `{{ range 1000000000 }}{{ end }}`,
			want: "its loops and branches run more than 10000 times"},
		{name: "attack: output in a loop without a function", entry: `{{ $x := "` + strings.Repeat("x", 1000) +
			`" }}{{ range 1000000000 }}{{ $x }}{{ end }}`, want: "it resolves to more than 1 MiB"},
		{name: "attack: a method", entry: `{{ $t := toDate "2006-01-02" "2020-11-11" }}{{ $x := "1" }}` +
			strings.Repeat(`{{ $x = ($t.Format $x) }}`, 40), want: method},
		{name: "attack: a method in parentheses", entry: `{{ $t := toDate "2006-01-02" "2020-11-11" }}{{ $x := ` +
			strings.Repeat("($t.Format ", 40) + `"1"` + strings.Repeat(")", 40) + ` }}`, want: method},
		{name: "attack: a method of what is piped", entry: `{{ $t := toDate "2006-01-02" "2020-11-11" }}{{ $x := "1"` +
			strings.Repeat(" | $t.Format", 40) + ` }}`, want: method},
		{name: "attack: print", entry: double(`print $x $x`), want: passed},
		{name: "attack: print in parentheses", entry: double(`(print $x $x) | trim`), want: passed},
		{name: "attack: printf", entry: double(`printf "%s%s" $x $x`), want: passed},
		{name: "attack: printf with indexes", entry: double(`printf "%[1]s%[1]s" $x`), want: passed},
		{name: "attack: printf with many verbs", entry: `{{ $x := printf (repeat 1000 "%[1]s") (repeat 1000 "x") }}`,
			want: verbs},
		{name: "attack: printf with a width", entry: `{{ printf "%1000000000d" 1 }}`, want: verbs},
		{name: "attack: printf with a width that is passed", entry: `{{ printf "%*d" 1000000000 1 }}`,
			want: verbs},
		{name: "attack: println", entry: double(`println $x $x`), want: passed},
		{name: "attack: cat", entry: double(`cat $x $x`), want: passed},
		{name: "attack: join", entry: double(`list $x $x | join ""`), want: passed},
		{name: "control: join by a long text", entry: `{{ join (repeat 3000 "x") (until 60) }}`},
		{name: "attack: replace", entry: double(`replace "x" "xx" $x`), want: passed},
		{name: "attack: replace by a long text", entry: `{{ replace "x" (repeat 3000 "y") (repeat 3000 "x") }}`, want: made},
		{name: "control: regexReplaceAll by its own text",
			entry: `{{ $x := regexReplaceAll ".*" (repeat 1024 "x") (repeat 3000 "$0") }}`},
		{name: "attack: a pattern that compiles to much", entry: `{{ regexMatch (repeat 10 ".{1000}") "x" }}`,
			want: "a regular expression has more than 100 bytes or a"},
		{name: "attack: a long pattern", entry: `{{ regexMatch (repeat 101 ".") "x" }}`,
			want: "a regular expression has more than 100 bytes or a"},
		{name: "attack: repeat", entry: double(`repeat 2 $x`), want: passed},
		{name: "attack: toJson", entry: double(`list $x $x | toJson`), want: passed},
		{name: "attack: toYaml", entry: double(`list $x $x | toYaml`), want: passed},
		{name: "attack: quote", entry: double(`quote $x $x`), want: passed},
		{name: "attack: b64enc", entry: double(`b64enc $x | b64enc | b64enc`), want: passed},
		{name: "attack: concat", entry: lists(`concat $x $x`), want: passed},
		{name: "attack: lists of lists", entry: lists(`list $x $x`) + `{{ $x | toString }}`, want: passed},
		{name: "attack: lists of lists as output", entry: lists(`list $x $x`) + `{{ $x }}`,
			want: "it resolves to more than 1 MiB"},
		{name: "attack: deepCopy", entry: lists(`list $x $x`) + `{{ $x = deepCopy $x }}`, want: passed},
		{name: "attack: a map that contains itself", entry: `{{ $d := dict }}{{ $_ := set $d "a" $d }}{{ print $d }}`,
			want: passed},
		{name: "attack: a map that contains itself as output",
			entry: `{{ $d := dict }}{{ $_ := set $d "a" $d }}{{ $d }}`, want: "it resolves to more than 1 MiB"},
		{name: "attack: a map that contains itself as YAML",
			entry: `{{ $d := dict }}{{ $_ := set $d "a" $d }}{{ toYaml $d }}`, want: passed},
		{name: "attack: many lists",
			entry: `{{ $l := list }}{{ $x := until 10000 }}{{ range until 10000 }}{{ $l = append $l (append $x .) }}{{ end }}`, want: produced},
		{name: "attack: many texts",
			entry: `{{ $l := list }}{{ range until 10000 }}{{ $l = append $l (repeat 8000 "x") }}{{ end }}`,
			want:  produced},
		{name: "control: texts of many values",
			entry: `{{ $x := splitList "," "` + strings.Repeat(",", 60_000) + `" }}`},
		{name: "control: JSON of many values",
			entry: `{{ $x := fromJson "[` + strings.Repeat("{},", 20_000) + `{}]" }}`},
		{name: "control: YAML of many values",
			entry: `{{ $x := fromYaml "[` + strings.Repeat("{},", 20_000) + `{}]" }}`},
		{name: "attack: texts of more values",
			entry: `{{ $x := splitList "," "` + strings.Repeat(",", 70_000) + `" }}`, want: passed},
		{name: "attack: each value with each other", entry: `{{ $x := uniq (until 9999) }}`, want: passed},
		{name: "control: each character with each other", entry: `{{ $x := trimAll (repeat 1900 "é") (repeat 1900 "é") }}`},
		{name: "control: a search in a text", entry: `{{ $x := regexMatch "^([a-z]+)-v([0-9.]+)$" (repeat 1000 "x") }}`},
		{name: "control: each match in a text", entry: `{{ $x := regexReplaceAll "[^a-z]+" (repeat 500 "x.") "-" }}`},
		{name: "control: each match looks at all that follows", entry: `{{ $x := regexFindAll "a*b|a" (repeat 1024 "a") -1 }}`},
		{name: "attack: a search in a long text", entry: `{{ $x := regexFindAll "a*b|a" (repeat 1025 "a") -1 }}`,
			want: "a regular expression has more than 100 bytes or a"},
		{name: "attack: text of many actions", entry: strings.Repeat("{{ 1 }}", maxText/8)},
		{name: "attack: YAML with aliases", entry: `{{ $x := fromYaml "a: &a [x,x]\nb: [*a,*a]" }}`,
			want: "the functions of templates read no YAML with anchors"},
		{name: "attack: aliases in the result", entry: `{{ print "[&a " (repeat 7000 "x") ",*a,*a,*a]" }}`,
			want: "it resolves to text with words that begin with & and *"},
		{name: "attack: aliases in text and result", entry: ` &a {{ print "*a" }}`,
			want: "it resolves to text with words that begin with & and *"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, _ := startAPI(t).session(t)
			bytes, problem := allocated(t, s, tc.entry)
			if problem != tc.want && (tc.want == "" || !strings.HasPrefix(problem, tc.want)) {
				t.Errorf("problem %q, want %q", problem, tc.want)
			}
			if limit := uint64(64 << 20); bytes > limit {
				t.Errorf("%d MiB were allocated", bytes>>20)
			}
		})
	}
}

// TestF2EveryFunctionIsBounded calls every function of templates with large arguments of each type that it takes.
func TestF2EveryFunctionIsBounded(t *testing.T) {
	s, _ := startAPI(t).session(t)
	l := &limits{ctx: context.Background()}
	functions := sprig.TxtFuncMap() // with what is not counted
	maps.Copy(functions, l.functions())
	for _, name := range []string{"print", "printf", "println", "html", "js", "urlquery", "len", "index", "toYaml",
		"toYAML", "toJSON", "toRawJSON", "base64enc", "base64dec", "toInt", "toBool",
		"toLiteral", "and", "or", "not", "eq", "ne", "lt"} {
		if functions[name] == nil {
			functions[name] = func(...any) string { return "" } // the type of those that are not exported
		}
	}
	const values = `{{ $i := 1000000000 }}{{ $x := repeat 1300 "a,\n" }}{{ $y := repeat 8 "[{:$0" }}{{ $l := list $x 1 }}{{ $m := until 100 }}{{ $d := dict "a" $l "b" $m }}`
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if strings.HasPrefix(name, "opgate") || slices.Contains(refused, name) {
			continue
		}
		var most uint64
		for _, arguments := range combinations(reflect.TypeOf(functions[name])) {
			entry := fmt.Sprintf(values+"{{ $r := %s %s }}", name, arguments)
			start := cputime.Used()
			bytes, _ := allocated(t, s, entry)
			if took := cputime.Used() - start; took > 2*time.Second { // without a bound minutes
				t.Errorf("%s %s takes %s of CPU", name, arguments, took)
			}
			most = max(most, bytes)
		}
		if t.Logf("%s: %d KiB", name, most>>10); most > 48<<20 {
			t.Errorf("%s allocates %d MiB", name, most>>20)
		}
	}
}

// combinations returns arguments of the types that a function takes.
func combinations(f reflect.Type) []string {
	all := []string{""}
	for i := range f.NumIn() {
		var values []string
		switch in := f.In(i); {
		case f.IsVariadic() && i == f.NumIn()-1:
			values = []string{"$x $x $x", "$l $d", "$m $m"}
		case in.Kind() == reflect.String:
			values = []string{"$x", "$y", `""`}
		case in.Kind() == reflect.Int || in.Kind() == reflect.Int64:
			values = []string{"$i", "1"}
		case in.Kind() == reflect.Interface:
			values = []string{"$x", "$l", "$m", "$d"}
		case in.Kind() == reflect.Map:
			values = []string{"$d"}
		default:
			values = []string{"$l", "$m"}
		}
		var next []string
		for _, before := range all {
			for _, value := range values {
				next = append(next, strings.TrimSpace(before+" "+value))
			}
		}
		all = next
	}
	return all
}

// TestF2TemplatesEndInTime resolves templates that would run for hours: the session has ended them when it returns. A call
// that has begun is not ended, and so has a bound of its own.
func TestF2TemplatesEndInTime(t *testing.T) {
	for name, entry := range map[string]string{
		"loops": strings.Repeat(`{{ range 1000000000 }}`, 4) + strings.Repeat(`{{ end }}`, 4),
		"functions": `{{ $l := until 100 }}{{ range until 9999 }}{{ $x := uniq $l }}` +
			`{{ $y := regexReplaceAll "a*b|a" (repeat 1024 "a") "" }}{{ end }}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := startAPI(t).session(t)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			start := cputime.Used()
			op := policy(versions(entry))
			answers, _ := s.resolve(ctx, scope{namespace: op.Namespace}, templated(op))
			if took := cputime.Used() - start; took > 20*time.Second {
				t.Errorf("it took %s of CPU", took)
			}
			if answers[0].problem == "" {
				t.Error("it has no problem")
			}
		})
	}
}
