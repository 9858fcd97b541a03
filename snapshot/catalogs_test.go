package snapshot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	curatedCatalog = `{"metadata":{"name":"curated","namespace":"olm"},"spec":{"image":"registry.example/catalog:latest"}}`
	curatedPod     = `{"metadata":{"name":"curated","namespace":"olm","labels":{"olm.catalogSource":"curated"}},"status":{"phase":"Running",
		"containerStatuses":[{"name":"registry-server","imageID":"registry.example/catalog@%s"}]}}`
	curatedService = `{"metadata":{"name":"curated","namespace":"olm","labels":{"olm.service-spec-hash":"1"}},"spec":{"selector":{"olm.catalogSource":"%s","olm.managed":"true"},
		"ports":[{"port":50051,"targetPort":50051}]}}`
	reviewedImage = "sha256:0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
	recordOf      = `{"metadata":{"name":"opgate-catalogs","namespace":"opgate-system"},"data":{%s}}`
	record        = `"olm.curated":"{\"namespace\":\"olm\",\"name\":\"curated\",\"polls\":[{\"image\":\"` +
		reviewedImage + `\",\"packages\":7}]}"`
)

// TestCatalogsAreFollowed: when it becomes known which image a catalog runs, and what that changed, plans are judged
// again and the controllers are notified of namespaces that judge by it, and of no other.
func TestCatalogsAreFollowed(t *testing.T) {
	pod := func(digest string) *Object { return read(Pods, fmt.Sprintf(curatedPod, digest)) }
	service := func(selects string) *Object { return read(Services, fmt.Sprintf(curatedService, selects)) }
	accepted := policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold, Accepted: []string{reviewedImage}}
	records := func(data string) *Object { return read(Records, fmt.Sprintf(recordOf, data)) }
	for _, test := range []struct {
		name string
		spec policyv1beta2.Catalog
		now  *Object
		// runs is set if the pod exists before now is written, without if the Service does not.
		runs, without bool
		want          verdict.Decision
	}{
		{name: "no image is known", spec: accepted, want: verdict.Hold},
		{name: "the accepted image", spec: accepted, now: pod(reviewedImage)},
		{name: "h1: the image and no Service", spec: accepted, without: true, now: pod(reviewedImage), want: verdict.Hold},
		{name: "h1: the image, and its Service is seen", spec: accepted, without: true, runs: true, now: service("curated")},
		{name: "v4: a Service that leads elsewhere", spec: accepted, runs: true, now: service("other"), want: verdict.Hold},
		{name: "a catalog of another Service", spec: accepted, runs: true,
			now: read(CatalogSources, `{"metadata":{"name":"cura.ted","namespace":"olm"},"spec":{}}`)},
		{name: "its record", spec: policyv1beta2.Catalog{Jump: policyv1beta2.CatalogHold}, now: records(record)},
		{name: "a record that is no JSON", spec: policyv1beta2.Catalog{Jump: policyv1beta2.CatalogHold},
			now: records(`"olm.curated":"{"`), want: verdict.Hold},
		{name: "a record under the key of another catalog",
			spec: policyv1beta2.Catalog{Jump: policyv1beta2.CatalogHold},
			now:  records(`"olm.other` + record[len(`"olm.curated`):]), want: verdict.Hold},
		{name: "another ConfigMap", spec: policyv1beta2.Catalog{Jump: policyv1beta2.CatalogHold},
			now:  read(Records, `{"metadata":{"name":"mine","namespace":"opgate-system"},"data":{`+record+`}}`),
			want: verdict.Hold},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b Builder
			op := policyIn("shop", "1", 1).value.(*storedPolicy).object
			op.Spec.UpgradeApproval, op.Spec.Catalog = policyv1beta2.UpgradeApprovalAutomatic, &test.spec
			objects := []*Object{read(Namespaces, `{"metadata":{"name":"shop"}}`),
				read(Namespaces, `{"metadata":{"name":"other"}}`),
				encode(OperatorPolicies, op), read(InstallPlans, pendingEtcd), read(CatalogSources, curatedCatalog)}
			if !test.without {
				objects = append(objects, service("curated"))
			}
			if test.spec.Jump != "" || test.runs {
				objects = append(objects, pod(reviewedImage))
			}
			next := b.Put(time.Time{}, objects...)
			var change *Change
			if test.now != nil {
				next, change = b.build(time.Time{}, []event{{now: test.now}})
			}
			ns := next.Namespace("shop")
			if v := rules.JudgePlan(rules.PlanInput{Plan: ns.Plans()[0], Namespace: ns}); v.Decision != test.want {
				t.Errorf("%s, want %s: %s", v.Decision, test.want, v.Refusal())
			}
			if test.now != nil && test.want == verdict.Allow && !slices.Equal(change.Namespaces, []string{"shop"}) {
				t.Errorf("changed are %q", change.Namespaces)
			}
		})
	}
}
