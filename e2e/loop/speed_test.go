package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/rights"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// planSize is about how large a plan is as JSON: that of an operator with two CustomResourceDefinitions.
	planSize = 40 << 10
	// watchesLast is how long no watch has ended yet, and no catalog was asked again.
	watchesLast = 4 * time.Minute
)

// speedEnv is an environment with the loop and many namespaces, each with a policy for one operator and the
// Subscription that the loop has made for it. Catalog and package are there, as they would be.
type speedEnv struct {
	*harness.LoopEnv
	namespaces []string
	// started is when the catalog was there.
	started time.Time
}

// startSpeed is startLoop with a policy in each of some namespaces.
func startSpeed(t testing.TB, in *harness.Env, namespaces int) *speedEnv {
	t.Helper()
	e := &speedEnv{LoopEnv: startLoop(t, in)}
	ctx := t.Context()
	for _, u := range []*unstructured.Unstructured{harness.Object(speedCatalog), harness.Object(speedPackage)} {
		if err := e.Admin.Create(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	e.started = time.Now()
	for i := range namespaces {
		e.namespaces = append(e.namespaces, fmt.Sprintf("shop-%03d", i))
	}
	harness.AtOnce(t, harness.Writers, e.namespaces, func(ctx context.Context, name string) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := e.Admin.Create(ctx, namespace); err != nil {
			return err
		}
		p := harness.OperatorPolicy(name)
		if err := unstructured.SetNestedField(p.Object, "alpha", "spec", "subscription", "channel"); err != nil {
			return err
		}
		return e.Admin.Create(ctx, p)
	})
	for _, name := range e.namespaces {
		harness.Eventually(t, "the Subscription for "+name, func(ctx context.Context) error {
			return e.Admin.Get(ctx, crclient.ObjectKey{Namespace: name, Name: "etcd"}, kind("Subscription"))
		})
	}
	return e
}

const (
	speedCatalog = `
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: operatorhubio-catalog, namespace: olm}
spec: {sourceType: grpc, image: quay.io/operatorhubio/catalog:latest}
`
	speedPackage = `
apiVersion: packages.operators.coreos.com/v1
kind: PackageManifest
metadata: {name: etcd, namespace: olm}
status:
  packageName: etcd
  catalogSource: operatorhubio-catalog
  catalogSourceNamespace: olm
  defaultChannel: alpha
  channels:
    - {name: alpha, currentCSV: etcdoperator.v0.9.2, entries: [{name: etcdoperator.v0.9.2, version: 0.9.2}]}
`
)

// kind is that of an object of OLM's.
func kind(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(harness.OLMVersion.WithKind(name))
	return u
}

// largePlan is a plan for the allowed version with the manifests of an operator in its steps.
func largePlan(namespace, name string, size int) *unstructured.Unstructured {
	p := harness.InstallPlan(namespace, name, harness.AllowedVersion)
	steps := p.Object["status"].(map[string]any)["plan"].([]any)
	manifest := func(kind, name string, bytes int) string {
		text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": kind,
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"description": strings.Repeat("what an author says of \"it\"; ", bytes/29)}})
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	for _, step := range []struct {
		kind    string
		percent int
	}{
		{"ClusterServiceVersion", 30},
		{"CustomResourceDefinition", 32},
		{"CustomResourceDefinition", 24},
		{"ServiceAccount", 1},
		{"Role", 3},
		{"RoleBinding", 1},
		{"ClusterRole", 3},
		{"ClusterRoleBinding", 1},
		{"Service", 1},
	} {
		text := manifest(step.kind, "etcd", size*step.percent/100)
		if step.kind == "ClusterServiceVersion" {
			steps[0].(map[string]any)["resource"].(map[string]any)["manifest"] = manifest(step.kind, harness.AllowedCSV,
				size*step.percent/100)
			continue
		}
		steps = append(steps, map[string]any{"resolving": harness.AllowedCSV, "status": "Unknown",
			"resource": map[string]any{
				"group": "", "version": "v1", "kind": step.kind, "name": "etcd", "sourceName": harness.GoodCatalog,
				"sourceNamespace": "olm",
				"manifest":        text,
			}})
	}
	p.Object["status"].(map[string]any)["plan"] = steps
	return p
}

// named makes the Subscription of a namespace say that a plan is the one that it follows.
func (e *speedEnv) named(ctx context.Context, namespace, plan string) error {
	u := kind("Subscription")
	u.SetNamespace(namespace)
	u.SetName("etcd")
	status := fmt.Sprintf(`{"status":{"state":"UpgradePending","currentCSV":%q,"lastUpdated":"2026-11-21T00:00:00Z",
		"installPlanRef":{"apiVersion":"operators.coreos.com/v1alpha1","kind":"InstallPlan","namespace":%q,"name":%q}}}`, harness.AllowedCSV, namespace, plan)
	if err := e.OLM.Status().Patch(ctx, u, crclient.RawPatch("application/merge-patch+json",
		[]byte(status))); err != nil {
		return err
	}
	return e.seen(ctx, "subscriptions", u)
}

// written writes a plan without its status, as OLM does first, and returns the status to be written.
func (e *speedEnv) written(ctx context.Context, p *unstructured.Unstructured) (any, error) {
	status := p.Object["status"]
	delete(p.Object, "status")
	return status, e.OLM.Create(ctx, p)
}

// waitsForApproval writes the status of a plan: OLM has resolved it, and it requires approval.
func (e *speedEnv) waitsForApproval(ctx context.Context, p *unstructured.Unstructured, status any) error {
	p.Object["status"] = status
	return e.OLM.Status().Update(ctx, p)
}

// reported waits until the policy of a namespace states something of a plan, which is the last thing that the loop does
// for it. It watches, so that no request competes with an approval that is timed.
func (e *speedEnv) reported(ctx context.Context, namespace, plan, text string) error {
	ctx, cancel := speed.WithTimeout(ctx, harness.WaitTimeout)
	defer cancel()
	policies := e.Clients[cluster.Admin].Resource(harness.OperatorPolicies).Namespace(cluster.PolicyNamespace)
	name := fields.OneTermEqualSelector("metadata.name", namespace).String()
	_, err := watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = name
			return policies.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = name
			return policies.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, nil, func(event watch.Event) (bool, error) {
		u, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return false, apierrors.FromObject(event.Object)
		}
		op := &policyv1beta2.OperatorPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, op); err != nil {
			return false, err
		}
		related := slices.ContainsFunc(op.Status.RelatedObjects, func(r policyv1beta2.RelatedObject) bool {
			return r.Object.Kind == "InstallPlan" && r.Object.Metadata.Name == plan
		})
		return related && slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "InstallPlanCompliant" && strings.Contains(c.Message, text)
		}), nil
	})
	return err
}

// seen waits until Opgate's snapshot has an object.
func (e *speedEnv) seen(ctx context.Context, resource string, u *unstructured.Unstructured) error {
	return speed.Poll(ctx, harness.PollInterval, harness.WaitTimeout,
		func(ctx context.Context) (bool, error) {
			snapshot, err := e.Gate.Snapshot(ctx)
			if err != nil {
				return false, err
			}
			order, err := resourceversion.CompareResourceVersion(snapshot.ResourceVersions[resource],
				u.GetResourceVersion())
			return err == nil && order >= 0, err
		})
}

// refused begins requests that the API server has refused by the backstop.
const refused = "refused: "

// requests are those of Opgate since an instant, but for those that keep its leases, and for one of each that comes
// again after minutes whatever happens: the API server ends watches after 5 to 10 minutes, and catalogs are asked again
// after 5. On a slow machine a test takes longer than that.
func (e *speedEnv) requests(since time.Time) ([]string, error) {
	all, err := e.OpgateRequests(since, time.Time{})
	var requests []string
	periodic := map[string]bool{}
	for _, r := range all {
		if r.Object.Resource == "leases" || r.Reopened() {
			continue
		}
		what := r.Verb + " " + rights.For(r).Resource
		if r.Object.Resource != "events" { // the name of one is a number
			what += " " + r.Object.Name
		}
		comesAgain := r.Verb == "watch" || r.Verb == "get" &&
			(r.Object.Resource == "packagemanifests" || r.Object.Resource == "")
		if comesAgain && time.Since(e.started) > watchesLast && !periodic[what] {
			periodic[what] = true
			continue
		}
		if strings.Contains(r.Response.Message, harness.HeldBy) {
			what = refused + what
		}
		requests = append(requests, what)
	}
	return requests, err
}

// waitQuiet waits until Opgate has done all that there is to do.
func (e *speedEnv) waitQuiet(t testing.TB) {
	t.Helper()
	var last []string
	quiet := speed.Scale(harness.QuietPeriod)
	err := speed.Poll(t.Context(), time.Second, harness.SettleTimeout,
		func(context.Context) (_ bool, err error) {
			last, err = e.requests(time.Now().Add(-quiet))
			return len(last) == 0 && time.Since(e.started) > harness.CatalogAgain+quiet, err
		})
	if err != nil {
		t.Fatalf("the loop does not come to rest: %v\n%s", err, strings.Join(last, "\n"))
	}
}

// waiting is a plan that will wait for its approval when its status is written.
type waiting struct {
	plan   *unstructured.Unstructured
	status any
}

// newWaiting writes a plan without its status. Only one that the Subscription names is approved by the loop.
func (e *speedEnv) newWaiting(ctx context.Context, namespace, name string, named bool) (waiting, error) {
	p := largePlan(namespace, name, planSize)
	status, err := e.written(ctx, p)
	if err != nil || !named {
		return waiting{p, status}, err
	}
	if err := e.named(ctx, namespace, name); err != nil {
		return waiting{}, err
	}
	// That it is named and has no status yet is reported as well, after a while.
	return waiting{p, status}, e.reported(ctx, namespace, name, "")
}
