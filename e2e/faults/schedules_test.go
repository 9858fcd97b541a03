package faults

// schedule is a row of the campaign.
type schedule struct {
	// id is that of its results.
	id string
	// script is what fails: verbs of faults, separated by semicolons. When it is over, all that it did is undone.
	script string
	// short is whether it is played without flag -all.
	short bool
	// unjudged is whether the API server may admit what only the webhooks judge, while the fault lasts.
	unjudged bool
	// ungoverned is whether policies are lost by the fault, so that the attacker begins after it.
	ungoverned bool
	// last is whether OLM begins anew after it.
	last bool
}

// expected are the IDs of schedules that fail on known defects. A schedule is played when it is not in this list any
// more:
//   - D1, watches that deliver nothing: st1, st2, st4, st5
//   - D2, two leaders after a pause: dy00, a10
//   - D3, policies that cannot be read: b18
var expected = []string{}

// schedules is the campaign. "leader" and "follower" are the replicas as they are when the fault begins.
// kube-controller-manager runs in all of them, from the assets "controllers".
var schedules = []schedule{
	{id: "a01", script: "pause leader; wait 25s"},
	{id: "a02", script: "kill leader"},
	{id: "a03", script: "kill leader; kill follower"},
	{id: "a04", script: "lease steal; wait 2s-3s; lease steal; wait 2s-3s; lease steal"},
	{id: "a05", script: "lease delete; kill leader", short: true},
	{id: "a06", script: "lease empty; wait 2s; lease long; wait 2s; lease future; wait 2s; lease steal; wait 2s; lease release"},
	{id: "a07", script: "pause apiserver; wait 8s-12s", short: true},
	{id: "a08", script: "pause etcd; wait 8s-12s"},
	{id: "a09", script: "compact; kill apiserver"},
	{id: "a10", script: "pause leader; wait 40s; kill apiserver"},
	{id: "a11", script: "kill leader; kill etcd"},
	{id: "a12", script: "delay both 2s; wait 8s-12s"},
	{id: "a13", script: "reset both 10"},
	{id: "a14", script: "refusewatches both; reset both 1; wait 12s"},
	{id: "a15", script: "stall leader *; wait 14s-18s; kill follower"},
	{id: "a16", script: "blackhole leader; wait 20s"},
	{id: "a17", script: "refuse both; reset both 1; wait 8s-12s"},

	{id: "b00", script: "webhooks cabundle"},
	{id: "b01", script: "webhooks delete; wait 5s", unjudged: true},
	{id: "b02", script: "webhooks empty; wait 1s", unjudged: true},
	{id: "b03", script: "secret delete opgate-ca; wait 3s-5s"},
	{id: "b04", script: "secret garbage opgate-ca; wait 8s"},
	{id: "b05", script: "secret delete opgate-ca; kill leader; kill follower"},
	{id: "b06", script: "secret garbage opgate-marks; kill leader; kill follower"},
	{id: "b07", script: "secret delete opgate-marks; wait 3s-5s"},
	{id: "b08", script: "rights opgate-loop; wait 12s-18s"},
	{id: "b09", script: "rights opgate-admission opgate-reader opgate-constraint-reader; kill leader; wait 12s-18s"},
	{id: "b10", script: "rights opgate-certs opgate-backstop opgate-contents; wait 10s-14s"},
	{id: "b11", script: "rights opgate; wait 20s"},
	{id: "b12", script: "conversion none; wait 8s-12s"},
	{id: "b13", script: "pause olm; wait 8s-12s"},
	{id: "b14", script: "kill olm; wait 1s-3s"},
	{id: "b15", script: "namespace delete"},
	{id: "b16", script: "policies recreate 50"},
	{id: "b18", script: "policies unreadable; wait 2s-4s; kill leader; wait 18s-20s"},
	{id: "b19", script: "backstop delete 10", short: true},

	{id: "c00", script: "pause etcd; pause leader; wait 20s"},
	{id: "c01", script: "refusewatches both; reset both 1; compact; wait 2s; compact; kill apiserver"},
	{id: "c02", script: "definition delete installplans.operators.coreos.com; wait 5s", last: true},
	{id: "c03", script: "kill apiserver; kill leader; kill follower; wait 3s-5s", short: true},
	{id: "c04", script: "pause olm; kill leader; wait 8s-12s"},
	{id: "c05", script: "certificates short; wait 60s", last: true},
	{id: "c06", script: "definition delete subscriptions.operators.coreos.com clusterserviceversions.operators.coreos.com; wait 5s", last: true},
	{id: "c07", script: "definition delete operatorpolicies.policy.open-cluster-management.io; wait 2s",
		ungoverned: true, last: true},
	{id: "mass", script: "policies many 200"},

	{id: "st1", script: "allow; stall follower *; forbid; subscribe; wait 30s"},
	{id: "st2", script: "allow; stall both operatorpolicies; forbid; subscribe; wait 30s"},
	{id: "st4", script: "allow; stall leader operatorpolicies; forbid; subscribe; wait 30s"},
	{id: "st5", script: "allow; stall both *; forbid; subscribe; wait 30s"},
	{id: "dy00", script: "pause leader; wait 25s; end; wait 12s"},
}
