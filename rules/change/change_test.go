package change

import (
	"encoding/json"
	"testing"
)

// csvManifest returns a ClusterServiceVersion with cluster-wide rules.
func csvManifest(name, rules string) json.RawMessage {
	return json.RawMessage(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"` + name + `"},
		"spec":{"version":"1.0.0","displayName":"d","install":{"strategy":"deployment","spec":{"deployments":[],"clusterPermissions":[
		{"serviceAccountName":"operator","rules":` + rules + `}]}}}}`)
}

func TestPermissions(t *testing.T) {
	for _, test := range []struct {
		name, before, after string
		want                []string
	}{
		{
			name:   "a wildcard verb on secrets",
			before: `[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]`,
			after:  `[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]},{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]`,
			want:   []string{"cluster-wide: * on secrets"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			from := ReadContents("a.v1", []json.RawMessage{csvManifest("a.v1", test.before)})
			to := ReadContents("a.v2", []json.RawMessage{csvManifest("a.v2", test.after)})
			set := Compare(from, to)
			if set.Fault != "" || set.Digest() == "" {
				t.Fatalf("fault %q, digest %q", set.Fault, set.Digest())
			}
			var got []string
			for _, d := range set.Differences {
				got = append(got, d.Text)
			}
			if len(got) != len(test.want) || got[0] != test.want[0] {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
