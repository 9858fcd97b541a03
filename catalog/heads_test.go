package catalog

import (
	"encoding/json"
	"fmt"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeHeads(t *testing.T) {
	manifest := func(status, labels string) string {
		return `{"metadata":{"labels":{` + labels +
			`}},"status":{"packageName":"etcd","catalogSource":"community","catalogSourceNamespace":"olm"` + status +
			`}}`
	}
	long := strings.Repeat("a", MaxName+1)
	for name, test := range map[string]struct {
		raw, want string
		heads     PackageHeads
	}{
		"heads, platform and architectures": {
			manifest(`,"channels":[{"name":"alpha","currentCSV":"etcd.v2","currentCSVDesc":{"version":"2.0.0","minKubeVersion":"1.20.0",
			"annotations":{"olm.properties":"[{\"type\":\"olm.maxOpenShiftVersion\",\"value\":\"4.18\"}]"},"relatedImages":["x"]}}]`,
				`"operatorframework.io/arch.s390x":"supported","operatorframework.io/arch.amd64":"supported","operatorframework.io/arch.arm":"no"`), "etcd",
			PackageHeads{Channels: map[string]Head{"alpha": {Name: "etcd.v2", Version: "2.0.0", MinKube: "1.20.0",
				MaxOpenShift: "4.18"}},
				Architectures: []string{"amd64", "s390x"}},
		},
		"a version that is a number": {manifest(
			`,"channels":[{"name":"a","currentCSVDesc":{"annotations":{"olm.properties":"[{\"type\":\"olm.maxOpenShiftVersion\",\"value\":4.9}]"}}}]`, ""),
			"etcd", PackageHeads{Channels: map[string]Head{"a": {MaxOpenShift: "4.9"}}}},
		"properties that are no JSON": {manifest(
			`,"channels":[{"name":"a","currentCSVDesc":{"annotations":{"olm.properties":"["}}}]`, ""),
			"etcd", PackageHeads{Channels: map[string]Head{"a": {}}}},
		"names that are too long": {manifest(`,"channels":[{"name":"`+long+`"},{"name":"a","currentCSV":"`+long+
			`"},{"name":"b"}]`, ""),
			"etcd", PackageHeads{Channels: map[string]Head{"b": {}}}},
		"another catalog":          {`{"status":{"packageName":"etcd","catalogSource":"mine","catalogSourceNamespace":"olm"}}`, "", PackageHeads{}},
		"a status of a wrong type": {`{"status":"x"}`, "", PackageHeads{}},
		"no name": {`{"status":{"catalogSource":"community","catalogSourceNamespace":"olm"}}`, "",
			PackageHeads{}},
	} {
		got, heads := DecodeHeads([]byte(test.raw), community)
		if got != test.want {
			t.Errorf("%s: package %q", name, got)
		}
		if diff := cmp.Diff(test.heads, heads); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// channels are heads of package etcd, and of further packages that are the same everywhere.
func channels(heads map[string]Head) Heads {
	return Heads{"etcd": {Channels: heads},
		"redis": {Channels: map[string]Head{"stable": {Name: "redis.v1", Version: "1.0.0"}}}}
}

func alpha(version string) Heads {
	return channels(map[string]Head{"alpha": {Name: "etcd.v" + version, Version: version}})
}

// TestCompareOpenShift5: a head for 4.23 at most is no foreign one on 5.0, which is the same release; one for 4.22 is.
func TestCompareOpenShift5(t *testing.T) {
	limited := func(name, most string) Heads {
		return channels(map[string]Head{"alpha": {Name: name, Version: "1.0.0", MaxOpenShift: most}})
	}
	for _, test := range []struct {
		openShift, most string
		foreign         int
	}{{"5.0.3", "4.23", 0}, {"4.23.1", "5.0", 0}, {"5.0.3", "4.22", 1}, {"5.1.0", "4.23", 1}, {"5.1.0", "5.0", 1}} {
		poll := Compare(alpha("0.9.0"), limited("etcd.v1", test.most), Platform{OpenShift: test.openShift})
		if poll.Foreign != test.foreign {
			t.Errorf("up to %s on %s: %d foreign, want %d", test.most, test.openShift, poll.Foreign, test.foreign)
		}
	}
}

func TestCompare(t *testing.T) {
	on := Platform{Kubernetes: "1.33.2+k3s1", OpenShift: "4.18.3"}
	platform := func(h Head) Heads {
		h.Name, h.Version = "etcd.v0.9.4", "0.9.4"
		return channels(map[string]Head{"alpha": h})
	}
	withArchitectures := func(names ...string) Heads {
		return Heads{"etcd": {Channels: map[string]Head{"alpha": {Name: "etcd.v1"}}, Architectures: names}}
	}
	for _, test := range []struct {
		name        string
		before, now Heads
		want        Poll
	}{
		{name: "nothing changes", before: alpha("0.9.4"), now: alpha("0.9.4"), want: Poll{Packages: 2}},
		{name: "a newer head", before: alpha("0.9.9"), now: alpha("0.9.10"),
			want: Poll{Packages: 2, Changed: 1, ChangedExamples: []string{"etcd alpha: 0.9.9 -> 0.9.10"}}},
		{name: "an older head", before: alpha("0.9.10"), now: alpha("0.9.9"),
			want: Poll{Packages: 2, Changed: 1, Backwards: 1, ChangedExamples: []string{"etcd alpha: 0.9.10 -> 0.9.9"},
				BackwardsExamples: []string{"etcd alpha: 0.9.10 -> 0.9.9"}}},
		{name: "a pre-release of the same version is older", before: alpha("1.0.0"), now: alpha("1.0.0-rc1"),
			want: Poll{Packages: 2, Changed: 1, Backwards: 1,
				ChangedExamples:   []string{"etcd alpha: 1.0.0 -> 1.0.0-rc1"},
				BackwardsExamples: []string{"etcd alpha: 1.0.0 -> 1.0.0-rc1"}}},
		{name: "an older release of the same version", before: alpha("1.0.0+10"), now: alpha("1.0.0+9"),
			want: Poll{Packages: 2, Changed: 1, Backwards: 1,
				ChangedExamples:   []string{"etcd alpha: 1.0.0+10 -> 1.0.0+9"},
				BackwardsExamples: []string{"etcd alpha: 1.0.0+10 -> 1.0.0+9"}}},
		{name: "versions that are not semantic have no order", before: alpha("z"), now: alpha("a"),
			want: Poll{Packages: 2, Changed: 1, ChangedExamples: []string{"etcd alpha: z -> a"}}},
		{name: "packages come and go", before: Heads{"a": {}, "b": {}}, now: Heads{"b": {}, "c": {}},
			want: Poll{Packages: 2, Changed: 2, ChangedExamples: []string{"a is gone", "c is new"}}},
		{name: "a channel goes", before: channels(map[string]Head{"alpha": {Version: "1.0.0"}, "beta": {}}),
			now:  channels(map[string]Head{"alpha": {Version: "1.0.0"}}),
			want: Poll{Packages: 2, Changed: 1, ChangedExamples: []string{"etcd beta is gone"}}},
		{name: "a newer Kubernetes", before: platform(Head{MinKube: "1.33.0"}), now: platform(Head{MinKube: "1.34"}),
			want: Poll{Packages: 2, Changed: 1, Foreign: 1, ChangedExamples: []string{"etcd alpha: 0.9.4 -> 0.9.4"},
				ForeignExamples: []string{"etcd alpha: 0.9.4 -> 0.9.4, which needs Kubernetes 1.34"}}},
		{name: "an older OpenShift", before: platform(Head{MaxOpenShift: "4.18"}),
			now: platform(Head{MaxOpenShift: "4.17"}),
			want: Poll{Packages: 2, Changed: 1, Foreign: 1, ChangedExamples: []string{"etcd alpha: 0.9.4 -> 0.9.4"},
				ForeignExamples: []string{"etcd alpha: 0.9.4 -> 0.9.4, which runs on OpenShift up to 4.17"}}},
		{name: "what was foreign before is no news", before: platform(Head{MaxOpenShift: "4.16"}),
			now:  platform(Head{MaxOpenShift: "4.17"}),
			want: Poll{Packages: 2, Changed: 1, ChangedExamples: []string{"etcd alpha: 0.9.4 -> 0.9.4"}}},
		{name: "an architecture goes", before: withArchitectures("amd64", "arm64"), now: withArchitectures("arm64"),
			want: Poll{Packages: 1, Changed: 1, Foreign: 1, ChangedExamples: []string{"etcd has other architectures"},
				ForeignExamples: []string{"etcd is no longer for amd64"}}},
		{name: "an empty catalog", before: alpha("1.0.0"), now: Heads{},
			want: Poll{Packages: 2, Changed: 2, ChangedExamples: []string{"etcd is gone", "redis is gone"}}},
	} {
		if diff := cmp.Diff(test.want, Compare(test.before, test.now, on)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestCompareOnUnknownVersions(t *testing.T) {
	now := channels(map[string]Head{"alpha": {MinKube: "99.0.0", MaxOpenShift: "3.0"}})
	if p := Compare(alpha("1.0.0"), now, Platform{}); p.Foreign != 0 {
		t.Errorf("without versions of the cluster nothing is foreign: %+v", p)
	}
}

func TestJump(t *testing.T) {
	small := Poll{Image: "sha256:b", From: "sha256:a", Packages: 400, Changed: 3}
	back := Poll{Image: "sha256:c", From: "sha256:b", Packages: 400, Changed: 7, Backwards: 2,
		BackwardsExamples: []string{"etcd alpha: 0.9.4 -> 0.9.2"}}
	large := Poll{Image: "sha256:d", Packages: 400, Changed: 51, ChangedExamples: []string{"a is new", "b is gone"}}
	history := func(polls ...Poll) *History {
		return &History{Polls: append([]Poll{{Image: "sha256:a", Packages: 400}}, polls...)}
	}
	for _, test := range []struct {
		name     string
		history  *History
		max      int
		accepted []string
		want     string
	}{
		{name: "no history"},
		{name: "the first image", history: history(), max: 1},
		{name: "a usual image", history: history(small), max: 50},
		{name: "a channel moves backwards", history: history(small, back), max: 50,
			want: "it moved 2 channels backwards (etcd alpha: 0.9.4 -> 0.9.2; and 1 more)"},
		{name: "a jump stays one when a usual image follows", history: history(back, small), max: 50,
			want: "it moved 2 channels backwards (etcd alpha: 0.9.4 -> 0.9.2; and 1 more)"},
		{name: "the image that jumped is accepted", history: history(back), max: 50, accepted: []string{"sha256:c"}},
		{name: "a later image is accepted", history: history(back, small), max: 50, accepted: []string{"sha256:b"}},
		{name: "an earlier image is accepted", history: history(small, back), max: 50, accepted: []string{"sha256:b"},
			want: "it moved 2 channels backwards (etcd alpha: 0.9.4 -> 0.9.2; and 1 more)"},
		{name: "a jump after the accepted one", history: history(back, large), max: 50, accepted: []string{"sha256:c"},
			want: "it changed 51 of 400 packages, more than 50 (a is new; b is gone; and 49 more)"},
		{name: "as many as allowed", history: history(large), max: 51},
	} {
		if got := test.history.Jump(test.max, test.accepted); got != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

// However many images follow, a jump is not forgotten.
func TestHistoryForgetsNoJump(t *testing.T) {
	var h *History
	h = h.With(Poll{Image: "first", Packages: 3}).With(Poll{Image: "jump", Backwards: 1,
		BackwardsExamples: []string{"a"}}).With(Poll{Image: "large", Changed: 60})
	for i := range 4 * maxPolls {
		h = h.With(Poll{Image: fmt.Sprint(i), Changed: 1})
	}
	if len(h.Polls) > maxPolls {
		t.Errorf("%d polls", len(h.Polls))
	}
	if h.Jump(50, nil) == "" || !strings.Contains(h.Jump(100, nil), "backwards") {
		t.Errorf("forgotten: %+v", h.Polls[0])
	}
	if h.Jump(50, []string{h.Newest()}) != "" {
		t.Error("the newest image is accepted")
	}
}

func TestRecord(t *testing.T) {
	on := Platform{Kubernetes: "1.33.0"}
	next, err := (*Record)(nil).Next(community, "sha256:a", Offered{Heads: alpha("0.9.4")}, on)
	if err != nil || !next.Changed {
		t.Fatal(next, err)
	}
	first, err := DecodeRecord(next.Text)
	if err != nil || first.Newest() != "sha256:a" || first.Jump(1, nil) != "" || first.Catalog() != community {
		t.Fatalf("%+v %v", first, err)
	}
	if next, err := first.Next(community, "sha256:a", Offered{Heads: alpha("0.9.4")}, on); next.Changed || err != nil {
		t.Errorf("the same image with the same packages changes the record: %v", err)
	}
	// The package server lagged: the same image turns out to offer something else.
	late, err := first.Next(community, "sha256:a", Offered{Heads: alpha("0.9.2")}, on)
	if err != nil || !late.Changed || !strings.Contains(late.Text, `"backwards":1`) {
		t.Errorf("%s %v", late.Text, err)
	}
	next, err = first.Next(community, "sha256:b", Offered{Heads: alpha("0.9.2")}, on)
	if err != nil {
		t.Fatal(err)
	}
	second, err := DecodeRecord(next.Text)
	if err != nil || second.Newest() != "sha256:b" || second.Polls[1].From != "sha256:a" || second.Jump(50, nil) == "" {
		t.Errorf("%+v %v", second, err)
	}
	for _, bad := range []string{"", "{", `{"name":"a"}`, `[]`, strings.Repeat("a", maxRecord+1),
		`{"namespace":"a","name":"b","polls":[` +
			strings.TrimSuffix(strings.Repeat("{},", maxPolls+1), ",") + `]}`} {
		if _, err := DecodeRecord(bad); err == nil {
			t.Errorf("read as a record: %.40s", bad)
		}
	}
	for _, packed := range []string{"", "!", "aGVsbG8=", first.Packed[:len(first.Packed)/2]} {
		if heads, err := (&Record{Packed: packed}).Heads(); err == nil {
			t.Errorf("%q has heads %v", packed, heads)
		}
	}
}

// A record of a large catalog fits, with names as long as they are in use.
func TestRecordOfALargeCatalog(t *testing.T) {
	heads := Heads{}
	for i := range 600 {
		channels := map[string]Head{}
		for c := range 12 {
			channels[fmt.Sprintf("stable-%d.%d", i%7, c)] = Head{Name: fmt.Sprintf("operator-%d-%x.v%d.%d.0", i, i*7919,
				c, i), Version: fmt.Sprintf("%d.%d.0", c, i), MinKube: "1.25.0"}
		}
		heads[fmt.Sprintf("operator-%d-%x", i, i*7919)] = PackageHeads{Channels: channels,
			Architectures: []string{"amd64", "arm64"}}
	}
	next, err := (*Record)(nil).Next(community, "sha256:a", Offered{Heads: heads}, Platform{})
	if err != nil || len(next.Text) > maxRecord/2 {
		t.Errorf("%d bytes, %v", len(next.Text), err)
	}
}

func FuzzCompare(f *testing.F) {
	f.Add([]byte(`{"etcd":{"channels":{"alpha":{"name":"etcd.v1","version":"1.0.0"}}}}`),
		[]byte(`{"etcd":{"channels":{"alpha":{"name":"etcd.v0","version":"0.9.0"}}}}`))
	f.Add([]byte(`{"a":{}}`), []byte(`{"a":{"architectures":["amd64"]},"b":{"channels":{"x":{"minKube":"99"}}}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var before, now Heads
		if json.Unmarshal(a, &before) != nil || json.Unmarshal(b, &now) != nil {
			return
		}
		p := Compare(before, now, Platform{Kubernetes: "1.33.0", OpenShift: "4.18.0"})
		if p.Changed == 0 && (p.Backwards > 0 || p.Foreign > 0) || p.Changed > len(before)+len(now) {
			t.Errorf("%+v", p)
		}
		for _, list := range [][]string{p.ChangedExamples, p.BackwardsExamples, p.ForeignExamples} {
			if len(list) > maxExamples || slices.ContainsFunc(list,
				func(s string) bool { return len(s) > maxExample+len("…") }) {
				t.Errorf("examples are not bounded: %q", list)
			}
		}
		same := Compare(now, now, Platform{})
		if same.Changed != 0 {
			t.Errorf("nothing changed: %+v", same)
		}
	})
}

// TestSeen: a version keeps the time at which it was first offered, over images, restarts and a list in part; what is
// offered when the record of a package begins counts from then.
func TestSeen(t *testing.T) {
	at := func(days int) time.Time { return time.Date(2026, 12, 1+days, 0, 0, 0, 0, time.UTC) }
	var record *Record
	poll := func(image string, days int, names map[string][]string) (changed bool) {
		t.Helper()
		next, err := record.Next(community, image, Offered{Heads: alpha("0.9.4"), Names: names, At: at(days)}, Platform{})
		if err != nil {
			t.Fatal(err)
		}
		if next.Changed {
			if record, err = DecodeRecord(next.Text); err != nil { // as after a restart
				t.Fatal(err)
			}
		}
		return next.Changed
	}
	check := func(csv string, want time.Time) {
		t.Helper()
		if got := record.FirstSeen("etcd", csv); !got.Equal(want) {
			t.Errorf("%s was first seen at %s, want %s", csv, got, want)
		}
	}
	poll("sha256:a", 0, nil)
	check("etcd.v0.9.2", time.Time{})
	if !poll("sha256:a", 1, map[string][]string{"etcd": {"etcd.v0.9.2"}}) { // a policy asks about it
		t.Error("the same image, and a package that is not recorded: nothing is stored")
	}
	check("etcd.v0.9.2", at(1))
	if poll("sha256:a", 2, map[string][]string{"etcd": {"etcd.v0.9.2"}}) {
		t.Error("nothing is new, and the record is written")
	}
	poll("sha256:b", 3, map[string][]string{"etcd": {"etcd.v0.9.4"}})
	poll("sha256:c", 4, map[string][]string{"etcd": {"etcd.v0.9.2", "etcd.v0.9.4"}})
	check("etcd.v0.9.2", at(1))
	check("etcd.v0.9.4", at(3))
	if record.Newest() != "sha256:c" || len(record.Polls) != 3 {
		t.Errorf("polls %+v", record.Polls)
	}
	if (*History)(nil).FirstSeen("etcd", "etcd.v0.9.2") != (time.Time{}) {
		t.Error("without a record something was seen")
	}
}

// TestB3SeenIsBounded: what a catalog offers beyond the limits is not recorded, and pushes out nothing that is offered,
// nor that others ask about (threat O77).
func TestB3SeenIsBounded(t *testing.T) {
	at := time.Unix(1000, 0)
	namesOf := func(pkg string, from, versions, length int) []string {
		names := make([]string, versions)
		for i := range names {
			names[i] = fmt.Sprintf("%s.v%04d-%s", pkg, from+i, strings.Repeat("<", length))
		}
		return names
	}
	seen, left := Seen(nil).With(Offered{Names: map[string][]string{"etcd": namesOf("etcd", 0, maxSeenVersions+5, 0)}, At: at},
		maxRecord)
	if len(seen["etcd"]) != maxSeenVersions || left != nil {
		t.Fatalf("%d versions are recorded, left are %v", len(seen["etcd"]), left)
	}
	first := namesOf("etcd", 0, 1, 0)[0]
	next, _ := seen.With(Offered{Names: map[string][]string{"etcd": {first, "etcd.v9.0.0"}}, At: at.Add(time.Hour)}, 100)
	if next["etcd"][first] != 1000 || next["etcd"]["etcd.v9.0.0"] != 4600 || len(next["etcd"]) != 2 {
		t.Errorf("in a small record: %v", next["etcd"])
	}

	admin, tenant := fair.Origin{Namespace: "policies", Name: "etcd"}, fair.Origin{Namespace: "aaa", Name: "a", Created: -9}
	flood := Offered{Heads: alpha("0.9.4"), At: at,
		Names: map[string][]string{"etcd": namesOf("etcd", 0, 50, 0), "a": namesOf("a", 0, 1000, 30), "b": namesOf("b", 0, 1000, 30)},
		For:   map[string]fair.Origin{"etcd": admin, "a": tenant, "b": tenant}}
	record, err := (*Record)(nil).Next(community, "sha256:a", flood, Platform{})
	if err != nil || len(record.Text) > maxRecord || !slices.Equal(record.Left, []fair.Origin{tenant}) {
		t.Fatalf("a record of %d bytes, for which something is left out: %v, %v", len(record.Text), record.Left, err)
	}
	decoded, err := DecodeRecord(record.Text)
	if err != nil || len(decoded.Seen["etcd"]) != 50 || len(decoded.Seen["a"]) == 0 || decoded.Newest() != "sha256:a" {
		t.Errorf("%d versions of etcd, %d of a: %v", len(decoded.Seen["etcd"]), len(decoded.Seen["a"]), err)
	}
	if again, err := decoded.Next(community, "sha256:a", flood, Platform{}); again.Changed || err != nil {
		t.Errorf("a full record is written again and again: %v", err)
	}
}

// TestDecodeNames reads the versions of all channels, of the right catalog only.
func TestDecodeNames(t *testing.T) {
	raw := []byte(`{"status":{"packageName":"etcd","catalogSource":"community","catalogSourceNamespace":"olm","channels":[
		{"name":"alpha","entries":[{"name":"etcd.v2"},{"name":"etcd.v1"}]},{"name":"stable","entries":[{"name":"etcd.v1"},{"name":7}]}]}}`)
	of := olm.Catalog{Namespace: "olm", Name: "community"}
	if pkg, names := DecodeNames(raw, of); pkg != "etcd" || !slices.Equal(names, []string{"etcd.v1", "etcd.v2"}) {
		t.Errorf("%s %q", pkg, names)
	}
	for _, other := range [][]byte{[]byte("{"), []byte("{}")} {
		if pkg, names := DecodeNames(other, of); pkg != "" || names != nil {
			t.Errorf("%s: %s %q", other, pkg, names)
		}
	}
	if pkg, _ := DecodeNames(raw, olm.Catalog{Namespace: "olm", Name: "other"}); pkg != "" {
		t.Errorf("of another catalog: %s", pkg)
	}
}
