package backstop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
)

// TestExceptionIsTakenOut: the API server's table has an exception until its end. A leader whose clock is behind does
// not put it back once the end is recorded.
func TestExceptionIsTakenOut(t *testing.T) {
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	store := func(status string) *snapshot.Store {
		return storeOf(t, "etcd.v0.9.2", `"exceptions":[{"versions":["etcd.v0.9.4"],"rules":["bundle/version"],"reason":"CVE-2026-1234",
			"expires":"2026-12-01T00:00:00Z"}],`, status)
	}
	var now time.Time
	leader := func(status string) *Controller {
		return &Controller{Mode: Enforce, Shared: apply.Shared{Log: testr.New(t), Now: func() time.Time { return now },
			Writer: apply.Writer{Store: store(status), Metrics: apply.NewMetrics(prometheus.NewRegistry())}}}
	}
	features := backstop.Features{ValidatingAdmissionPolicy: true}
	excepted := func(r *Controller) bool {
		t.Helper()
		r.compile("system:serviceaccount:opgate-system:opgate", features)
		object := r.compiled.objects["ValidatingAdmissionPolicy/"+backstop.Name]
		if object == nil {
			t.Fatal("there is no object")
		}
		return strings.Contains(fmt.Sprint(object.Object), "!etcd.v0.9.4")
	}
	r := leader(`{}`)
	now = end.Add(-time.Second)
	if !excepted(r) || !r.compiled.until.Equal(end) {
		t.Errorf("before its end: the table lacks the exception, or is kept until %s", r.compiled.until)
	}
	before := r.compiled.objects["ValidatingAdmissionPolicy/"+backstop.Name]
	if excepted(r); r.compiled.objects["ValidatingAdmissionPolicy/"+backstop.Name] != before {
		t.Error("it is compiled again although nothing changed")
	}
	now = end
	if excepted(r) || !r.compiled.until.IsZero() {
		t.Errorf("at its end: the table has the exception, until %s", r.compiled.until)
	}
	policies := r.Store.Load().Namespace("shop").Policies()
	status := fmt.Sprintf(`{"endedExceptions":[%q]}`, policies[0].Exceptions().Ended(end)[0])
	now = end.Add(-time.Minute)
	if excepted(leader(status)) {
		t.Error("a leader whose clock is behind puts it back")
	}
}

// storeOf returns a store that has one policy: for one version, with more fields of its spec, and with a status.
func storeOf(t *testing.T, version, fields, status string) *snapshot.Store {
	t.Helper()
	reader := snapshot.Reader{Unreadable: func(kind *snapshot.Kind, _ types.NamespacedName, err error) {
		t.Fatal(kind.Kind, err)
	}}
	var b snapshot.Builder
	b.Put(time.Time{}, reader.Read(snapshot.OperatorPolicies, fmt.Appendf(nil, `{"metadata":{"name":"etcd","namespace":"policies"},
		"spec":{"complianceType":"musthave","remediationAction":"enforce","upgradeApproval":"Automatic","versions":[%q],%s
		"subscription":{"name":"etcd","namespace":"shop"}},"status":%s}`, version, fields, status)))
	return snapshot.NewStore(b.SetCluster(time.Time{}, facts.Cluster{}))
}
