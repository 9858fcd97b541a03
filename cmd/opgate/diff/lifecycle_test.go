package diff

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// today is the time of commands in tests.
var today = time.Date(2027, 3, 31, 23, 59, 0, 0, time.UTC)

// TestLifecycleNotes: the last day belongs to a phase, and what cannot be read is said.
func TestLifecycleNotes(t *testing.T) {
	const tail = `,"platformCompatibility":[{"name":"openshift","versions":["4.20","5.0"]}]`
	phases := func(list string) string {
		return `{"schema":"` + lifecycleSchema + `","package":"etcd","versions":[{"name":"0.8","phases":[]},` +
			`{"name":"0.9","phases":[` + list + `]` + tail + `}]}`
	}
	const before = "life cycle in the catalog: etcd 0.9 "
	const platforms = "etcd 0.9 is for openshift 4.20, 5.0"
	const unread = "the life cycle of package etcd in the catalog cannot be read: "
	for name, c := range map[string]struct {
		// phases are those of etcd 0.9; objects are instead of an object with them.
		phases  string
		objects []string
		// version is 0.9.4 by default.
		version string
		want    []string
	}{
		"no object": {objects: []string{}},
		"the last day": {phases: `{"name":"Maintenance","startDate":"2026-01-01","endDate":"2027-03-31"}`,
			want: []string{before + `is in phase "Maintenance" until 2027-03-31`, platforms}},
		"the day after": {phases: `{"name":"Full","endDate":"2026-01-01"},` +
			`{"name":"Maintenance","startDate":"2026-01-02","endDate":"2027-03-30"}`,
			want: []string{before + `has reached its end: the last phase, "Maintenance", ended on 2027-03-30`,
				platforms}},
		"between two phases": {phases: `{"name":"Full","endDate":"2026-01-01"},{"name":"EUS","startDate":"2027-04-01"}`,
			want: []string{before + `is in no phase before 2027-04-01, when "EUS" begins`, platforms}},
		"two at once, one without an end": {phases: `{"name":"A","endDate":null},` +
			`{"name":"B","startDate":"2027-03-31","endDate":"2028-01-01"}`,
			want: []string{before + `is in phase "A", which has no end, phase "B" until 2028-01-01`, platforms}},
		"no phase": {want: []string{before + "has no phase", platforms}},
		"another line": {version: "0.90.0",
			want: []string{"the life cycle of package etcd in the catalog has no version 0.90"}},
		"a date of another form": {phases: `{"name":"A","endDate":"31.03.2027"}`,
			want: []string{unread + `"31.03.2027" is not a date such as 2027-03-31`}},
		"no list": {objects: []string{`{"versions":{}}`}, want: []string{unread}},
		"too large": {objects: []string{strings.Repeat(" ", maxLifecycle+1)},
			want: []string{unread + "it has more than the 1048576 bytes that are read"}},
		"no version": {version: "none", want: []string{unread + `version "none" is not a semantic version`}},
		"two": {objects: []string{`{}`, `{}`},
			want: []string{"the catalog has several life cycles of package etcd"}},
	} {
		t.Run(name, func(t *testing.T) {
			written := c.objects
			if written == nil {
				written = []string{phases(c.phases)}
			}
			var objects [][]byte
			for _, o := range written {
				objects = append(objects, []byte(o))
			}
			got := lifecycleNotes(objects, "etcd", cmp.Or(c.version, "0.9.4"), today)
			if len(got) == 1 && c.want[0] == unread {
				got[0] = got[0][:min(len(got[0]), len(unread))] // the rest is the library's
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCatalogReleases compares two releases of one version, of a package that the catalog deprecates.
func TestCatalogReleases(t *testing.T) {
	bundle := func(release string) string {
		return `{"schema":"olm.bundle","name":"etcd-v0.9.4-` + release + `","package":"etcd","image":"quay.io/e/1",` +
			`"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4","release":"` +
			release + `"}}]}`
	}
	catalog := `{"schema":"olm.package","name":"etcd"}` + bundle("1") + bundle("2") +
		`{"schema":"olm.deprecations","package":"etcd","entries":[{"reference":{"schema":"olm.package"},` +
		`"message":"use vault"}]}` +
		`{"schema":"` + lifecycleSchema + `","package":"etcd","versions":[{"name":"0.9","phases":[` +
		`{"name":"Full support","startDate":"2026-01-01","endDate":"2027-03-30"}]}]}` +
		`{"schema":"` + lifecycleSchema + `","package":"vault","versions":[]}`
	path := filepath.Join(t.TempDir(), "catalog.json")
	if err := os.WriteFile(path, []byte(catalog), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, _ := run(t, "--catalog", path, "--from", "etcd-v0.9.4-1", "--to", "etcd-v0.9.4-2")
	for _, line := range []string{"package etcd, version 0.9.4 release 2, before 0.9.4 release 1",
		"the catalog deprecates package etcd: use vault",
		`life cycle in the catalog: etcd 0.9 has reached its end: the last phase, "Full support", ended on 2027-03-30`} {
		if !strings.Contains(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	got, _ := compared(t, "--catalog", path, "--from", "etcd-v0.9.4-1", "--to", "etcd-v0.9.4-2")
	if got.Release != "2" || got.FromRelease != "1" {
		t.Errorf("in JSON: %+v", got)
	}
}
