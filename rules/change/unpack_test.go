package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/metakey"
)

func TestUnpack(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n"
	for _, test := range []struct {
		name    string
		entries map[string]string
		// want are the names of the objects, or a part of the error.
		want  []string
		error string
	}{
		{
			name: "YAML, JSON and metadata",
			entries: map[string]string{"a.yaml": fmt.Sprintf(service, "a"),
				"b.json": `{"kind":"Service","metadata":{"name":"b"}}`, "dependencies.yaml": "dependencies: []"},
			want: []string{"a", "b"},
		},
		{
			name: "only the first document, as OLM reads it",
			entries: map[string]string{"a.yaml": "---\n" + fmt.Sprintf(service, "a") + "---\n" +
				fmt.Sprintf(service, "hidden")},
			want: []string{"a"},
		},
		{
			name:    "empty and comments",
			entries: map[string]string{"a.yaml": "", "b.yaml": "# nothing\n", "c.yaml": "---\n"},
		},
		{
			name:    "no YAML",
			entries: map[string]string{"a.yaml": "kind: [", "b.yaml": fmt.Sprintf(service, "b")},
			error:   "a.yaml of the ConfigMap cannot be read",
		},
		{
			name:    "an alias",
			entries: map[string]string{"a.yaml": "kind: Service\nmetadata: &m\n  name: a\nspec: *m\n"},
			want:    []string{"a"},
		},
		{
			name: "aliases that stand for gigabytes",
			entries: map[string]string{"a.yaml": "kind: Service\ntext: &t " + strings.Repeat("x", 100_000) +
				"\nlist: [" + strings.Repeat("*t, ", 100_000) + "*t]\n"},
			error: "when its aliases are replaced",
		},
		{
			name:    "an alias inside its anchor",
			entries: map[string]string{"a.yaml": "kind: Service\nspec: &s\n  inner: *s\n"},
			error:   "a.yaml of the ConfigMap cannot be read",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifests, err := Unpack(encode(t, map[string]any{"data": test.entries}))
			if test.error != "" {
				if err == nil || !strings.Contains(err.Error(), test.error) {
					t.Fatalf("error %v, want %q", err, test.error)
				}
				return
			}
			var got []string
			for _, raw := range manifests {
				var o object
				if err := json.Unmarshal(raw, &o.header); err != nil {
					t.Fatal(err)
				}
				got = append(got, o.Metadata.Name)
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestUnpackZipped covers binaryData: only with the annotation, and never more than is read.
func TestUnpackZipped(t *testing.T) {
	const service = "kind: Service\nmetadata: {name: a}\n"
	configMap := func(encoding string, entry []byte) []byte {
		return encode(t, map[string]any{"metadata": map[string]any{"annotations": map[string]string{metakey.ContentEncoding: encoding}},
			"data": map[string]string{"plain.yaml": service}, "binaryData": map[string][]byte{"zipped.yaml": entry}})
	}
	for _, test := range []struct {
		name, encoding string
		entry          []byte
		want           int
		error          string
	}{
		{name: "zipped", encoding: gzipBase64, entry: gzipped(t, []byte(service)), want: 1},
		{name: "without the annotation", encoding: "", entry: gzipped(t, []byte(service)), want: 1},
		{name: "a bomb", encoding: gzipBase64, entry: gzipped(t, []byte(strings.Repeat(" ", maxBytes+1))),
			error: "bytes when decompressed"},
		{name: "not zipped", encoding: gzipBase64, entry: []byte(service),
			error: "zipped.yaml of the ConfigMap cannot be decompressed"},
		{name: "cut off", encoding: gzipBase64, entry: gzipped(t, []byte(service))[:20],
			error: "zipped.yaml of the ConfigMap cannot be decompressed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifests, err := Unpack(configMap(test.encoding, test.entry))
			if test.error != "" {
				if err == nil || !strings.Contains(err.Error(), test.error) {
					t.Fatalf("error %v, want %q", err, test.error)
				}
				return
			}
			if err != nil || len(manifests) != test.want {
				t.Errorf("%d manifests, %v", len(manifests), err)
			}
		})
	}
	if _, err := Unpack([]byte(`{"data":`)); err == nil {
		t.Error("no error for a ConfigMap that is no JSON")
	}
}

// TestFaults are contents that are held, with the reason.
func TestFaults(t *testing.T) {
	csv := csvManifest("a.v1", "[]")
	for _, test := range []struct {
		name      string
		manifests []json.RawMessage
		want      string
	}{
		{"no ClusterServiceVersion", nil, "ClusterServiceVersion a.v1 is not among the manifests"},
		{"another ClusterServiceVersion", []json.RawMessage{csvManifest("b.v1", "[]")},
			"the ClusterServiceVersion is b.v1, want a.v1"},
		{"two ClusterServiceVersions", []json.RawMessage{csv, csv}, "there are 2 ClusterServiceVersions, want one"},
		{"no JSON", []json.RawMessage{csv, json.RawMessage(`{`)}, "manifest 1 cannot be read"},
		{"no kind", []json.RawMessage{csv, json.RawMessage(`{}`)}, "manifest 1 has no kind"},
		{"no list of rules", []json.RawMessage{csvManifest("a.v1", `"all"`)},
			"the spec of ClusterServiceVersion a.v1 cannot be read"},
		{"no version", []json.RawMessage{json.RawMessage(strings.Replace(string(csv), "1.0.0", "one", 1))},
			"the spec of ClusterServiceVersion a.v1 cannot be read"},
		{"two objects of one name",
			[]json.RawMessage{csv, json.RawMessage(
				`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"a":"MQ=="}}`),
				json.RawMessage(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)},
			"there are two different manifests of Secret s"},
		{"too many values", []json.RawMessage{csv,
			json.RawMessage(`{"kind":"K","a":[` + strings.Repeat("1,", maxValues) + `1]}`)}, "values that are read"},
		{"too many manifests", slices.Repeat([]json.RawMessage{json.RawMessage(`{"kind":"K"}`)}, maxObjects+1),
			"at most 4096 are read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := ReadContents("a.v1", "", test.manifests)
			if !strings.Contains(c.Fault, test.want) {
				t.Fatalf("fault %q, want %q", c.Fault, test.want)
			}
			set := Compare(ReadContents("", "", nil), c)
			if set.Fault != c.Fault || set.Digest() != "" || len(set.Differences) > 0 {
				t.Errorf("set %+v, digest %q", set, set.Digest())
			}
			c.Resolve("", "")
			if c.Fault == "" {
				t.Error("resolving removes the fault")
			}
		})
	}
	broken := read(t, "a.v1", []json.RawMessage{csv})
	broken.Resolve(`{"properties":[{"type":"olm.package","value":{}}]}`, "")
	if !strings.Contains(broken.Fault, "the properties of a.v1 cannot be read") {
		t.Errorf("fault %q", broken.Fault)
	}
}
