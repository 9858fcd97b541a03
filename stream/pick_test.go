package stream

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

func TestPick(t *testing.T) {
	fields := Fields{"a": nil, "b": {"c": nil}, "d": nil}
	for raw, want := range map[string]map[string]any{
		`{}`: {}, `null`: {}, `{"x":1}`: {}, `{"a":1}`: {"a": int64(1)}, "\t" + `{ "a" : 1.5 , "x" : [ {"a":2} ] }` +
			"\n": {"a": 1.5},
		`{"b":{"c":true,"e":"c"},"a":null}`: {"a": nil, "b": map[string]any{"c": true}},
		`{"b":"text","d":[1,{"x":"}"}]}`:    {"b": "text", "d": []any{int64(1), map[string]any{"x": "}"}}},
		`{"x":"\"a\":1,","\u0061":"\\"}`:    {"a": `\`},
		`{"a":1,"a":2}`:                     {"a": int64(2)},
	} {
		if got := Pick([]byte(raw), fields); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, want %#v", raw, got, want)
		}
	}
}

func TestPickWithholdsWhatIsLarge(t *testing.T) {
	one := `{"a":[` + strings.Repeat(`{},`, 2000) + `1]}`
	other := `{"a":[` + strings.Repeat(`{},`, 2000) + `2]}`
	a, b := Pick([]byte(one), Fields{"a": nil})["a"], Pick([]byte(other), Fields{"a": nil})["a"]
	if !Withheld(a) || !Withheld(b) || a == b {
		t.Errorf("%v and %v", a, b)
	}
	if Withheld("text") || Withheld(nil) {
		t.Error("a text, or nothing, counts as withheld")
	}
}

// FuzzPick compares the result with that of a decoder.
func FuzzPick(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"\"}"]},"c":null,"a":{"\\":""}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts(raw, &want) != nil || want == nil || len(raw) > 1000 {
			return
		}
		fields := Fields{}
		for name := range want {
			fields[name] = nil
		}
		if got := Pick(raw, fields); !reflect.DeepEqual(got, want) {
			gotText, _ := json.Marshal(got)
			wantText, _ := json.Marshal(want)
			if string(gotText) != string(wantText) {
				t.Errorf("%s: %s, want %s", raw, gotText, wantText)
			}
		}
	})
}
