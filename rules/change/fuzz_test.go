package change

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzCompare reads and compares any two ConfigMaps: nothing panics, texts are bounded, and neither the order of
// manifests and keys nor another attempt changes the result.
func FuzzCompare(f *testing.F) {
	f.Add(configMap(f, "etcd-0.9.2", false), configMap(f, "etcd-0.9.4", false))
	f.Add(configMap(f, "etcd-0.9.4", true), configMap(f, "etcd-0.9.2", true))
	f.Add([]byte(`{}`), []byte(
		`{"data":{"a":"kind: ClusterRole\napiVersion: rbac.authorization.k8s.io/v1\nrules: [{verbs: ['*']}]"}}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		from, errFrom := Unpack(before)
		to, errTo := Unpack(after)
		if errFrom != nil || errTo != nil {
			return
		}
		set := Compare(ReadContents(nameOf(from), "", from), ReadContents(nameOf(to), "", to))
		for _, d := range set.Differences {
			if len(d.Text) > maxText || strings.Contains(d.Text, "\n") {
				t.Errorf("text %q", d.Text)
			}
		}
		if set.Fault != "" && set.Digest() != "" {
			t.Errorf("fault %q with digest %s", set.Fault, set.Digest())
		}
		other := Compare(ReadContents(nameOf(from), "", rearranged(t, from)),
			ReadContents(nameOf(to), "", rearranged(t, to)))
		if diff := cmp.Diff(set, other); diff != "" && !strings.Contains(set.Fault, "manifest ") {
			t.Errorf("another order gives another set:\n%s", diff)
		}
		set.Summary(Reviewable)
	})
}

// nameOf returns the name of the first ClusterServiceVersion.
func nameOf(manifests []json.RawMessage) string {
	for _, raw := range manifests {
		var h header
		if json.Unmarshal(raw, &h) == nil && h.Kind == "ClusterServiceVersion" {
			return h.Metadata.Name
		}
	}
	return ""
}

// rearranged returns the manifests in reverse order, with sorted keys.
func rearranged(t testing.TB, manifests []json.RawMessage) []json.RawMessage {
	t.Helper()
	other := make([]json.RawMessage, 0, len(manifests))
	for _, raw := range slices.Backward(manifests) {
		other = append(other, canonical(raw))
	}
	return other
}

// TestOrderOfRules reverses all rules and their lists.
func TestOrderOfRules(t *testing.T) {
	digest := func(reverse bool) string {
		steps := inline(t, "etcd-0.9.4", "shop", properties094, "")
		for i := range steps {
			if reverse {
				steps[i] = reversedRules(t, steps[i])
			}
		}
		return compare(t, ReadContents("", "", nil), read(t, "etcdoperator.v0.9.4", steps)).Digest()
	}
	if a, b := digest(false), digest(true); a != b {
		t.Errorf("digests %s and %s", a, b)
	}
}

// reversedRules reverses each list in and below a field rules, clusterPermissions or permissions.
func reversedRules(t testing.TB, raw json.RawMessage) json.RawMessage {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	if object["kind"] == "CustomResourceDefinition" {
		return raw
	}
	var walk func(value any, in bool)
	walk = func(value any, in bool) {
		switch v := value.(type) {
		case map[string]any:
			for key, field := range v {
				if key == "webhookdefinitions" {
					continue // whose rules are no rights
				}
				walk(field, in || key == "rules" || key == "clusterPermissions" || key == "permissions")
			}
		case []any:
			if in {
				slices.Reverse(v)
			}
			for _, element := range v {
				walk(element, in)
			}
		}
	}
	walk(object, false)
	return encode(t, object)
}
