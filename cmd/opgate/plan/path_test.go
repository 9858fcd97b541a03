package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/operator-registry/alpha/model"
)

// fbc returns a file-based catalog with package etcd. Channels are their entries in flow style, by name; the first one is
// the default. Bundles v1 to v9 have versions 1.0.0 to 9.0.0, and no contents.
func fbc(channels ...string) string {
	var b strings.Builder
	name, _, _ := strings.Cut(channels[0], ": ")
	fmt.Fprintf(&b, "{schema: olm.package, name: etcd, defaultChannel: %s}\n", name)
	named := map[string]bool{}
	for _, c := range channels {
		name, entries, _ := strings.Cut(c, ": ")
		fmt.Fprintf(&b, "---\n{schema: olm.channel, package: etcd, name: %s, entries: [%s]}\n", name, entries)
		for i := range 10 {
			if v := fmt.Sprintf("v%d", i); strings.Contains(entries, "name: "+v) && !named[v] {
				named[v] = true
				fmt.Fprintf(&b, "---\n{schema: olm.bundle, package: etcd, name: %s, image: quay.io/example/etcd:%s, "+
					"properties: [{type: olm.package, value: {packageName: etcd, version: %d.0.0}}]}\n", v, v, i)
			}
		}
	}
	return b.String()
}

// write writes a catalog, and returns its directory.
func writeCatalog(t *testing.T, content string) string {
	t.Helper()
	return filepath.Dir(file(t, "catalog.yaml", content))
}

func TestPath(t *testing.T) {
	const chained = "stable: {name: v3, replaces: v2}, {name: v2, replaces: v1}, {name: v1}"
	for name, c := range map[string]struct {
		channels      []string
		from, channel string
		starting      string
		// want are the steps, as "CSV edge", and then why the path ends.
		want string
	}{
		"one after the other": {
			channels: []string{chained}, from: "v1", channel: "stable",
			want: "v2 replaces; v3 replaces; v3 is the newest of channel stable",
		},
		"a skip passes by": {
			channels: []string{"stable: {name: v3, replaces: v2, skips: [v1]}, {name: v2, replaces: v1}, {name: v1}"},
			from:     "v1", channel: "stable",
			want: "v3 skips; v3 is the newest of channel stable",
		},
		"a skipRange passes by": {
			channels: []string{`stable: {name: v4, replaces: v3, skipRange: ">=1.0.0 <3.0.0"}, {name: v3, replaces: v2}, {name: v2, replaces: v1}, {name: v1}`},
			from:     "v1", channel: "stable",
			want: "v4 skipRange; v4 is the newest of channel stable",
		},
		"replaces before skipRange": {
			channels: []string{`stable: {name: v3, replaces: v2, skipRange: "<2.0.0"}, {name: v2, replaces: v1, skipRange: "<2.0.0"}, {name: v1}`},
			from:     "v1", channel: "stable",
			want: "v3 skipRange; v3 is the newest of channel stable",
		},
		"what follows is skipped": {
			channels: []string{"stable: {name: v3, replaces: v0, skips: [v2]}, {name: v2, replaces: v1}, {name: v0}"},
			from:     "v1", channel: "stable",
			want: "v1 cannot leave channel stable: v2 follows it, and is skipped by v3, which does not follow it",
		},
		"what is skipped is installed": {
			channels: []string{"stable: {name: v3, replaces: v1, skips: [v2]}, {name: v2, replaces: v1}, {name: v1}"},
			from:     "v2", channel: "stable",
			want: "v3 skips; v3 is the newest of channel stable",
		},
		"another channel": {
			channels: []string{"stable: {name: v2, replaces: v1}, {name: v1}", "fast: {name: v4, replaces: v3}, {name: v3}"},
			from:     "v3", channel: "stable",
			want: "v3 cannot leave: no version of channel stable replaces or skips it, or has a skipRange with its version",
		},
		"a channel that does not exist": {
			channels: []string{chained}, from: "v1", channel: "slow",
			want: "package etcd has no channel slow: it has stable",
		},
		"all channels, the default one first": {
			channels: []string{"stable: {name: v2, replaces: v1}, {name: v1}", "alpha: {name: v4, replaces: v2}, {name: v2}"},
			from:     "v1",
			want:     "v2 replaces; v4 replaces; v4 is the newest of channel alpha",
		},
		"a first installation": {
			channels: []string{chained}, channel: "stable",
			want: "v3 install; v3 is the newest of channel stable",
		},
		"a first installation that begins with a version": {
			channels: []string{chained}, channel: "stable", starting: "v1",
			want: "v1 install; v2 replaces; v3 replaces; v3 is the newest of channel stable",
		},
		"a skipRange with itself": {
			channels: []string{`stable: {name: v2, replaces: v1, skipRange: "<=2.0.0"}, {name: v1}`},
			from:     "v2", channel: "stable",
			want: "v2 is the newest of channel stable",
		},
		"a version that the catalog does not have": {
			channels: []string{`stable: {name: v2, skipRange: "<2.0.0"}`},
			from:     "v1", channel: "stable",
			want: "v1 cannot leave: no version of channel stable replaces or skips it, or has a skipRange with its version, which is not known",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := readFiles(t.Context(), writeCatalog(t, fbc(c.channels...)), "etcd", nil)
			if err != nil {
				t.Fatal(err)
			}
			hops, end := o.path(o.stated(c.from), c.channel, c.starting)
			var got []string
			for _, h := range hops {
				got = append(got, h.CSV+" "+h.Edge)
			}
			if got := strings.Join(append(slices.Clip(got), end), "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestOrder: what opm would not serve of a directory, an older catalog may.
func TestOrder(t *testing.T) {
	for want, bundles := range map[string]map[string]*model.Bundle{
		"multiple channel heads found in graph: v2, v3": {"v3": {Name: "v3", Replaces: "v1"}, "v2": {Name: "v2", Replaces: "v1"}, "v1": {Name: "v1"}},
		"what v3 replaces goes round": {"v3": {Name: "v3", Replaces: "v2"}, "v2": {Name: "v2", Replaces: "v1"},
			"v1": {Name: "v1", Replaces: "v2"}},
	} {
		_, got := order(&model.Channel{Name: "stable", Bundles: bundles})
		if want := "OLM does not order channel stable, and makes no plan in the namespace: " + want; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
