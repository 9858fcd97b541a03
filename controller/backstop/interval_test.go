package backstop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/snapshot"
)

// TestCompileInterval: the first edit after a while is compiled at once, and all that follow within a second together. A
// status that is written compiles nothing. What ends in that second is taken out at its end.
func TestCompileInterval(t *testing.T) {
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	exception := fmt.Sprintf(`"exceptions":[{"versions":["etcd.v0.9.9"],"rules":["bundle/version"],"reason":"CVE-2026-1234","expires":%q}],`,
		start.Add(3*time.Second+compileInterval/2).Format(time.RFC3339Nano))
	const within = `"versionRange":">=1.0.0","urgent":["etcd.v3"],"minimumAge":"72h",`
	first, second := storeOf(t, "etcd.v1", "", `{}`), storeOf(t, "etcd.v2", within, `{}`)
	status := storeOf(t, "etcd.v2", within, `{"compliant":"Compliant"}`)
	third := storeOf(t, "etcd.v3", exception, `{}`)
	var now time.Time
	r := &Controller{Mode: Enforce, Metrics: NewMetrics(prometheus.NewRegistry()), Shared: apply.Shared{Log: testr.New(t), Now: func() time.Time { return now },
		Writer: apply.Writer{Metrics: apply.NewMetrics(prometheus.NewRegistry())}}}
	for _, step := range []struct {
		at    time.Duration
		store *snapshot.Store
		has   string
		next  time.Duration // of the next compilation, 0 for none
	}{
		{0, first, "etcd.v1", 0},
		{compileInterval / 10, second, "etcd.v1", compileInterval},
		{compileInterval / 5, first, "etcd.v1", compileInterval},
		{compileInterval / 2, second, "etcd.v1", compileInterval},
		{compileInterval, second, "etcd.v2", 0},
		{compileInterval, status, "etcd.v2", 0},
		{compileInterval + 1, first, "etcd.v2", 2 * compileInterval},
		{2 * compileInterval, first, "etcd.v1", 0},
		{3 * compileInterval, third, "!etcd.v0.9.9", 3*time.Second + compileInterval/2},
		{3*compileInterval + 1, first, "etcd.v3", 3*time.Second + compileInterval/2},
		{3*time.Second + compileInterval/2, first, "etcd.v1", 0},
	} {
		now, r.Store = start.Add(step.at), step.store
		r.changed(&snapshot.Change{Snapshot: r.Store.Load(), Namespaces: []string{"shop"}})
		r.compile("system:serviceaccount:opgate-system:opgate", backstop.Features{ValidatingAdmissionPolicy: true})
		object := r.compiled.objects["ValidatingAdmissionPolicy/"+backstop.Name]
		if object == nil || !strings.Contains(fmt.Sprint(object.Object), step.has) {
			t.Errorf("after %s: the object lacks %s", step.at, step.has)
		}
		want := time.Time{}
		if step.next != 0 {
			want = start.Add(step.next)
		}
		if next := r.compiled.next(); !next.Equal(want) {
			t.Errorf("after %s: it is compiled again at %s, want %s", step.at, next, want)
		}
	}
}
