package compliance

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// contents adds to the namespace of an input a completed plan, and what is installed now.
func contents(t *testing.T, planned, installed string) given {
	t.Helper()
	decode := func(spec string) *olm.CSV {
		csv, err := olm.Decode[olm.CSV]([]byte(`{"metadata":{"name":"etcd.v1.2.0","namespace":"shop"},"spec":` + spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return csv
	}
	done := approved(plan("install-a", olm.PhaseComplete, "etcd.v1.2.0"))
	done.Status.Steps = []olm.Step{{Status: "Created", Resource: olm.StepResource{
		Kind: kindClusterServiceVersion, Name: "etcd.v1.2.0", Manifest: olm.Manifest{Spec: &decode(planned).Spec},
	}}}
	here := state.Installed{Bundle: decode(installed).StatedBundle()}
	return func(in *fixture) {
		in.contents = state.NamespaceContents{
			Policies: []*operatorpolicy.Policy{rules.NewOperatorPolicy(in.Policy)}, CSVs: []state.Installed{here},
			Plans: []*olm.InstallPlan{done},
		}
	}
}

// TestA6DriftIsReported compares what is installed with its plan (threat O9).
func TestA6DriftIsReported(t *testing.T) {
	for _, s := range []scenario{
		{
			name: "as the plan brought it", given: []given{running,
				contents(t, `{"displayName":"etcd"}`, `{"displayName":"etcd"}`)},
			want: map[string]string{TypeClusterServiceVersion: "True InstallSucceeded"},
		},
		{
			name:  "changed, under a policy that informs",
			given: []given{running, contents(t, `{"displayName":"etcd"}`, `{"displayName":"evil"}`)},
			want:  map[string]string{TypeClusterServiceVersion: "False ContentsChanged"},
			says: map[string]string{TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.2.0) differs from what its InstallPlan installed: its spec was changed after OLM installed it, " +
				"or by another account before; write back the spec that is recorded of it, or delete it together with its Subscription so that OLM reinstalls it"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 NonCompliant ClusterServiceVersion (etcd.v1.2.0) differs from what its InstallPlan installed"}},
		},
	} {
		t.Run(s.name, s.run)
	}
	out := Evaluate(input(enforced, running, contents(t, `{"displayName":"etcd"}`, `{"displayName":"evil"}`)))
	for _, f := range out.Conditions {
		if f.Type == TypeClusterServiceVersion && !strings.HasSuffix(f.Message,
			"; until then the policy approves no upgrade of it") {
			t.Errorf("under a policy that enforces it says %q", f.Message)
		}
	}
}

// TestAdoptedContentsAreReported: nothing shows that OLM installed what was there before the record (threat O53).
func TestAdoptedContentsAreReported(t *testing.T) {
	for adopted, want := range map[bool]string{true: "; its contents are accepted: they were installed before Opgate recorded what is installed", false: ""} {
		in := input(enforced, running, func(in *fixture) {
			in.contents = state.NamespaceContents{Policies: []*operatorpolicy.Policy{rules.NewOperatorPolicy(in.Policy)},
				Record: &state.InstallRecord{Namespace: "shop",
					Operators: []state.RecordedOperator{{Package: "etcd", CSV: "etcd.v1.2.0", Adopted: adopted}}}}
		})
		for _, f := range Evaluate(in).Conditions {
			if f.Type == TypeClusterServiceVersion &&
				(f.Reason != "InstallSucceeded" || strings.Contains(f.Message, "accepted") != adopted ||
					!strings.HasSuffix(f.Message, want)) {
				t.Errorf("adopted %v: %s: %s", adopted, f.Reason, f.Message)
			}
		}
	}
}

// TestA5RefusedPlanIsReported covers a plan that was approved before the policy was created.
func TestA5RefusedPlanIsReported(t *testing.T) {
	before := approved(plan("install-b", olm.PhaseInstalling, "etcd.v1.3.0"))
	before.Status.BundleLookups = []olm.BundleLookup{{Identifier: "etcd.v1.3.0",
		Catalog:    olm.Catalog{Namespace: "olm", Name: "bargain"},
		Properties: `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"1.3.0"}}]}`}}
	in := input(enforced, upgrading(before, "install-b"), func(in *fixture) {
		in.contents = state.NamespaceContents{Policies: []*operatorpolicy.Policy{rules.NewOperatorPolicy(in.Policy)},
			Plans: []*olm.InstallPlan{before}}
	})
	for _, f := range Evaluate(in).Conditions {
		if f.Type != TypeInstallPlan {
			continue
		}
		if f.Status != "False" || f.Reason != "InstallPlanRefused" ||
			!strings.Contains(f.Message,
				"etcd.v1.3.0 from catalog olm/bargain is not allowed by OperatorPolicy policies/etcd-policy (bundle/catalog)") {
			t.Errorf("it says %s %s: %s", f.Status, f.Reason, f.Message)
		}
	}
}
