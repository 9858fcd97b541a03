package catalog

import (
	"testing"

	"github.com/opgate/opgate/olm"
)

func TestDeprecations(t *testing.T) {
	etcd := &Package{Name: "etcd", DefaultChannel: "stable", Channels: []Channel{
		{Name: "stable", Entries: []Entry{{Name: "etcd.v3"}, {Name: "etcd.v2", Deprecation: "v2 is old"}}},
		{Name: "old", Deprecation: "old is old", Entries: []Entry{{Name: "etcd.v2", Deprecation: "v2 is old"},
			{Name: "etcd.v1"}}},
		{Name: "ancient", Deprecation: "ancient is old", Entries: []Entry{{Name: "etcd.v1"}}},
	}}
	everything := &Package{Name: "etcd", Deprecation: "etcd is old", Channels: etcd.Channels}
	for _, c := range []struct {
		name     string
		pkg      *Package
		csv      string
		channels []string
		want     olm.Deprecations
		unknown  bool
	}{
		{name: "nothing", pkg: etcd, csv: "etcd.v3", channels: []string{"stable"}},
		{name: "the version", pkg: etcd, csv: "etcd.v2", channels: []string{"stable"},
			want: olm.Deprecations{Version: "v2 is old"}},
		{name: "the channel", pkg: etcd, csv: "etcd.v1", channels: []string{"old"},
			want: olm.Deprecations{Channel: "old is old"}},
		{name: "all at once", pkg: everything, csv: "etcd.v2", channels: []string{"old"},
			want: olm.Deprecations{Package: "etcd is old", Channel: "old is old", Version: "v2 is old"}},
		{name: "one of two channels", pkg: etcd, csv: "etcd.v2", channels: []string{"stable", "old"},
			want: olm.Deprecations{Channel: "old is old", Version: "v2 is old"}},
		{name: "the default channel", pkg: etcd, csv: "etcd.v2", channels: []string{""},
			want: olm.Deprecations{Version: "v2 is old"}},
		{name: "no channel, one that has it is recommended", pkg: etcd, csv: "etcd.v2",
			want: olm.Deprecations{Version: "v2 is old"}},
		{name: "no channel, none that has it is recommended", pkg: etcd, csv: "etcd.v1",
			want: olm.Deprecations{Channel: "old is old"}},
		{name: "no channel has it", pkg: etcd, csv: "etcd.v4", unknown: true},
		{name: "the channel does not have it yet", pkg: etcd, csv: "etcd.v4", channels: []string{"stable"},
			unknown: true},
		{name: "one of two channels does not have it", pkg: etcd, csv: "etcd.v1", channels: []string{"old", "stable"},
			unknown: true},
		{name: "no such channel", pkg: etcd, csv: "etcd.v3", channels: []string{"beta"}, unknown: true},
		{name: "no default channel", pkg: everything, csv: "etcd.v3", channels: []string{""}, unknown: true},
		{name: "no package", csv: "etcd.v3", channels: []string{"stable"}, unknown: true},
	} {
		got, known := c.pkg.Deprecations(c.csv, c.channels)
		if known == c.unknown || known && got != c.want {
			t.Errorf("%s: %+v, known is %v", c.name, got, known)
		}
	}
}
