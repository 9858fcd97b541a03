package snapshot

import "testing"

// TestStoredPlanKeepsDefinitions checks that a snapshot retains the steps of a plan that show which definitions it created.
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
	if got := kept.Status.InstalledAt(); got != "2026-11-21T09:00:30Z" || kept.Metadata.CreationTimestamp != "2026-11-21T09:00:00Z" {
		t.Errorf("created %s, installed at %s", kept.Metadata.CreationTimestamp, got)
	}
	if len(kept.Status.Steps) != 2 || !kept.Status.Steps[1].WritesDefinition() {
		t.Errorf("steps are %+v", kept.Status.Steps)
	}
}
