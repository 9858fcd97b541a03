package apijson_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/apijson"
)

// sample has what the types of reviews have.
type sample struct {
	Text    string            `json:"text"`
	Flag    bool              `json:"flag"`
	Number  int64             `json:"number"`
	Small   int32             `json:"small"`
	List    []string          `json:"list"`
	Map     map[string]string `json:"map"`
	Objects []element         `json:"objects"`
	Pointer *element          `json:"pointer"`
	Element element           `json:"element"`
	Raw     json.RawMessage   `json:"raw"`
	Read    read              `json:"read"`
	Any     *read             `json:"any"`
	Ignored string            `json:"-"`
	element
}

type element struct {
	Name  string `json:"name"`
	Inner *inner `json:"inner"`
}

type inner struct {
	Value  string              `json:"value"`
	Values map[string][]string `json:"values"`
}

// read records the JSON that it is given.
type read struct{ JSON string }

func (r *read) UnmarshalJSON(raw []byte) error {
	r.JSON += string(raw)
	return nil
}

// texts are where decoders differ.
var texts = []string{
	`{"text":"a","flag":true,"number":-7,"list":["a",null],"map":{"a":"b","c":null},"objects":[{"name":"x"},null,{"inner":{}}]}`,
	`{"text":"a","text":"b"}`, `{"text":"a","text":null}`, `{"TEXT":"a","Text":"b"}`,
	`{"element":{"name":"a"},"element":{"inner":{"value":"b"}}}`,
	`{"pointer":{"name":"a"},"pointer":{"inner":{}}}`, `{"pointer":{"name":"a"},"pointer":null}`,
	`{"map":{"a":"b"},"map":{"c":"d"}}`,
	`{"map":{"a":"b"},"map":null}`, `{"list":["a","b"],"list":["c"]}`, `{"list":["a","b"],"list":null}`,
	`{"list":["a"],"list":[]}`,
	`{"objects":[{"name":"a","inner":{"value":"x"}}],"objects":[{"inner":{"values":{"a":["b"]}}}]}`,
	`{"objects":[{"name":"a"}],"objects":[null]}`,
	`{"read":null}`, `{"any":null}`, `{"any":1,"any":null}`, `{"any":[1, 2 ]}`, `{"raw":null}`, `{"raw": {"a" : 1}}`,
	`{"raw":1,"raw":null}`,
	`{"number":1.0}`, `{"number":1e2}`, `{"number":9223372036854775807}`, `{"number":9223372036854775808}`,
	`{"small":2147483648}`, `{"number":-0}`,
	`{"number":01}`, `{"number":"1"}`, `{"flag":"true"}`, `{"flag":1}`, `{"text":1}`, `{"list":{}}`, `{"map":[]}`,
	`{"element":[]}`, `{"pointer":"x"}`,
	"{\"text\":\"\xff\"}", "{\"te\xffxt\":\"a\"}", "{\"map\":{\"\xff\":\"a\",\"\xfe\":\"b\"}}", `{"text":"\ud800"}`,
	`{"text":"\ud800\udc00"}`, `{"text":"\udc00x"}`,
	`{"text":"\u0000\/\b"}`, `{"te\u0078t":"a"}`, "{\"text\":\"a\tb\"}", `{"text":"\x"}`, `{"text":"\u12"}`, "\ufeff{}",
	"{} ", "{}{}", "{}\x00", "", " ", "null", "[]", `"a"`, "1",
	"{\"skipped\":\"\xff\\ud800\"}", "{\"skipped\":\"a\nb\"}", `{"skipped":01}`, `{"skipped":1e400}`,
	`{"skipped":[1,]}`, `{"skipped":{"a":1,"a":2}}`, `{"skipped":{"a" 1}}`,
	`{"skipped":nul}`, `{"skipped":{"a":1}`, `{,}`, `{"a":1,}`, `{"Ignored":"a","-":"b"}`,
	`{"name":"a","inner":{"value":"b"}}`, `{"inner":null}`,
}

// deep are at the limit of depth, which is 10,000.
var deep = []string{
	strings.Repeat(`{"skipped":`, 9_999) + "1" + strings.Repeat("}", 9_999),
	strings.Repeat(`{"skipped":`, 10_000) + "1" + strings.Repeat("}", 10_000),
	strings.Repeat(`{"skipped":`, 10_001) + "1" + strings.Repeat("}", 10_001),
	`{"skipped":` + strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999) + "}",
	`{"skipped":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}",
}

// same compares both decoders. What is read strictly is what they read, without a fault; the other direction is not
// needed.
func same(t *testing.T, raw []byte) {
	t.Helper()
	var got, want sample
	errGot, errWant := apijson.Unmarshal(raw, &got), kjson.UnmarshalCaseSensitivePreserveInts(raw, &want)
	if (errGot == nil) != (errWant == nil) {
		t.Fatalf("%.300q: error %v, want %v", raw, errGot, errWant)
	}
	if errWant == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%.300q: %s", raw, cmp.Diff(want, got, cmp.AllowUnexported(sample{})))
	}
	var strict sample
	if apijson.UnmarshalStrict(raw, &strict) != nil {
		return
	}
	if faults, err := kjson.UnmarshalStrict(raw, &sample{}); err != nil || len(faults) > 0 {
		t.Errorf("%.300q: no error, want %v and %v", raw, err, faults)
	}
	if !reflect.DeepEqual(strict, want) {
		t.Errorf("%.300q, strictly: %s", raw, cmp.Diff(want, strict, cmp.AllowUnexported(sample{})))
	}
}

// TestSemantics: what the API server reads of a text is what is read here.
func TestSemantics(t *testing.T) {
	for _, text := range slices.Concat(texts, deep) {
		same(t, []byte(text))
	}
}

// TestStrict: duplicate names, and names without a field, are errors at any depth.
func TestStrict(t *testing.T) {
	for text, want := range map[string]bool{
		`{"text":"a","element":{"inner":{"values":{"a":["b"]}}},"name":"b","map":{"a":"b"}}`: true,
		`{"text":"a","text":"a"}`: false, `{"Text":"a"}`: false, `{"element":{"inner":{"skipped":1}}}`: false,
		`{"map":{"a":"b","a":"b"}}`: false, `{"objects":[{},{"name":"a","name":"a"}]}`: false,
	} {
		if err := apijson.UnmarshalStrict([]byte(text), &sample{}); (err == nil) != want {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

// FuzzSemantics looks for a text that is read in another way than the API server reads it.
func FuzzSemantics(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(same)
}

// TestErrors: a value of another type is reported with its path, also where a method of a type decodes a part.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"element":{"inner":{"value":1}}}`:         "element.inner.value: want a value of type string",
		`{"objects":[{},{"name":[]}]}`:              "objects[1].name: want a value of type string",
		`{"small":2147483648}`:                      "small: value out of range",
		`{"part":{"inner":{"values":{"a.b":"x"}}}}`: "part.inner.values.a.b: want a value of type []string",
		`{"picky":{"a":1}}`:                         "picky: one too many",
	} {
		var into faulty
		if err := apijson.Unmarshal([]byte(text), &into); err == nil || err.Error() != want {
			t.Errorf("%s: error %q, want %q", text, err, want)
		}
	}
}

type faulty struct {
	sample
	Part  part  `json:"part"`
	Picky picky `json:"picky"`
}

// part decodes itself.
type part element

func (p *part) UnmarshalJSON(raw []byte) error { return apijson.Unmarshal(raw, (*element)(p)) }

// picky refuses everything.
type picky struct{}

func (*picky) UnmarshalJSON([]byte) error { return errors.New("one too many") }
