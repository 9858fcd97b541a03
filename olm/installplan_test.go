package olm

import (
	"strings"
	"testing"
)

const digestedPlan = `{"metadata":{"name":"install-x7"},"status":{"phase":"Installing",
	"bundleLookups":[{"path":"registry.example/etcd@sha256:aa","identifier":"etcd.v0.9.4"}],
	"plan":[
		{"resolving":"etcd.v0.9.4","status":"Unknown","resource":{"group":"","version":"v1","kind":"Service","name":"etcd","manifest":"{\"port\":1}"}},
		{"resolving":"etcd.v0.9.4","status":"Unknown","resource":{"group":"rbac.authorization.k8s.io","version":"v1","kind":"Role","name":"etcd",
			"manifest":"{\"rules\":[]}"}}]}}`

// TestPlanContentsDigest: what a plan writes has one digest in a review and in the store, whatever OLM has done of it.
func TestPlanContentsDigest(t *testing.T) {
	decode := func(edits ...string) *InstallPlan {
		t.Helper()
		raw := strings.NewReplacer(edits...).Replace(digestedPlan)
		if len(edits) > 0 && raw == digestedPlan {
			t.Fatalf("%q edits nothing", edits)
		}
		p, err := DecodePlan([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := decode().ContentsDigest()
	for _, c := range []struct {
		name  string
		edits []string
		same  bool
	}{
		{name: "no edit", same: true},
		{name: "OLM has written a step", edits: []string{"Unknown", "Created"}, same: true},
		{name: "OLM has finished", edits: []string{"Installing", "Complete"}, same: true},
		{name: "OLM has failed", edits: []string{"Installing", "Failed"}, same: true},
		{name: "another manifest of a kind that judging does not read", edits: []string{"port", "host"}},
		{name: "another step", edits: []string{`"name":"etcd","manifest":"{\"port`,
			`"name":"etcd2","manifest":"{\"port`}},
		{name: "text moved between fields", edits: []string{`"group":"","version":"v1"`, `"group":"v1","version":""`}},
		{name: "another group", edits: []string{"rbac.", "rbac2."}},
		{name: "another owner", edits: []string{`"resolving":"etcd.v0.9.4"`, `"resolving":"etcd.v0.9.5"`}},
		{name: "another image", edits: []string{"sha256:aa", "sha256:ab"}},
		{name: "another bundle", edits: []string{`"identifier":"etcd.v0.9.4"`, `"identifier":"etcd.v0.9.5"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := decode(c.edits...)
			got := p.ContentsDigest()
			if same := got == want; same != c.same {
				t.Errorf("same digest: %t, want %t", same, c.same)
			}
			if p.Trim(); p.ContentsDigest() != got {
				t.Error("trimmed, the plan has another digest")
			}
			if p.Trim(); p.ContentsDigest() != got {
				t.Error("trimmed twice, the plan has another digest")
			}
		})
	}
}
