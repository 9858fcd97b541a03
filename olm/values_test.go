package olm

import (
	"encoding/json"
	"testing"
)

func TestCountValues(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `null`: 0, `[]`: 0, `{}`: 0, `[ ]`: 0, `[1]`: 1, `[{},{}]`: 2, `{"a":[1,2],"b":{"c":""}}`: 5,
		`["a,b","[{,"]`: 2, `["\"",","]`: 2, `["\\",","]`: 2, `["\\\",",","]`: 2, `{"a":"\\\\"}`: 1, `[[],[[]]]`: 3, `["`: 1,
	} {
		if got := CountValues([]byte(text)); got != want {
			t.Errorf("%s holds %d values, want %d", text, got, want)
		}
	}
}

func FuzzCountValues(f *testing.F) {
	f.Add([]byte(`{"a":["\"",{"b":null}],"c":"\\"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var value any
		if len(raw) > 0 && raw[0] != ' ' && json.Unmarshal(raw, &value) != nil || len(raw) == 0 {
			return
		}
		compact, err := json.Marshal(json.RawMessage(raw))
		if err != nil {
			return
		}
		// Objects with a key given twice have more members than their decoded form.
		if got := CountValues(compact); got < held(value) {
			t.Errorf("%s holds %d values, counted %d", raw, held(value), got)
		}
	})
}

func held(value any) int {
	count := 0
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			count += 1 + held(element)
		}
	case map[string]any:
		for _, element := range v {
			count += 1 + held(element)
		}
	}
	return count
}
