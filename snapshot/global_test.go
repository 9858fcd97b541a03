package snapshot

import (
	"slices"
	"testing"
	"time"
)

// TestInstalledGlobally follows groups and ClusterServiceVersions, and that changes name the
// packages.
func TestInstalledGlobally(t *testing.T) {
	group := func(namespace, targets string) *Object {
		return read(OperatorGroups, `{"metadata":{"name":"group","namespace":"`+
			namespace+`"},"spec":{"targetNamespaces":[`+targets+`]}}`)
	}
	csv := func(namespace, labels string) *Object {
		return read(ClusterServiceVersions, `{"metadata":{"name":"etcd.v1","namespace":"`+namespace+`","labels":{`+
			labels+`},`+
			`"annotations":{"operatorframework.io/properties":`+
			`"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.0\"}}]}"}}}`)
	}
	etcd := []string{"etcd"}
	var b Builder
	for _, step := range []struct {
		name     string
		old, now *Object
		changed  []string
		want     []string
	}{
		{name: "no group", now: csv("shop", "")},
		{name: "a group for all namespaces", now: group("shop", ""), changed: etcd, want: []string{"shop"}},
		{name: "another namespace", now: group("bank", ""), want: []string{"shop"}},
		{name: "with the package", now: csv("bank", ""), changed: etcd, want: []string{"bank", "shop"}},
		{name: "the same again", old: csv("bank", ""), now: csv("bank", ""), want: []string{"bank", "shop"}},
		{name: "a copy", old: csv("bank", ""), now: csv("bank", `"olm.copiedFrom":"shop"`), changed: etcd,
			want: []string{"shop"}},
		{name: "a workload", now: read(Deployments, `{"metadata":{"name":"etcd","namespace":"shop"}}`),
			want: []string{"shop"}},
		{name: "a group for named namespaces", old: group("shop", ""), now: group("shop", `"shop"`), changed: etcd},
		{name: "back", old: group("shop", `"shop"`), now: group("shop", ""), changed: etcd, want: []string{"shop"}},
		{name: "uninstalled", old: csv("shop", ""), changed: etcd},
	} {
		next, change := b.build(time.Time{}, []event{{old: step.old, now: step.now}})
		if got := next.InstalledGlobally("etcd"); !slices.Equal(got, step.want) ||
			!slices.Equal(change.Packages, step.changed) {
			t.Errorf("%s: installed in %q and changed are %q, want %q and %q", step.name, got, change.Packages,
				step.want, step.changed)
		}
		if got, want := next.InstalledElsewhere("etcd", "shop"), slices.Contains(step.want, "bank"); got != want {
			t.Errorf("%s: for namespace shop it is installed elsewhere: %t, want %t", step.name, got, want)
		}
	}
}
