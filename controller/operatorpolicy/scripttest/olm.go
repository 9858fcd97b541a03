package scripttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// move is a Subscription of $NS and the ClusterServiceVersion to install for it, which is named after its version.
type move struct {
	subscription          *unstructured.Unstructured
	csv, pkg, catalog, in string
}

func (m *move) version() string { _, v, _ := strings.Cut(m.csv, ".v"); return v }

func (m *move) properties() string {
	return fmt.Sprintf(`{"properties":[{"type":"olm.package","value":{"packageName":%q,"version":%q}}]}`, m.pkg,
		m.version())
}

// moves reads arguments SUBSCRIPTION=CSV.
func (p *Player) moves(ts *testscript.TestScript, args []string) []*move {
	var moves []*move
	for _, arg := range args {
		name, csv, ok := strings.Cut(arg, "=")
		if !ok {
			ts.Fatalf("%s is not SUBSCRIPTION=CSV", arg)
		}
		m := &move{csv: csv, subscription: olmObject("Subscription", ts.Getenv("NS"), name)}
		p.Until(ts, false, func(ctx context.Context) error {
			return p.OLM.Get(ctx, client.ObjectKeyFromObject(m.subscription), m.subscription)
		})
		for field, to := range map[string]*string{"name": &m.pkg, "source": &m.catalog, "sourceNamespace": &m.in} {
			*to, _, _ = unstructured.NestedString(m.subscription.Object, "spec", field)
		}
		moves = append(moves, m)
	}
	return moves
}

func olmObject(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("operators.coreos.com/v1alpha1")
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// cmdProposes writes a plan and the Subscriptions that follow it. Like OLM it approves the plan itself unless one
// Subscription of the namespace is Manual.
func (p *Player) cmdProposes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: proposes PLAN SUBSCRIPTION=CSV...")
	}
	ctx := p.Context
	subscriptions := &unstructured.UnstructuredList{}
	subscriptions.SetAPIVersion("operators.coreos.com/v1alpha1")
	subscriptions.SetKind("SubscriptionList")
	ts.Check(p.OLM.List(ctx, subscriptions, client.InNamespace(ts.Getenv("NS"))))
	approval, phase := "Automatic", "Installing"
	if slices.ContainsFunc(subscriptions.Items, func(u unstructured.Unstructured) bool {
		value, _, _ := unstructured.NestedString(u.Object, "spec", "installPlanApproval")
		return value == "Manual"
	}) {
		approval, phase = "Manual", "RequiresApproval"
	}
	var csvs, lookups []any
	moves := p.moves(ts, args[1:])
	for _, m := range moves {
		csvs = append(csvs, m.csv)
		lookups = append(lookups, map[string]any{
			"identifier": m.csv, "path": "registry.invalid/" + m.csv, "replaces": "", "properties": m.properties(),
			"catalogSourceRef": map[string]any{"name": m.catalog, "namespace": m.in},
		})
	}
	plan := olmObject("InstallPlan", ts.Getenv("NS"), args[0])
	for _, m := range moves {
		plan.SetOwnerReferences(append(plan.GetOwnerReferences(),
			metav1.OwnerReference{APIVersion: m.subscription.GetAPIVersion(),
				Kind: m.subscription.GetKind(), Name: m.subscription.GetName(), UID: m.subscription.GetUID()}))
	}
	plan.Object["spec"] = map[string]any{"approval": approval, "approved": approval == "Automatic",
		"generation": int64(1), "clusterServiceVersionNames": csvs}
	plan.Object["status"] = map[string]any{"phase": phase, "catalogSources": []any{}, "bundleLookups": lookups}
	ts.Check(p.Apply(plan))
	for _, m := range moves {
		ts.Check(p.follow(ctx, m, map[string]any{"currentCSV": m.csv, "state": "UpgradePending", "conditions": nil,
			"installPlanRef": map[string]any{"apiVersion": plan.GetAPIVersion(), "kind": plan.GetKind(),
				"namespace": plan.GetNamespace(), "name": plan.GetName()}}))
	}
}

// follow changes the status of a Subscription.
func (p *Player) follow(ctx context.Context, m *move, fields map[string]any) error {
	before := m.subscription.DeepCopy()
	status, _, _ := unstructured.NestedMap(m.subscription.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	status["lastUpdated"] = "2026-01-01T00:00:00Z"
	for field, value := range fields {
		status[field] = value
		if value == nil {
			delete(status, field)
		}
	}
	m.subscription.Object["status"] = status
	return p.OLM.Status().Patch(ctx, m.subscription, client.MergeFrom(before))
}

// cmdInstalls waits until a plan is approved and runs it: each ClusterServiceVersion replaces the previous one and
// has a Deployment, named after the Subscription, which is available.
func (p *Player) cmdInstalls(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: installs PLAN SUBSCRIPTION=CSV...")
	}
	ctx := p.Context
	plan := olmObject("InstallPlan", ts.Getenv("NS"), args[0])
	p.Until(ts, false, func(ctx context.Context) error {
		err := p.OLM.Get(ctx, client.ObjectKeyFromObject(plan), plan)
		if approved, _, _ := unstructured.NestedBool(plan.Object, "spec", "approved"); err == nil && !approved {
			err = errors.New("the plan is not approved")
		}
		return err
	})
	for _, m := range p.moves(ts, args[1:]) {
		text := os.Expand(installed, func(variable string) string {
			return map[string]string{"CSV": m.csv, "NS": ts.Getenv("NS"), "OPERATOR": m.subscription.GetName(),
				"PACKAGE":    m.pkg,
				"PROPERTIES": m.properties(), "VERSION": m.version()}[variable]
		})
		objects, err := documents(text)
		ts.Check(err)
		for _, u := range objects {
			ts.Check(p.Apply(u))
		}
		if before, _, _ := unstructured.NestedString(m.subscription.Object, "status", "installedCSV"); before != "" &&
			before != m.csv {
			ts.Check(p.OLM.Delete(ctx, olmObject("ClusterServiceVersion", ts.Getenv("NS"), before)))
		}
		ts.Check(p.follow(ctx, m, map[string]any{"currentCSV": m.csv, "installedCSV": m.csv, "state": "AtLatestKnown"}))
	}
	before := plan.DeepCopy()
	ts.Check(unstructured.SetNestedField(plan.Object, "Complete", "status", "phase"))
	ts.Check(p.OLM.Status().Patch(ctx, plan, client.MergeFrom(before)))
}

const installed = `apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: $CSV
  namespace: $NS
  labels: {operators.coreos.com/$PACKAGE.$NS: ""}
  annotations: {operatorframework.io/properties: '$PROPERTIES'}
spec:
  displayName: $OPERATOR
  version: $VERSION
  install:
    strategy: deployment
    spec:
      deployments:
        - name: $OPERATOR
          spec: {selector: {matchLabels: {app: op}}, template: {metadata: {labels: {app: op}}, spec: {containers: [{name: op, image: op}]}}}
status: {phase: Succeeded, message: install strategy completed with no errors, reason: InstallSucceeded}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: $OPERATOR, namespace: $NS}
spec: {replicas: 1, selector: {matchLabels: {app: op}}, template: {metadata: {labels: {app: op}}, spec: {containers: [{name: op, image: op}]}}}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}`
