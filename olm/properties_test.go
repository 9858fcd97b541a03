package olm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseBundleRefuses(t *testing.T) {
	for name, c := range map[string]struct{ properties, why string }{
		"no JSON": {"olm.package", "read bundle properties"},
		"a list without wrapper": {`[{"type":"olm.package","value":{"packageName":"etcd"}}]`,
			"read bundle properties"},
		"a package that is text": {`{"properties":[{"type":"olm.package","value":"etcd"}]}`,
			"property 0 (olm.package)"},
		"a package without a name": {`{"properties":[{"type":"olm.package","value":{"version":"1.0.0"}}]}`,
			"packageName is empty"},
		"a name in another case": {`{"properties":[{"type":"olm.package","value":{"packagename":"etcd"}}]}`,
			"packageName is empty"},
		"a version that is a number": {`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":1.10}}]}`, "property 0"},
		"two packages":               {`{"properties":[{"type":"olm.package","value":{"packageName":"innocent","version":"1.0.0"}},{"type":"olm.package","value":{"packageName":"etcd","version":"1.0.0"}}]}`, "after package innocent"},
		"two versions":               {`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}},{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4"}}]}`, "after package etcd 0.9.2"},
		"two releases": {`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2","release":"1"}},{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}}]}`,
			"package etcd 0.9.2 after package etcd 0.9.2 release 1"},
		"a release that is a number": {`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","release":2}}]}`,
			"the release is not text"},
		"a release that is none": {`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","release":"007"}}]}`,
			`release "007" is not a release`},
		"a release in another case": {`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","Release":"2"}}]}`,
			"in another case"},
		"a release twice": {`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","release":"1","RELEASE":"2"}}]}`,
			"is repeated"},
		"a requirement of nothing": {`{"properties":[{"type":"olm.package.required","value":{}}]}`,
			"packageName is empty"},
		"too deep": {`{"properties":[{"type":"olm.package","value":` + strings.Repeat(`[`, 10_001) +
			strings.Repeat(`]`, 10_001) + `}]}`, "read bundle properties"},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := ParseBundle(c.properties); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("read as %+v, error %v; want an error with %q", b, err, c.why)
			}
		})
	}
}

func TestParseBundleLeavesOtherTypesAlone(t *testing.T) {
	b, err := ParseBundle(`{"properties":[{"type":"olm.label","value":7},{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2","more":true}},{"type":"x","value":null}]}`)
	if err != nil || b.Package != "etcd" || b.Version != "0.9.2" {
		t.Errorf("read as %+v, error %v", b, err)
	}
}

// TestParseBundleRelease: an empty release is none, and a required package has none.
func TestParseBundleRelease(t *testing.T) {
	for value, want := range map[string]string{`"alpha.1"`: "alpha.1", `""`: "", `null`: ""} {
		b, err := ParseBundle(`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2",` +
			`"release":` + value + `}},{"type":"olm.package.required","value":{"packageName":"vault","release":7}}]}`)
		if err != nil || b.Stated != want {
			t.Errorf("%s is read as %q, error %v", value, b.Stated, err)
		}
	}
}

// TestManifest: a step's manifest is reduced to its digest and properties, and decoding errors are recorded.
func TestManifest(t *testing.T) {
	read := func(manifest string) Manifest {
		raw, err := json.Marshal(manifest)
		if err != nil {
			t.Fatal(err)
		}
		var m Manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	const with = `{"metadata":{"annotations":{"operatorframework.io/properties":"{\"properties\":[]}"}}}`
	if m := read(with); m.Properties != `{"properties":[]}` || m.Unreadable {
		t.Errorf("read as %+v", m)
	}
	if m := read(`{"metadata":{"annotations":{"operatorframework.io/properties":7}}}`); !m.Unreadable {
		t.Error("an annotation that is a number went unnoticed")
	}
	if m := read(with[:len(with)-2]); !m.Unreadable {
		t.Error("a manifest that is cut off went unnoticed")
	}
	if m := read(`{"kind":"ConfigMap"`); m.Unreadable || m.Properties != "" {
		t.Errorf("a manifest that has no properties is looked into: %+v", m)
	}
	step := func(text string) Step { return Step{Resource: StepResource{Manifest: read(text)}} }
	if !SameStep(step(with), step(with)) || SameStep(step(with), step(with+" ")) {
		t.Error("one byte more must be another manifest, and the same bytes the same (threat O2)")
	}
}

func FuzzParseBundle(f *testing.F) {
	f.Add(`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}}]}`)
	f.Add(`{"properties":[{"type":"olm.gvk.required","value":{"group":"g","kind":"K","version":"v1"}}]}`)
	f.Add(`{"properties":null}`)
	f.Fuzz(func(t *testing.T, properties string) {
		b, err := ParseBundle(properties)
		if err != nil && (b.Package != "" || len(b.Requires) > 0) {
			t.Errorf("an error and still something to believe: %+v", b)
		}
	})
}

func TestParseProperties(t *testing.T) {
	for _, c := range []struct {
		wrapped string
		want    []Property
		fails   bool
	}{
		{wrapped: ""},
		{wrapped: "{}", want: []Property{}},
		{wrapped: `{"properties":null}`, want: []Property{}},
		{wrapped: `{"properties":[{"type":"a","value":{"b": 1}},{"type":"c"}]}`,
			want: []Property{{Type: "a", Raw: []byte(`{"b": 1}`)}, {Type: "c", Raw: []byte("null")}}},
		// as OLM reads it
		{wrapped: `{"Properties":[{"TYPE":"a","value":1}]}`, want: []Property{{Type: "a", Raw: []byte("1")}}},
		{wrapped: `{"properties":[{"type":"a","value":1}],"properties":[{"type":"b","value":2}]}`,
			want: []Property{{Type: "b", Raw: []byte("2")}}},
		{wrapped: `{"properties":{}}`, fails: true},
		{wrapped: `{"properties":[{"type":1}]}`, fails: true},
		{wrapped: `[`, fails: true},
		{wrapped: strings.Repeat("[", 20_000), fails: true},
	} {
		got, err := ParseProperties(c.wrapped)
		if (err != nil) != c.fails {
			t.Errorf("%.80s: %v", c.wrapped, err)
		} else if diff := cmp.Diff(c.want, got); diff != "" && !c.fails {
			t.Errorf("%.80s: %s", c.wrapped, diff)
		}
	}
}
