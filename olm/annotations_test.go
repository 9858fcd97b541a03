package olm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/metakey"
)

func csvWith(t *testing.T, annotations map[string]string, spec string) *CSV {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "a", "annotations": annotations},
		"spec": json.RawMessage(spec)})
	if err != nil {
		t.Fatal(err)
	}
	csv, err := Decode[CSV](raw)
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

// TestChangedField: the first field that differs and counts. Digests differ for the same annotations.
func TestChangedField(t *testing.T) {
	const proxy = "sidecar.istio.io/proxyImage"
	long := strings.Repeat("x", maxAnnotation)
	for _, c := range []struct {
		name    string
		old     map[string]string
		new     map[string]string
		newSpec string
		want    string
	}{
		{name: "nothing"},
		{name: "the spec", newSpec: `{"displayName":"b"}`, want: "spec"},
		{name: "the properties", new: map[string]string{metakey.Properties: "{}"},
			want: "metadata.annotations[operatorframework.io/properties]"},
		{name: "an annotation is added", new: map[string]string{proxy: "evil"}, want: "metadata.annotations[" + proxy + "]"},
		{name: "an empty one is added", new: map[string]string{proxy: ""}, want: "metadata.annotations[" + proxy + "]"},
		{name: "one is changed", old: map[string]string{"a": "1", "b": "1"}, new: map[string]string{"a": "1", "b": "2"},
			want: "metadata.annotations[b]"},
		{name: "one is removed", old: map[string]string{"a": "1"}, want: "metadata.annotations[a]"},
		{name: "a long one is changed", old: map[string]string{"a": long}, new: map[string]string{"a": long + "y"},
			want: "metadata.annotations"},
		{name: "a domain that begins like a harmless one", new: map[string]string{"argocd.argoproj.io": "a"},
			want: "metadata.annotations[argocd.argoproj.io]"},
		{name: "hooks of Velero, which runs them in the pods", new: map[string]string{"pre.hook.backup.velero.io/command": "a"},
			want: "metadata.annotations[pre.hook.backup.velero.io/command]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.newSpec == "" {
				c.newSpec = `{}`
			}
			was, is := csvWith(t, c.old, `{}`), csvWith(t, c.new, c.newSpec)
			if got := was.ChangedField(is); got != c.want {
				t.Errorf("%q counts, want %q", got, c.want)
			}
			counts := strings.HasPrefix(c.want, "metadata.annotations") && !strings.Contains(c.want, "properties")
			if got := was.Spec.AnnotationsDigest() != is.Spec.AnnotationsDigest(); got != counts {
				t.Errorf("the digests differ: %t, want %t", got, counts)
			}
			if is.Spec.AnnotationsDigest() != AnnotationsDigest(c.new) {
				t.Error("the digest depends on how the annotations are read")
			}
		})
	}
}

// TestAnnotationsOfAnySpelling: what API servers store for a manifest has the digest of the manifest.
func TestAnnotationsOfAnySpelling(t *testing.T) {
	for manifest, stored := range map[string]string{`{"a":"\u0041<"}`: `{"a":"A\u003c"}`, `{"a":null}`: `{"a":""}`,
		`{"b":"1","a":"2"}`: `{"a":"2","b":"1"}`} {
		digests := map[[32]byte]bool{}
		for _, annotations := range []string{manifest, stored} {
			csv, err := Decode[CSV]([]byte(`{"metadata":{"annotations":` + annotations + `},"spec":{}}`))
			if err != nil {
				t.Fatal(err)
			}
			digests[csv.Spec.ContentsDigest()] = true
		}
		if len(digests) != 1 {
			t.Errorf("%s and %s have two digests", manifest, stored)
		}
	}
}
