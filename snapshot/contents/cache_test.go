package contents

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/state"
)

// fixture is a running cache over a cluster with one plan by image.
type fixture struct {
	*Cache
	store *objects
	plan  *olm.InstallPlan
	csvs  []state.Replacement

	mu      sync.Mutex
	changed int
}

// inBubble runs a test with a cache on virtual time.
func inBubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		before := csvJSON(t, "etcdoperator.v1", "configmaps")
		plan := planJSON(t, step{"ClusterServiceVersion", "etcdoperator.v2", refJSON(t, nil)})
		decoded, err := olm.DecodePlan([]byte(plan))
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{plan: decoded, csvs: replacements(t, before), store: &objects{m: map[string]string{
			at("clusterserviceversions", "shop/etcdoperator.v1"): before, at("installplans", "shop/p"): plan,
			"configmaps olm/bundle": unpacked(t, "1", managed, csvJSON(t, "etcdoperator.v2", "secrets"))}}}
		f.Cache = New(Options{Source: f.store, Watch: func(context.Context, func(string, types.NamespacedName)) {},
			Panics: panics.NewRecorder(prometheus.NewRegistry(), logr.Discard()),
			Changed: func(namespace string) {
				if namespace != "shop" {
					t.Errorf("changed: %s", namespace)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				f.changed++
			}})
		var running sync.WaitGroup
		running.Go(func() { _ = f.Start(t.Context()) })
		test(t, f)
		t.Cleanup(running.Wait)
	})
}

// seen waits until nothing happens any more, and returns the number of changes since the last call.
func (f *fixture) seen() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.changed
	f.changed = 0
	return n
}

func (f *fixture) set(t *testing.T) *change.Set {
	t.Helper()
	all := f.Get(f.plan, f.csvs)
	if all == nil {
		t.Fatal("the changes are not known")
	}
	if all.Plan != f.plan.ContentsDigest() {
		t.Error("the digest is not that of the plan")
	}
	return all.ByCSV["etcdoperator.v2"]
}

func (f *fixture) configMapChanged() {
	f.objectChanged("configmaps", types.NamespacedName{Namespace: "olm", Name: "bundle"})
}

func TestCacheReadsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		if f.Get(f.plan, f.csvs) != nil {
			t.Error("the changes are known before they were read")
		}
		if n := f.seen(); n != 1 {
			t.Errorf("%d changes", n)
		}
		first := f.set(t)
		if first.Fault != "" || len(of(first, change.Permissions)) != 1 {
			t.Errorf("%+v", first)
		}
		asked := len(f.store.asked)
		f.set(t)
		time.Sleep(time.Hour)
		if n := f.seen(); n != 0 || len(f.store.asked) != asked {
			t.Errorf("%d changes at rest, asked for %v", n, f.store.asked[asked:])
		}
	})
}

// TestCacheEditedConfigMap edits a ConfigMap after it was read: whatever it contains then, OLM did not write it.
func TestCacheEditedConfigMap(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.Get(f.plan, f.csvs)
		f.seen()
		original := f.store.m["configmaps olm/bundle"]
		f.store.set("configmaps olm/bundle", unpacked(t, "1", managed,
			csvJSON(t, "etcdoperator.v2", "secrets", "nodes")))
		f.configMapChanged()
		if n := f.seen(); n != 1 {
			t.Errorf("%d changes", n)
		}
		if fault := f.set(t).Fault; !strings.Contains(fault, "was changed after OLM had written it") {
			t.Errorf("fault %q", fault)
		}

		// Put back, it is what OLM wrote.
		f.store.set("configmaps olm/bundle", original)
		f.configMapChanged()
		f.seen()
		if fault := f.set(t).Fault; fault != "" {
			t.Error(fault)
		}

		// OLM unpacks again into a new one.
		f.store.set("configmaps olm/bundle", unpacked(t, "2", managed,
			csvJSON(t, "etcdoperator.v2", "secrets", "nodes")))
		f.configMapChanged()
		f.seen()
		if set := f.set(t); set.Fault != "" || len(of(set, change.Permissions)) == 0 {
			t.Errorf("%+v", set)
		}
	})
}

func TestCacheRetries(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.store.fail(errors.New("the API server is away"))
		f.Get(f.plan, f.csvs)
		if n := f.seen(); n != 1 {
			t.Errorf("%d changes", n)
		}
		if fault := f.set(t).Fault; !strings.Contains(fault, "not read yet") ||
			!strings.Contains(fault, "the API server is away") {
			t.Errorf("fault %q", fault)
		}
		time.Sleep(time.Hour)
		if n := f.seen(); n != 0 {
			t.Errorf("%d changes while nothing changes", n)
		}
		if asked := len(f.store.asked); asked > 60 {
			t.Errorf("%d requests in an hour", asked)
		}
		f.store.fail(nil)
		time.Sleep(lastRetry)
		if n := f.seen(); n != 1 {
			t.Errorf("%d changes", n)
		}
		if fault := f.set(t).Fault; fault != "" {
			t.Error(fault)
		}
	})
}

// TestCacheInstalledChanged compares again when another version is installed than before.
func TestCacheInstalledChanged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.Get(f.plan, f.csvs)
		f.seen()
		now := csvJSON(t, "etcdoperator.v1", "secrets")
		f.store.set(at("clusterserviceversions", "shop/etcdoperator.v1"), now)
		f.csvs = replacements(t, now)
		if f.Get(f.plan, f.csvs) != nil {
			t.Error("the changes since another version are known")
		}
		f.seen()
		if got := of(f.set(t), change.Permissions); len(got) != 0 {
			t.Errorf("permissions %v, want none", got)
		}
	})
}

// TestCacheApproved keeps what was read before the approval: OLM writes the new definitions before the
// ClusterServiceVersion.
func TestCacheApproved(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		csv := csvJSON(t, "etcdoperator.v2", "secrets")
		old := strings.ReplaceAll(definition, `{"name":"v1",`,
			`{"name":"v1beta1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},{"name":"v1",`)
		f.store.set(at("customresourcedefinitions", "etcds.example.com"), old)
		f.store.set("configmaps olm/bundle", unpacked(t, "1", managed, csv, definition))
		f.Get(f.plan, f.csvs)
		f.seen()
		before := f.set(t)
		if before.Fault != "" || len(of(before, change.BreakingCRDs)) == 0 {
			t.Fatalf("%+v", before)
		}

		stored := at("installplans", "shop/p")
		f.store.set(stored, strings.ReplaceAll(f.store.m[stored], `"approval":"Manual"`,
			`"approval":"Manual","approved":true`))
		f.store.set(at("customresourcedefinitions", "etcds.example.com"), definition)
		f.objectChanged("customresourcedefinitions", types.NamespacedName{Name: "etcds.example.com"})
		if n := f.seen(); n != 0 {
			t.Errorf("%d changes", n)
		}
		if after := f.set(t); after.Digest() != before.Digest() {
			t.Errorf("after the approval it is %+v", after)
		}

		// An API server that is away in these seconds does not change that.
		f.store.fail(errors.New("the API server is away"))
		f.configMapChanged()
		f.seen()
		if fault := f.set(t).Fault; !strings.Contains(fault, "not read yet") {
			t.Errorf("fault %q", fault)
		}
		f.store.fail(nil)
		time.Sleep(lastRetry)
		f.seen()
		if after := f.set(t); after.Digest() != before.Digest() {
			t.Errorf("after an outage it is %+v", after)
		}

		// An edited ConfigMap shows nevertheless.
		f.store.set("configmaps olm/bundle", unpacked(t, "1", managed,
			csvJSON(t, "etcdoperator.v2", "secrets", "nodes"), definition))
		f.configMapChanged()
		f.seen()
		if fault := f.set(t).Fault; !strings.Contains(fault, "was changed after OLM had written it") {
			t.Errorf("fault %q", fault)
		}
	})
}

// TestCacheFinished sends no request for a plan that is gone, whatever happens to what it was read from.
func TestCacheFinished(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.Get(f.plan, f.csvs)
		f.seen()
		stored := at("installplans", "shop/p")
		f.store.set(stored, strings.ReplaceAll(f.store.m[stored], "RequiresApproval", "Complete"))
		f.configMapChanged()
		f.seen()
		asked := len(f.store.asked)
		f.configMapChanged()
		time.Sleep(time.Hour)
		if n := f.seen(); n != 0 || len(f.store.asked) != asked {
			t.Errorf("%d changes, asked for %v", n, f.store.asked[asked:])
		}
	})
}
