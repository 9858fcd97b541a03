package escape

import (
	"fmt"
	"testing"
	"time"

	"github.com/opgate/opgate/snapshot"
)

// TestCandidate checks which ClusterServiceVersions admission may not have reviewed.
func TestCandidate(t *testing.T) {
	renewed := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	ready := renewed.Add(10 * time.Minute)
	for _, c := range []struct {
		name      string
		renewed   time.Time
		created   time.Time
		namespace string
		copied    string
		want      bool
	}{
		{name: "long before the outage", renewed: renewed, created: renewed.Add(-time.Hour)},
		{name: "in the second of the last renewal", renewed: renewed.Add(900 * time.Millisecond), created: renewed,
			want: true},
		{name: "during the outage", renewed: renewed, created: renewed.Add(time.Minute), want: true},
		{name: "before the API server calls this replica", renewed: renewed, created: ready.Add(settling / 2),
			want: true},
		{name: "while this replica answers", renewed: renewed, created: ready.Add(2 * settling)},
		{name: "another replica renewed it until now", renewed: ready.Add(time.Hour), created: ready.Add(time.Hour)},
		{name: "no replica ever led", created: renewed},
		{name: "a copy", renewed: renewed, created: renewed.Add(time.Minute), copied: "elsewhere"},
		{name: "in a namespace that is not judged", renewed: renewed, created: renewed.Add(time.Minute),
			namespace: "opgate-system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Controller{ExcludedNamespaces: []string{"opgate-system"},
				started: func() time.Time { return ready }, outage: func() time.Time { return c.renewed }}
			raw := fmt.Sprintf(`{"metadata":{"name":"etcd","namespace":%q,"creationTimestamp":%q,"labels":{"olm.copiedFrom":%q}}}`,
				c.namespace, c.created.Format(time.RFC3339), c.copied)
			var reader snapshot.Reader
			if got := r.candidate(reader.Read(snapshot.ClusterServiceVersions, []byte(raw))); got != c.want {
				t.Errorf("candidate is %t", got)
			}
		})
	}
}
