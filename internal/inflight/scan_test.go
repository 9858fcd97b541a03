package inflight

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMeasure(t *testing.T) {
	for text, want := range map[string]struct{ values, depth int }{
		`7`:                          {1, 0},
		``:                           {1, 0},
		`{"a":1,"b":[2,3]}`:          {5, 2},
		`"a,b{[,"`:                   {1, 0},
		`["\",{","\\",","]`:          {4, 1},
		`["\\\",[","\\\\",1]`:        {4, 1},
		`"not closed \" , [`:         {1, 0},
		`[[[`:                        {4, 3},
		strings.Repeat("[],", 1_000): {2_001, 1},
	} {
		if values, depth := measure([]byte(text)); values != want.values || depth != want.depth {
			t.Errorf("%.30s has %d values and %d levels, want %d and %d", text, values, depth, want.values, want.depth)
		}
	}
}

// FuzzMeasure compares it with what a decoder finds: never fewer values, never less deep.
func FuzzMeasure(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\"",{"b":null}]}`, `["\\",[[{}]]]`, `"\u0022,"`, `{"a,b":{"c[":"]"}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var decoded any
		if json.Unmarshal([]byte(text), &decoded) != nil || strings.Contains(text, ":") {
			return // a key may be there twice, and counts once in a map
		}
		wantValues, wantDepth := count(decoded)
		if values, depth := measure([]byte(text)); values < wantValues || depth < wantDepth {
			t.Errorf("%q has %d values and %d levels, a decoder finds %d and %d", text, values, depth, wantValues, wantDepth)
		}
	})
}

func count(value any) (values, depth int) {
	list, ok := value.([]any)
	if !ok {
		return 1, 0
	}
	values = 1
	for _, element := range list {
		v, d := count(element)
		values, depth = values+v, max(depth, d)
	}
	return values, depth + 1
}

func BenchmarkPrice(b *testing.B) {
	manifest, err := json.Marshal(`{"kind":"ConfigMap","metadata":{"name":"x"},"data":{"text":"` + strings.Repeat("some words of a manifest, ", 150) + `"}}`)
	if err != nil {
		b.Fatal(err)
	}
	for name, body := range map[string]string{
		"manifests": "[" + strings.Repeat(`{"status":"Unknown","resource":{"kind":"ConfigMap","manifest":`+string(manifest)+"}},", 300) + "{}]",
		"values":    "[" + strings.Repeat(`{"a":"b","c":[1,2]},`, 50_000) + "{}]",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			text := []byte(body)
			for b.Loop() {
				_, _ = price(text, 1<<40)
			}
		})
	}
}
