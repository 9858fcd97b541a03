package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/olm"
)

var community = olm.Catalog{Namespace: "olm", Name: "community"}

func TestDecode(t *testing.T) {
	identity := `"packageName":"etcd","catalogSource":"community","catalogSourceNamespace":"olm"`
	minimal := Package{Name: "etcd", Catalog: community}
	long := strings.Repeat("a", MaxName+1)
	tests := map[string]struct {
		json string
		want *Package
	}{
		"a whole manifest": {
			`{"metadata":{"name":"etcd","namespace":"default"},"status":{` + identity + `,"defaultChannel":"stable",
			"deprecation":{"message":"use zookeeper"},"channels":[{"name":"stable","currentCSV":"etcd.v2",
			"deprecation":{"message":"use fast"},"currentCSVDesc":{"annotations":{"operatorframework.io/suggested-namespace":"etcd-system","x":"y"},
			"installModes":[{"type":"OwnNamespace","supported":true},{"type":"AllNamespaces","supported":false}]},
			"entries":[{"name":"etcd.v2","version":"2.0.0"},{"name":"etcd.v1","version":"1.0.0","deprecation":{"message":"old"}}]}]}}`,
			&Package{Name: "etcd", Catalog: community, DefaultChannel: "stable", Deprecation: "use zookeeper",
				Channels: []Channel{{Name: "stable", Deprecation: "use fast", SuggestedNamespace: "etcd-system",
					InstallModes: map[string]bool{"OwnNamespace": true},
					Entries: []Entry{{Name: "etcd.v2", Version: "2.0.0"},
						{Name: "etcd.v1", Version: "1.0.0", Deprecation: "old"}}}}},
		},
		"the name only in metadata": {`{"metadata":{"name":"etcd"},"status":{"catalogSource":"community","catalogSourceNamespace":"olm"}}`, &minimal},
		"no install modes are not no modes": {`{"status":{` + identity +
			`,"channels":[{"name":"a","currentCSVDesc":{"installModes":[{"type":"X"}]}},{"name":"b"}]}}`,
			&Package{Name: "etcd", Catalog: community,
				Channels: []Channel{{Name: "a", InstallModes: map[string]bool{}}, {Name: "b"}}}},
		"nothing":            {`{}`, nil},
		"no catalog":         {`{"metadata":{"name":"etcd"},"status":{}}`, nil},
		"status is a string": {`{"metadata":{"name":"etcd"},"status":"x"}`, nil},
		"status is null":     {`{"metadata":null,"status":null}`, nil},
		"name is a number":   {`{"metadata":{"name":7},"status":{"packageName":7,"catalogSource":"community","catalogSourceNamespace":"olm"}}`, nil},
		"a name that is too long": {`{"status":{"packageName":"` + long +
			`","catalogSource":"community","catalogSourceNamespace":"olm"}}`, nil},
		"wrong types all over": {`{"status":{` + identity + `,"defaultChannel":{},"deprecation":"x","channels":[7,null,"x",[],{},{"name":7},
			{"name":"a","deprecation":7,"currentCSVDesc":[],"entries":{}},{"name":"b","currentCSVDesc":{"annotations":7,"installModes":"x"},
			"entries":[7,{},{"name":[]},{"name":"e","version":7,"deprecation":{"message":7}}]}]}}`,
			&Package{Name: "etcd", Catalog: community,
				Channels: []Channel{{Name: "a"}, {Name: "b", Entries: []Entry{{Name: "e", Deprecation: noMessage}}}}}},
		"channels is an object": {`{"status":{` + identity + `,"channels":{"a":{}}}}`, &minimal},
		"a channel without a usable name": {`{"status":{` + identity + `,"channels":[{"name":"` + long + `"}]}}`,
			&minimal},
		"a message that is too long is cut between characters": {`{"status":{` + identity +
			`,"deprecation":{"message":"` + strings.Repeat("é", maxText) + `"}}}`,
			&Package{Name: "etcd", Catalog: community, Deprecation: strings.Repeat("é", maxText/2)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			if err := json.Unmarshal([]byte(test.json), &object); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, Decode(object)); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeIsBounded(t *testing.T) {
	entry := map[string]any{"name": "e", "version": "1.0.0"}
	entries := make([]any, 3*maxVersions)
	for i := range entries {
		entries[i] = entry
	}
	channels := make([]any, 3*maxChannels)
	for i := range channels {
		channels[i] = map[string]any{"name": "c", "entries": entries}
	}
	p := Decode(map[string]any{"status": map[string]any{"packageName": "etcd", "catalogSource": "c",
		"catalogSourceNamespace": "n", "channels": channels}})
	versions := 0
	for _, c := range p.Channels {
		versions += len(c.Entries)
	}
	if len(p.Channels) > maxChannels || versions > maxVersions {
		t.Errorf("kept %d channels and %d versions", len(p.Channels), versions)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"etcd"},"status":{"catalogSource":"a","catalogSourceNamespace":"b","channels":[{"name":"c","entries":[{}]}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var object map[string]any
		if json.Unmarshal(raw, &object) != nil {
			return
		}
		if p := Decode(object); p != nil && (p.Name == "" || p.Catalog.Name == "" || p.Catalog.Namespace == "") {
			t.Errorf("an answer about nothing: %+v", p)
		}
	})
}
