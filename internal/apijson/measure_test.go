package apijson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/apijson"
)

func TestMeasure(t *testing.T) {
	type size struct{ values, depth int }
	for text, want := range map[string]size{
		``:                             {0, 0},
		`null`:                         {0, 0},
		`[]`:                           {0, 1},
		`{}`:                           {0, 1},
		`[ ]`:                          {1, 1},
		`[1]`:                          {1, 1},
		`[{},{}]`:                      {2, 2},
		`[[],[[]]]`:                    {3, 3},
		`{"a":[1,2],"b":{"c":""}}`:     {5, 2},
		`"a,b{[,"`:                     {0, 0},
		`["a,b","[{,"]`:                {2, 1},
		`["\"",","]`:                   {2, 1},
		`["\\",","]`:                   {2, 1},
		`["\\\",",","]`:                {2, 1},
		`["\",{","\\",","]`:            {3, 1},
		`["\\\",[","\\\\",1]`:          {3, 1},
		`{"a":"\\\\"}`:                 {1, 1},
		`["`:                           {1, 1},
		`"not closed \" , [`:           {0, 0},
		`[[[`:                          {3, 3},
		strings.Repeat("[],", 1_000):   {1_000, 1},
		strings.Repeat("[[],", 1_000):  {2_000, 1_001},
		strings.Repeat("[", 10_000):    {10_000, 10_000},
		strings.Repeat(`{"a":`, 1_000): {1_000, 1_000},
	} {
		if values, depth := apijson.Measure([]byte(text)); values != want.values || depth != want.depth {
			t.Errorf("%.30s has %d values and %d levels, want %d and %d", text, values, depth, want.values, want.depth)
		}
	}
}

// TestMeasureWithin counts the values in members of a name, and nothing that only looks like them.
func TestMeasureWithin(t *testing.T) {
	for text, want := range map[string]int{
		``:                                      0,
		`{"raw":1}`:                             0,
		`{"raw":{}}`:                            0,
		`{"raw":[{},{}],"b":[1,2]}`:             2,
		`{"raw":[1,[2,3]],"raw":[4],"b":[5]}`:   5,
		`[{"raw":[1]},{"b":[2]},{"raw":[3]}]`:   2,
		`{"raw":{"raw":[1,2]},"b":[3]}`:         3,
		`{"a":{"raw":[1,2]},"b":[3]}`:           2,
		`{"raw" :[1,2]}`:                        0,
		`{"r\u0061w":[1,2]}`:                    0,
		`{"a":"raw","b":[1,2]}`:                 0,
		`{"a":"\"raw\":[1,2]","b":[1,2]}`:       0,
		`{"a\"raw":[1,2]}`:                      0,
		`["raw",[1,2]]`:                         0,
		`{"raw":[1],"b":{"c":[1,{"raw":[2]}]}}`: 2,
	} {
		values, within, depth := apijson.MeasureWithin([]byte(text), "raw")
		if within != want {
			t.Errorf("%s has %d values in raw, want %d", text, within, want)
		}
		if wantValues, wantDepth := apijson.Measure([]byte(text)); values != wantValues || depth != wantDepth {
			t.Errorf("%s has %d values and %d levels, want %d and %d", text, values, depth, wantValues, wantDepth)
		}
	}
}

// TestMeasureEscapes has backslashes and quotes at every distance from the begin of a string.
func TestMeasureEscapes(t *testing.T) {
	for before := range 140 {
		for backslashes := range 70 {
			text := `["` + strings.Repeat("x", before) + strings.Repeat(`\\`, backslashes) + `\",[{",1]`
			if values, depth := apijson.Measure([]byte(text)); values != 2 || depth != 1 {
				t.Fatalf("%s has %d values and %d levels, want 2 and 1", text, values, depth)
			}
		}
	}
}

// FuzzMeasure compares it with a byte-by-byte loop, and with what a decoder finds: never fewer values, never less deep.
func FuzzMeasure(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,"\"",{"b":null}]}`, `["\\",[[{}]]]`, `"\u0022,"`, `{"a,b":{"c[":"]"}}`, `[ {	} ]`, `\"[,`,
		"\xff[\"\xc3\\\"",
		strings.Repeat(`{"manifest":"{\"kind\":\"A\"}","list":[[],{}]},`, 20),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, depth := apijson.Measure([]byte(text))
		if wantValues, wantDepth := slow(text); values != wantValues || depth != wantDepth {
			t.Errorf("%q has %d values and %d levels, byte by byte %d and %d", text, values, depth, wantValues,
				wantDepth)
		}
		var decoded any
		if json.Unmarshal([]byte(text), &decoded) != nil {
			return
		}
		// An object with a name given twice has fewer members when it is decoded.
		if wantValues, wantDepth := held(decoded); values < wantValues || depth < wantDepth {
			t.Errorf("%q has %d values and %d levels, a decoder finds %d and %d", text, values, depth, wantValues,
				wantDepth)
		}
	})
}

// slow measures byte by byte.
func slow(text string) (values, depth int) {
	level := 0
	inText := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == ',':
			values++
		case c == '[', c == '{':
			level++
			depth = max(depth, level)
			if next := i + 1; next == len(text) || text[next] != ']' && text[next] != '}' {
				values++
			}
		case c == ']', c == '}':
			level--
		}
	}
	return values, depth
}

func held(value any) (values, depth int) {
	var elements []any
	switch v := value.(type) {
	case []any:
		elements = v
	case map[string]any:
		for _, element := range v {
			elements = append(elements, element)
		}
	default:
		return 0, 0
	}
	for _, element := range elements {
		v, d := held(element)
		values, depth = values+1+v, max(depth, d)
	}
	return values, depth + 1
}
