package olm

import (
	"encoding/json"
	"testing"

	mmsemver "github.com/Masterminds/semver/v3"
)

// extensionWith returns the source of a ClusterExtension that asks for versions.
func extensionWith(t testing.TB, version string) *ExtensionSource {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"source": map[string]any{"sourceType": "Catalog",
		"catalog": map[string]any{"packageName": "etcd", "version": version}}}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := Decode[ClusterExtension](raw)
	if err != nil {
		t.Fatal(err)
	}
	return &e.Spec.Source
}

func TestExactVersion(t *testing.T) {
	for _, c := range []struct{ written, want string }{
		{"1.2.3", "1.2.3"},
		{" =  1.2.3 ", "1.2.3"},
		{"1.2.3-rc.1", "1.2.3-rc.1"},
		{"1.2.3+4", "1.2.3+4"},
		{"", ""},
		{"1.2", ""},
		{"1", ""},
		{"1.2.x", ""},
		{"1.2.*", ""},
		{"~1.2.3", ""},
		{"^1.2.3", ""},
		{">=1.2.3", ""},
		{"!=1.2.3", ""},
		{"==1.2.3", ""},
		{"=v1.2.3", ""}, // exact for OLM v1, but written as no version of a catalog is
		{"1.2.3 || 1.2.4", ""},
		{"1.2.3, <2.0.0", ""},
		{"1.2.3 - 1.2.5", ""},
		{"01.2.3", ""},
		{"1.2.3\u00a0", "1.2.3"}, // the API server refuses it
	} {
		if got := extensionWith(t, c.written).ExactVersion(); got != c.want {
			t.Errorf("%q pins %q, want %q", c.written, got, c.want)
		}
	}
}

// FuzzExactVersion compares with the library that OLM v1 reads ranges with: what counts as one exact version here, it
// must not take for another version (threat O61).
func FuzzExactVersion(f *testing.F) {
	for _, pair := range [][2]string{
		{"1.2.3", "1.2.4"}, {"=1.2.3", "1.2.3-rc.1"}, {"1.2.3-rc.1", "1.2.3-rc.2"}, {"1.2.3+1", "1.2.3+2"},
		{"0.0.0", "0.0.0-0"},
		{"1.2.3-x", "1.2.9"}, {"= 1.2.3-x.y", "1.2.3"}, {"1.2.3-0", "1.2.3-1"}, {"1.2.3+x", "1.2.3"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, written, candidate string) {
		exact := extensionWith(t, written).ExactVersion()
		version, noVersion := mmsemver.StrictNewVersion(candidate)
		allows, noRange := mmsemver.NewConstraint(written)
		if exact == "" || noVersion != nil || noRange != nil {
			return // it is not taken for exact, or OLM v1 resolves nothing
		}
		if allows.Check(version) && !SameVersion(exact, version.String()) {
			t.Errorf("%q counts as the exact version %q, and OLM v1 takes %q", written, exact, version)
		}
	})
}

// TestExtensionSource reads what rules judge of objects that are not as expected.
func TestExtensionSource(t *testing.T) {
	decode := func(raw string) *ExtensionSource {
		e, err := Decode[ClusterExtension]([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return &e.Spec.Source
	}
	other := decode(`{"spec":{"source":{"sourceType":"Bundle","catalog":{"packageName":"etcd","version":"1.2.3"}}}}`)
	if got := other.Package(); got != "" {
		t.Errorf("a source of another type has package %q", got)
	}
	selected := decode(`{"spec":{"source":{"sourceType":"Catalog","catalog":{"packageName":"etcd","selector":{"matchLabels":{"a":"b"}}}}}}`)
	plain := decode(`{"spec":{"source":{"sourceType":"Catalog","catalog":{"packageName":"etcd"}}}}`)
	if selected.Digest == plain.Digest {
		t.Error("a change of the selector does not show")
	}
	if _, err := Decode[ClusterExtension]([]byte(`{"spec":{"source":{"catalog":{"version":1}}}}`)); err == nil {
		t.Error("a version that is a number is read")
	}
}
