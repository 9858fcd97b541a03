package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/e2e/olm"
	opgateolm "github.com/opgate/opgate/olm"
)

// agePasses is about versions that their catalog has not offered for long enough, and windows that are not open: the
// time alone lets them pass, without a restart and without an event. What another image brings has a time of its own,
// also if the CatalogSource is another one by then; what was there keeps its time.
func agePasses(t *testing.T, e *harness.OLMEnv) {
	const v1, v2, v3 = "influxoperator.v1.0.0", "influxoperator.v1.1.0", "influxoperator.v1.2.0"
	a := &aging{OLMEnv: e, namespace: e.NewNamespace(t)}
	a.policy = harness.GroupedPolicy(a.namespace, "influx")
	for path, value := range map[string]string{"source": agingCatalog, "sourceNamespace": a.namespace} {
		harness.WithField(a.policy, value, "spec", "subscription", path)
	}
	harness.WithField(a.policy, "1h", "spec", "minimumAge")
	harness.WithField(a.policy, opensAt(time.Now().Add(2*time.Hour)), "spec", "approvalWindows")
	a.publish(t, "1.0.0")
	e.Apply(t, a.policy)
	first := a.wantYoung(t, "False", v1)
	waitForPolicy(t, e, a.policy, wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"(bundle/approval-window)"))
	age := time.Since(time.Unix(first.Seen["influx"][v1], 0)) + speed.Scale(5*time.Second)
	edit := harness.AsJSON(t, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"minimumAge": age.Truncate(time.Second).String(), "approvalWindows": opensAt(time.Now().Add(5 * time.Second)),
	}}})
	e.Edit(t, a.policy, edit)
	e.WaitForCSV(t, a.namespace, v1)
	waitForPolicy(t, e, a.policy, is(compliant), has(v1))

	// The tag moves, and OLM runs another image, which is not accepted.
	e.Edit(t, a.policy, fmt.Sprintf(`{"spec":{"minimumAge":"1h","approvalWindows":null,"catalog":{"image":"Hold","accepted":[%q]}}}`,
		first.Newest()))
	a.publish(t, "1.0.0", "1.1.0")
	second := a.wantYoung(t, "True", v2)
	a.wantKept(t, first, second, v2)
	waitForPolicy(t, e, a.policy, wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval",
		"(bundle/catalog-digest)", second.Newest()))
	e.Edit(t, a.policy, fmt.Sprintf(`{"spec":{"urgent":[%q],"catalog":{"accepted":[%q]}}}`, v2, second.Newest()))
	e.WaitForCSV(t, a.namespace, v2)

	source := harness.Named("CatalogSource", a.namespace, agingCatalog)
	spec := e.Stored(t, source).Object["spec"]
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "catalogsource", "-n", a.namespace, agingCatalog)
	a.publish(t, "1.0.0", "1.1.0", "1.2.0")
	source = harness.Object(`{apiVersion: operators.coreos.com/v1alpha1, kind: CatalogSource, metadata: {name: %s, namespace: %s}}`,
		agingCatalog, a.namespace)
	source.Object["spec"] = spec
	e.CreateAs(t, cluster.Admin, source)
	a.wantKept(t, second, a.wantYoung(t, "True", v3), v3)
	a.forgedService(t, v3)
	a.attackV4(t, v3)
	a.attackV1(t, v3)
}

// opensAt returns the window that opens in the minute after a time, and at no other time of the day.
func opensAt(after time.Time) []any {
	next := after.UTC().Truncate(time.Minute).Add(time.Minute)
	return []any{map[string]any{"cron": fmt.Sprintf("%d %d * * *", next.Minute(), next.Hour()), "duration": "1h"}}
}

// agingCatalog is the name of the catalog in agePasses.
const agingCatalog = "young-hub"

// aging is a policy with a minimum age, and the catalog of its own that it is about.
type aging struct {
	*harness.OLMEnv
	namespace string
	policy    *unstructured.Unstructured
	catalog   *olm.ImageCatalog
}

// publish makes the catalog's image offer these versions.
func (a *aging) publish(t *testing.T, versions ...string) {
	t.Helper()
	offered := olm.Package{Name: "influx", CSV: "influxoperator", Versions: versions}
	var err error
	if a.catalog == nil {
		a.catalog, err = a.OLM.AddImageCatalog(t.Context(), a.namespace, agingCatalog, offered)
	} else {
		err = a.catalog.Move(t.Context(), offered)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantYoung waits until a version is held for its age, which the catalog's record states, and wants an admin to be
// refused.
func (a *aging) wantYoung(t *testing.T, compliant, csv string) *catalog.Record {
	t.Helper()
	plan := a.WaitForPlan(t, a.namespace, csv)
	waitForPolicy(t, a.OLMEnv, a.policy, wantCondition("InstallPlanCompliant="+compliant+" InstallPlanRequiresApproval",
		csv+" is held", "(bundle/minimum-age)", "has offered it since"))
	a.WantApprovalRefused(t, cluster.Admin, plan, csv, "(bundle/minimum-age)", "old enough (1h)")
	records := a.Get(t, harness.Resources["ConfigMap"], cluster.OpgateNamespace, catalog.RecordsName)
	key := catalog.RecordKey(opgateolm.Catalog{Namespace: a.namespace, Name: agingCatalog})
	text, _, _ := unstructured.NestedString(records.Object, "data", key)
	record, err := catalog.DecodeRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// wantKept wants all versions to have the times that they had, and another image to have added a younger version.
func (a *aging) wantKept(t *testing.T, before, after *catalog.Record, added string) {
	t.Helper()
	times := after.Seen["influx"]
	for csv, seen := range before.Seen["influx"] {
		if times[csv] != seen || times[added] <= seen {
			t.Errorf("%s was seen at %d, now at %d, and %s at %d", csv, seen, times[csv], added, times[added])
		}
	}
	if after.Newest() == before.Newest() {
		t.Errorf("the image is still %s", after.Newest())
	}
}

// forgedService lets the status of the CatalogSource name another Service, as a user does who may write it (threat
// O69): OLM connects to that, and does not correct it. What the catalog offers is not that of its image any more.
func (a *aging) forgedService(t *testing.T, csv string) {
	t.Helper()
	source := harness.Named("CatalogSource", a.namespace, agingCatalog)
	wantConnected := func(service string) {
		t.Helper()
		want := service + "." + a.namespace + ".svc:50051"
		a.Eventually(t, "see OLM connect to "+want, func(context.Context) error {
			address, _, _ := unstructured.NestedString(a.Stored(t, source).Object, "status", "connectionState", "address")
			if address != want {
				return fmt.Errorf("it connects to %q", address)
			}
			return nil
		})
		a.Sync(t)
	}
	wantConnected(agingCatalog)
	a.Patch(t, cluster.Admin, source, `{"status":{"registryService":{"serviceName":"forged"}}}`, "status")
	wantConnected("forged")
	a.WantApprovalRefused(t, cluster.Admin, a.WaitForPlan(t, a.namespace, csv), csv, "(bundle/minimum-age)",
		"its status.registryService names another one")
	a.Patch(t, cluster.Admin, source, `{"status":{"registryService":null}}`, "status")
	wantConnected(agingCatalog)
}

// wantElsewhere wants the version to be held, since its catalog may not be read from the pods of its image.
func (a *aging) wantElsewhere(t *testing.T, csv, why string) {
	t.Helper()
	a.Sync(t)
	a.WantApprovalRefused(t, cluster.Admin, a.WaitForPlan(t, a.namespace, csv), csv, "(bundle/minimum-age)",
		"it is not known from which image OLM reads", why)
}

// attackV4 lets the Service of the catalog lead to other pods. OLM compares its label and leaves it.
func (a *aging) attackV4(t *testing.T, csv string) {
	t.Helper()
	a.WantApprovalRefused(t, cluster.Admin, a.WaitForPlan(t, a.namespace, csv), csv, "(bundle/minimum-age)",
		"has offered it since") // the control: its Service is as OLM makes it
	service := harness.Named("Service", a.namespace, agingCatalog)
	a.Patch(t, cluster.Admin, service, `{"spec":{"selector":{"olm.catalogSource":null,"olm.managed":null,"app":"evil"}}}`)
	const why = "does not lead to its pods as OLM has made it"
	a.wantElsewhere(t, csv, why)
	source := harness.Named("CatalogSource", a.namespace, agingCatalog)
	a.Patch(t, cluster.Admin, source, `{"metadata":{"annotations":{"v4":"reconciled"}}}`)
	a.wantElsewhere(t, csv, why)
	a.Patch(t, cluster.Admin, service,
		`{"spec":{"selector":{"olm.catalogSource":"`+agingCatalog+`","olm.managed":"true","app":null}}}`)
	a.Sync(t)
	a.WantApprovalRefused(t, cluster.Admin, a.WaitForPlan(t, a.namespace, csv), csv, "(bundle/minimum-age)",
		"has offered it since")
}

// attackV1 creates a catalog for which OLM makes the Service of the other one anew.
func (a *aging) attackV1(t *testing.T, csv string) {
	t.Helper()
	other := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: %s, namespace: %s}
spec: {sourceType: grpc, image: "registry.invalid/other:latest"}
`, strings.ReplaceAll(agingCatalog, "-", "."), a.namespace)
	a.CreateAs(t, cluster.Admin, other)
	a.wantElsewhere(t, csv, "another CatalogSource has the same Service")
	a.Eventually(t, "see OLM make the Service for the other catalog", func(context.Context) error {
		service := a.Stored(t, harness.Named("Service", a.namespace, agingCatalog))
		if service == nil {
			return errors.New("there is none")
		}
		if to, _, _ := unstructured.NestedString(service.Object, "spec", "selector", "olm.catalogSource"); to != other.GetName() {
			return fmt.Errorf("it leads to %q", to)
		}
		return nil
	})
	a.wantElsewhere(t, csv, "another CatalogSource has the same Service")
}
