package compliance

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// TestHistory reports messages at certain seconds. Entries are compared newest first, with their seconds.
func TestHistory(t *testing.T) {
	type said struct {
		at      float64
		message string
	}
	for name, c := range map[string]struct {
		reports []said
		most    int
		want    []said
	}{
		"an upgrade of a few seconds keeps its begin, its last step and its end": {
			reports: []said{
				{0, "Compliant; runs 1"},
				{100, "NonCompliant; plan to be approved"}, {100.5, "NonCompliant; plan approved"},
				{101, "NonCompliant; installing"},
				{102, "NonCompliant; 2 is pending"}, {103, "NonCompliant; 2 is installing"},
				{103.5, "NonCompliant; 1 is being replaced"},
				{105, "NonCompliant; a Deployment is unavailable"}, {106, "Compliant; runs 2"},
			},
			want: []said{
				{106, "Compliant; runs 2"}, {105, "NonCompliant; a Deployment is unavailable"},
				{100, "NonCompliant; plan to be approved"}, {0, "Compliant; runs 1"},
			},
		},
		"what was done for the policy is kept": {
			reports: []said{
				{0, "NonCompliant; a"}, {1, "NonCompliant; the Subscription shop/etcd was created"},
				{2, "NonCompliant; b"}, {3, "Compliant; c"},
			},
			want: []said{
				{3, "Compliant; c"}, {2, "NonCompliant; b"},
				{1, "NonCompliant; the Subscription shop/etcd was created"}, {0, "NonCompliant; a"},
			},
		},
		"a step that lasts is kept": {
			reports: []said{{0, "NonCompliant; a"}, {1, "NonCompliant; b"}, {11, "NonCompliant; c"},
				{12, "NonCompliant; d"}},
			want: []said{{12, "NonCompliant; d"}, {1, "NonCompliant; b"}, {0, "NonCompliant; a"}},
		},
		"every change of compliance is kept, however short": {
			reports: []said{{0, "Compliant; a"}, {1, "NonCompliant; b"}, {2, "Compliant; a"}, {3, "Pending; c"},
				{4, "Compliant; a"}},
			want: []said{{4, "Compliant; a"}, {3, "Pending; c"}, {2, "Compliant; a"}, {1, "NonCompliant; b"},
				{0, "Compliant; a"}},
		},
		"a message that returns at once is not repeated": {
			reports: []said{{0, "NonCompliant; a"}, {1, "NonCompliant; b"}, {2, "NonCompliant; a"}},
			want:    []said{{0, "NonCompliant; a"}},
		},
		"an unchanged message keeps its time": {
			reports: []said{{0, "NonCompliant; a"}, {20, "NonCompliant; b"}, {25, "NonCompliant; b"},
				{30, "NonCompliant; b"}},
			want: []said{{20, "NonCompliant; b"}, {0, "NonCompliant; a"}},
		},
		"messages that alternate for ever do not push out the transition": {
			reports: slices.Concat([]said{{-5, "Compliant; ok"}}, slices.Collect(func(yield func(said) bool) {
				for i := range 50 {
					if !yield(said{float64(i), "NonCompliant; " + string('a'+rune(i%3))}) {
						return
					}
				}
			})),
			want: []said{{49, "NonCompliant; b"}, {0, "NonCompliant; a"}, {-5, "Compliant; ok"}},
		},
		"a clock that goes back loses no transition": {
			reports: []said{{100, "Compliant; a"}, {50, "NonCompliant; b"}, {40, "NonCompliant; c"},
				{30, "NonCompliant; d"}},
			want: []said{{30, "NonCompliant; d"}, {50, "NonCompliant; b"}, {100, "Compliant; a"}},
		},
		"a history of one entry has the newest": {
			reports: []said{{0, "NonCompliant; a"}, {1, "NonCompliant; b"}},
			most:    1,
			want:    []said{{1, "NonCompliant; b"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			most := 10
			if c.most > 0 {
				most = c.most
			}
			var history []policyv1beta2.HistoryEvent
			for _, r := range c.reports {
				before := slices.Clone(history)
				next := nextHistory(history, r.message, noon.Add(time.Duration(r.at*float64(time.Second))), most)
				if diff := cmp.Diff(before, history); diff != "" {
					t.Fatalf("the previous history was changed: %s", diff)
				}
				if next[0].Message != r.message {
					t.Fatalf("the newest entry is %q, want %q", next[0].Message, r.message)
				}
				history = next
			}
			var got []said
			for _, entry := range history {
				got = append(got, said{entry.LastTimestamp.Sub(noon.Truncate(time.Microsecond)).Seconds(),
					entry.Message})
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(said{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
