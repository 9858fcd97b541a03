package snapshot

import (
	"slices"
	"testing"
	"time"
)

// TestStoredPlanKeepsDefinitions checks that a snapshot retains the steps of a plan that show which definitions it
// created.
func TestStoredPlanKeepsDefinitions(t *testing.T) {
	const plan = `{
		"metadata": {"namespace": "shop", "name": "install-1", "creationTimestamp": "2026-11-21T09:00:00Z"},
		"spec": {"approved": true, "clusterServiceVersionNames": ["etcd.v1"]},
		"status": {
			"phase": "Complete",
			"conditions": [{"type": "Installed", "status": "True", "lastTransitionTime": "2026-11-21T09:00:30Z"}],
			"plan": [
				{"resolving": "etcd.v1", "status": "Created", "resource": {"group": "operators.coreos.com", "kind": "ClusterServiceVersion", "name": "etcd.v1"}},
				{"resolving": "etcd.v1", "status": "Unknown", "resource": {"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": "etcds.example.com"}},
				{"resolving": "etcd.v1", "status": "Created", "resource": {"group": "", "kind": "Service", "name": "etcd"}}
			]
		}
	}`
	kept := snapshotOf(read(InstallPlans, plan)).Namespace("shop").Plans()[0]
	if got := kept.Status.InstalledAt; got != "2026-11-21T09:00:30Z" ||
		kept.Metadata.CreationTimestamp != "2026-11-21T09:00:00Z" {
		t.Errorf("created %s, installed at %s", kept.Metadata.CreationTimestamp, got)
	}
	if len(kept.Status.Steps) != 2 || !kept.Status.Steps[1].WritesDefinition() {
		t.Errorf("steps are %+v", kept.Status.Steps)
	}
}

const installedEtcd = `{"metadata":{"namespace":"shop","name":"etcd.v1","annotations":{
	"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.0\"}}]}"}}}`

// notUpgradeableEtcd returns an OperatorCondition of the only operator in installedEtcd.
func notUpgradeableEtcd(version string) *Object {
	return read(OperatorConditions, `{"metadata":{"namespace":"shop","name":"etcd.v1","resourceVersion":"`+version+`"},
		"status":{"conditions":[{"type":"Upgradeable","status":"False","message":"busy"}]}}`)
}

// TestOperatorConditions checks what a snapshot retains of an OperatorCondition.
func TestOperatorConditions(t *testing.T) {
	for _, tt := range []struct {
		name      string
		condition *Object
		want      string
	}{
		{
			name:      "not upgradeable",
			condition: notUpgradeableEtcd("1"),
			want:      `Upgradeable is False, "busy"`,
		},
		{
			name: "nothing is said",
			condition: read(OperatorConditions,
				`{"metadata":{"namespace":"shop","name":"etcd.v1"},"spec":{"deployments":["etcd"]}}`),
		},
		{
			name: "about another operator",
			condition: read(OperatorConditions, `{"metadata":{"namespace":"shop","name":"etcd.v2"},
				"status":{"conditions":[{"type":"Upgradeable","status":"False"}]}}`),
		},
		{
			name: "in another namespace",
			condition: read(OperatorConditions, `{"metadata":{"namespace":"elsewhere","name":"etcd.v1"},
				"status":{"conditions":[{"type":"Upgradeable","status":"False"}]}}`),
		},
		{
			name: "one that does not decode holds",
			condition: read(OperatorConditions,
				`{"metadata":{"namespace":"shop","name":"etcd.v1"},"status":{"conditions":"all"}}`),
			want: "it cannot be read",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			installed := snapshotOf(read(ClusterServiceVersions, installedEtcd),
				tt.condition).Namespace("shop").Installed()
			if len(installed) != 1 || installed[0].NotUpgradeable != tt.want {
				t.Errorf("installed is %+v, want etcd.v1 with %q", installed, tt.want)
			}
		})
	}
}

// TestOperatorConditionChanges: a change of an OperatorCondition makes the loop judge its namespace again.
func TestOperatorConditionChanges(t *testing.T) {
	var b Builder
	b.Put(time.Time{}, read(ClusterServiceVersions, installedEtcd))
	busy := notUpgradeableEtcd("1")
	ready := read(OperatorConditions, `{"metadata":{"namespace":"shop","name":"etcd.v1","resourceVersion":"2"}}`)
	for _, step := range []struct {
		old, now *Object
		want     string
	}{
		{now: busy, want: `Upgradeable is False, "busy"`},
		{old: busy, now: ready},
		{old: ready, now: busy, want: `Upgradeable is False, "busy"`},
		{old: busy},
	} {
		next, change := b.build(time.Time{}, []event{{old: step.old, now: step.now}})
		if !slices.Contains(change.Namespaces, "shop") {
			t.Errorf("changed are %q", change.Namespaces)
		}
		if got := next.Namespace("shop").Installed()[0].NotUpgradeable; got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}
