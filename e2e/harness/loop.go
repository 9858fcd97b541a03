package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// LoopEnv is a control plane with the loop, and a player of scripts, whose clients know every kind.
type LoopEnv struct {
	*Env
	*scripttest.Player
	// Scraper is the token of Prometheus; empty where metrics are not secure.
	Scraper string
}

// Connect makes the player. It sends no request: kinds are discovered when they are first used.
func (e *LoopEnv) Connect(t testing.TB) {
	t.Helper()
	e.Player = &scripttest.Player{Context: context.Background(), Scale: speed.Scale, Now: time.Now, Repeat: repeated,
		Metrics: e.page,
		Poll: func(ctx context.Context, check func(context.Context) (bool, error)) error {
			return Poll(ctx, WaitTimeout, check)
		}}
	for user, to := range map[cluster.User]*crclient.Client{cluster.Admin: &e.Admin, cluster.OLM: &e.OLM} {
		config, err := e.RESTConfig(user)
		if err != nil {
			t.Fatal(err)
		}
		config.QPS = -1
		config.Wrap(retryWhileBusy)
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1beta2.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		if *to, err = crclient.New(config, crclient.Options{Scheme: scheme}); err != nil {
			t.Fatal(err)
		}
	}
}

// page returns the answer of the metrics endpoint to Prometheus.
func (e *LoopEnv) page(ctx context.Context) (string, error) {
	code, body, err := e.Scrape(ctx, e.Scraper)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("metrics: %d %s", code, body)
	}
	return body, err
}

// Terse keeps the log of a script to itself unless it fails, also with go test -v.
type Terse struct{ *testing.T }

// Run runs a script as a subtest.
func (t Terse) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(Terse{t}) })
}

// Verbose returns false.
func (Terse) Verbose() bool { return false }

// PackageManifests defines PackageManifest as a plain kind, for clusters without OLM's package server.
const PackageManifests = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: packagemanifests.packages.operators.coreos.com
  annotations: {api-approved.kubernetes.io: "unapproved, for tests"}
spec:
  group: packages.operators.coreos.com
  names: {kind: PackageManifest, listKind: PackageManifestList, plural: packagemanifests, singular: packagemanifest}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// Apply writes an object and its status.
func (e *LoopEnv) Apply(u *unstructured.Unstructured) error { return e.Player.Apply(u) }

// Write applies an object with its status.
func (e *LoopEnv) Write(t testing.TB, u *unstructured.Unstructured) {
	t.Helper()
	if err := e.Apply(u.DeepCopy()); err != nil {
		t.Fatal(err)
	}
}

// Propose does what OLM does when there is something to install: it writes a plan, and updates the Subscription. More
// are packages in the plan besides etcd, each with the packages that it requires; the entry for etcd has what etcd
// requires.
func (e *LoopEnv) Propose(t testing.TB, namespace, name, version string, more ...string) {
	t.Helper()
	p := InstallPlan(namespace, name, version)
	names, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "clusterServiceVersionNames")
	lookups, _, _ := unstructured.NestedSlice(p.Object, "status", "bundleLookups")
	for _, text := range more {
		words := strings.Fields(text)
		pkg, csv, v := words[0], words[0]+".v1.0.0", "1.0.0"
		if pkg == "etcd" {
			csv, v, lookups = "etcdoperator.v"+version, version, nil
		} else {
			names = append(names, csv)
		}
		properties := fmt.Sprintf(`{"properties":[{"type":"olm.package","value":{"packageName":%q,"version":%q}}`, pkg,
			v)
		for _, required := range words[1:] {
			properties += fmt.Sprintf(
				`,{"type":"olm.package.required","value":{"packageName":%q,"versionRange":">=0.0.0"}}`, required)
		}
		lookups = append(lookups, map[string]any{"identifier": csv, "path": "registry.invalid/" + csv, "replaces": "",
			"catalogSourceRef": map[string]any{"namespace": "olm", "name": GoodCatalog},
			"properties":       properties + "]}"})
	}
	spec, status := p.Object["spec"].(map[string]any), p.Object["status"].(map[string]any)
	all := make([]any, len(names))
	for i := range names {
		all[i] = names[i]
	}
	spec["clusterServiceVersionNames"], status["bundleLookups"] = all, lookups
	e.Write(t, p)
	s := Subscription(namespace, "etcd", GoodCatalog, "Manual")
	s.Object["status"] = map[string]any{"lastUpdated": "2026-01-01T00:00:00Z", "currentCSV": "etcdoperator.v" + version,
		"installPlanRef": map[string]any{"name": name, "namespace": namespace}}
	e.Write(t, s)
}

// Approved returns an error until a plan is approved.
func (e *LoopEnv) Approved(ctx context.Context, namespace, name string) error {
	p := InstallPlan(namespace, name, AllowedVersion)
	if err := e.Admin.Get(ctx, crclient.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	if approved, _, _ := unstructured.NestedBool(p.Object, "spec", "approved"); !approved {
		return errors.New("the plan is not approved")
	}
	return nil
}

// WaitApproved waits until a plan is approved.
func (e *LoopEnv) WaitApproved(t testing.TB, namespace, name string) {
	t.Helper()
	Eventually(t, "approve "+namespace+"/"+name,
		func(ctx context.Context) error { return e.Approved(ctx, namespace, name) })
}

// WantApproved checks whether a plan is approved now.
func (e *LoopEnv) WantApproved(t testing.TB, namespace, name string, want bool) {
	t.Helper()
	switch err := e.Approved(t.Context(), namespace, name); {
	case err == nil && !want:
		t.Errorf(Final+"plan %s/%s is approved", namespace, name)
	case err != nil && want:
		t.Errorf("plan %s/%s is not approved: %v", namespace, name, err)
	}
}

// StateOf reads a policy that was evaluated.
func (e *LoopEnv) StateOf(ctx context.Context, name string) (*policyv1beta2.OperatorPolicy, error) {
	op := &policyv1beta2.OperatorPolicy{}
	if err := e.Admin.Get(ctx, crclient.ObjectKey{Namespace: cluster.PolicyNamespace, Name: name}, op); err != nil {
		return nil, err
	}
	if op.Status.ObservedGeneration != op.Generation {
		return nil, errors.New("it was not evaluated yet")
	}
	return op, nil
}

// WaitCondition waits until a policy has a condition with a status, and a text in its message.
func (e *LoopEnv) WaitCondition(t testing.TB, name, conditionType, status, text string) {
	t.Helper()
	Eventually(t, "condition "+conditionType+" of "+name, func(ctx context.Context) error {
		op, err := e.StateOf(ctx, name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == conditionType && string(c.Status) == status && strings.Contains(c.Message, text)
		}) {
			return fmt.Errorf("want it %s with %q, have\n%s", status, text, scripttest.Conditions(op))
		}
		return nil
	})
}

const (
	// QuietPeriod is how long the loop sends no request once it is idle, on a machine of usual speed.
	QuietPeriod = 3 * time.Second
	// CatalogAgain is the delay until the loop reads a package again, after its catalog changed.
	CatalogAgain = 30 * time.Second
	// SettleTimeout bounds the wait until the loop has settled.
	SettleTimeout = speed.LongWait
	// PolicyPollInterval is how often a policy is read: rarely enough that it does not slow down an approval.
	PolicyPollInterval = 100 * time.Millisecond
	// Writers is how many objects are written at once while a test sets up many.
	Writers = 8
)

// AtOnce calls a function for every item, n calls at a time.
func AtOnce[T any](t testing.TB, n int, items []T, do func(ctx context.Context, item T) error) {
	t.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(items))
	turn := make(chan struct{}, n)
	for i, item := range items {
		turn <- struct{}{}
		group.Go(func() {
			errs[i] = do(t.Context(), item)
			<-turn
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
