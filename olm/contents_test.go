package olm

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/apijson"
)

// TestContentsDigest compares the manifest of a plan with what the API server stores.
func TestContentsDigest(t *testing.T) {
	digest := func(s string) [32]byte { return ContentsDigest([]byte(s)) }
	const plan = `{"b":{"ports":[{"containerPort":80}],"x":null},"a":[1,null,{"name":"n"}],"webhookdefinitions":[{"type":"t"}]}`
	for _, same := range []string{
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a": [1, null, {"name": "\u006e"}],"b":{"ports":[{"protocol":"TCP","containerPort":80}]},"webhookdefinitions":[{"containerPort":443,"type":"t"}]}`,
	} {
		if digest(same) != digest(plan) {
			t.Errorf("%s differs", same)
		}
	}
	for _, other := range []string{
		`{"a":[1,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"m"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[null,1,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80,"protocol":"UDP"}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}],"protocol":"TCP"},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}],"c":false}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}],"c":{}}`,
		`{`, ``,
	} {
		if digest(other) == digest(plan) {
			t.Errorf("%s does not differ", other)
		}
	}
	csv, err := Decode[CSV]([]byte(`{"spec":` + plan + `}`))
	if err != nil {
		t.Fatal(err)
	}
	fresh := csv.Spec.ContentsDigest()
	csv.Spec.KeepDigest()
	if csv.Spec.raw != nil || csv.Spec.ContentsDigest() != fresh {
		t.Error("what a snapshot keeps is not the digest")
	}
}

// FuzzContentsDigest compares with a digest of what encoding/json decodes: equal values have equal digests, and others
// do not. Defaults are left out, since they depend on the parent.
func FuzzContentsDigest(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":null}`, `{"a":1}`}, {`["\u006e"]`, `["n"]`}, {`"\ud800"`, `"\ufffd"`},
		{`{"a":{"b":[]}}`, `{"a":{"b":{}}}`}, {`[1,2]`, `[12]`},
		{`{"a":"1"}`, `{"a":1}`}, {` [ true , false ] `, `[true,false]`}, {`"null"`, `null`},
		{`{"a":"b","c":""}`, `{"a":"","c":"b"}`}, {`{}x`, `{}`},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for key := range schemaDefaults {
			if strings.Contains(a+b, key) {
				return // not a value that both sides read alike
			}
		}
		equal := ContentsDigest([]byte(a)) == ContentsDigest([]byte(b))
		x, okX := plain(a)
		y, okY := plain(b)
		if !okX || !okY {
			if equal != (a == b) {
				t.Errorf("digests of %q and %q are equal: %t", a, b, equal)
			}
			return
		}
		if equal && !reflect.DeepEqual(x, y) || !equal && reflect.DeepEqual(x, y) && unique(a) && unique(b) {
			t.Errorf("digests of %q and %q are equal: %t", a, b, equal)
		}
	})
}

// unique reports whether no key of valid JSON occurs twice in an object.
func unique(s string) bool {
	var value any
	if json.Unmarshal([]byte(s), &value) != nil {
		return false
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return false
	}
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(s)) != nil {
		return false
	}
	want, _ := apijson.Measure(compact.Bytes())
	got, _ := apijson.Measure(raw)
	return got == want
}

// plain decodes JSON without null fields.
func plain(s string) (any, bool) {
	if !json.Valid([]byte(s)) {
		return nil, false
	}
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return nil, false
	}
	return withoutNull(value), true
}

func withoutNull(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if field == nil {
				delete(v, key)
			} else {
				v[key] = withoutNull(field)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNull(v[i])
		}
	}
	return value
}
