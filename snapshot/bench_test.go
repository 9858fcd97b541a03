package snapshot

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// plan returns a plan of 40 KiB, most of which are the manifests in its steps.
func plan(name string) []byte {
	manifest := strings.Repeat("some words of a manifest, ", 150)
	step := `{"resolving":"etcd.v1","status":"Unknown","resource":{"group":"","version":"v1","kind":"ConfigMap","name":"x","manifest":"` + manifest + `"}}`
	return []byte(`{"metadata":{"namespace":"shop","name":"` + name + `","uid":"1","resourceVersion":"1"},
		"spec":{"approved":false,"clusterServiceVersionNames":["etcd.v1"]},"status":{"phase":"RequiresApproval","plan":[` +
		strings.Repeat(step+",", 9) + step + `]}}`)
}

// crowded returns a snapshot of n namespaces, each with a policy, a Subscription and a group.
func crowded(n int) *Builder {
	b := &Builder{}
	var objects []*Object
	for i := range n {
		ns := fmt.Sprintf("tenant-%d", i)
		objects = append(objects, read(Namespaces, `{"metadata":{"name":"`+ns+`","uid":"`+ns+
			`","resourceVersion":"1"}}`),
			read(Subscriptions, `{"metadata":{"name":"etcd","namespace":"`+ns+`","uid":"`+ns+
				`","resourceVersion":"1"},"spec":{"name":"etcd"}}`),
			read(OperatorGroups, `{"metadata":{"name":"all","namespace":"`+ns+`","uid":"`+ns+
				`","resourceVersion":"1"},"spec":{}}`),
			read(OperatorPolicies, `{"metadata":{"name":"p`+ns+`","namespace":"policies","uid":"`+ns+`","generation":1,"resourceVersion":"1"},
				"spec":{"complianceType":"musthave","remediationAction":"enforce","subscription":{"name":"etcd","namespace":"`+ns+`"}}}`))
	}
	b.Put(time.Time{}, objects...)
	return b
}

// BenchmarkEvent measures one event: decoding a small object, and building a snapshot with its namespace rebuilt. The
// cost must not depend on the number of namespaces: an event at 10,000 costs at most twice one at 100.
func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		builder := crowded(n)
		raw := [2][]byte{}
		for i := range raw {
			raw[i] = []byte(fmt.Sprintf(
				`{"metadata":{"name":"etcd","namespace":"tenant-7","uid":"1","resourceVersion":"%d"},"spec":{"name":"etcd"}}`, i+2))
		}
		last := read(Subscriptions, string(raw[1]))
		builder.Put(time.Time{}, last)
		b.Run(fmt.Sprintf("namespaces=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now := reader.Read(Subscriptions, raw[i%2])
				builder.build(time.Time{}, []event{{old: last, now: now}})
				last = now
			}
		})
	}
}

// BenchmarkSnapshot measures one event of a plan. Each plan in the namespace adds well under a microsecond;
// those of other namespaces add nothing.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1, 2_000} {
		var builder Builder
		objects := []*Object{policyIn("shop", "1", 1)}
		for i := range n {
			objects = append(objects, reader.Read(InstallPlans, plan(fmt.Sprintf("install-%d", i))))
		}
		builder.Put(time.Time{}, objects...)
		last, content := objects[1], plan("install-0")
		b.Run(fmt.Sprintf("plan=40KiB/plans=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now := reader.Read(InstallPlans, content)
				builder.build(time.Time{}, []event{{old: last, now: now}})
				last = now
			}
		})
	}
}

// TestEventCost: the allocations of an event do not depend on the number of namespaces.
func TestEventCost(t *testing.T) {
	const budget = 150
	for _, n := range []int{100, 2_000} {
		builder := crowded(n)
		last := read(Subscriptions,
			`{"metadata":{"name":"etcd","namespace":"tenant-7","uid":"tenant-7","resourceVersion":"1"},"spec":{"name":"etcd"}}`)
		if got := testing.AllocsPerRun(100,
			func() { builder.build(time.Time{}, []event{{old: last, now: last}}) }); got > budget {
			t.Errorf("%d namespaces: %.0f allocations, the budget is %d", n, got, budget)
		}
	}
}

// TestMemory: a namespace with a policy, a Subscription and a group takes a few KiB, and a plan of 40 KiB much less
// than its manifests: 5,000 of them take at most 10 MiB. About 60% of the budgets were measured when they were set.
func TestMemory(t *testing.T) {
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	for name, tt := range map[string]struct {
		n      int
		budget int64 // in bytes, of each
		build  func(n int) *Builder
	}{
		"namespaces": {n: 2_000, budget: 8 << 10, build: crowded},
		"plans": {n: 2_000, budget: 10 << 20 / 5_000, build: func(n int) *Builder {
			b := &Builder{}
			b.Put(time.Time{}, policyIn("shop", "1", 1))
			for i := range n {
				b.Put(time.Time{}, reader.Read(InstallPlans, plan(fmt.Sprintf("install-%d", i))))
			}
			return b
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			builder := tt.build(tt.n)
			if each := (heap() - before) / int64(tt.n); each > tt.budget {
				t.Errorf("%d bytes for each, the budget is %d", each, tt.budget)
			} else {
				t.Logf("%d bytes for each", each)
			}
			runtime.KeepAlive(builder)
		})
	}
}
