package explore

import (
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

// TestExpect checks the model itself.
func TestExpect(t *testing.T) {
	t.Parallel()
	const (
		v10, v11, v12, v20 = "alpha.v1.0.0", "alpha.v1.1.0", "alpha.v1.2.0", "alpha.v2.0.0"
		catalog            = "apply catalogsource explored-catalog\n"
		group              = "apply operatorgroup team\n"
	)
	for name, test := range map[string]struct {
		script, installed string
		second            bool
		want              expectation
	}{
		"no Subscription": {script: catalog, want: expectation{}},
		"a policy without a list installs the head": {
			script: catalog + "apply operatorpolicy a complianceType=musthave channel=stable",
			want:   expectation{csv: v12},
		},
		"a list installs the newest of the channel": {
			script: catalog + "apply operatorpolicy a complianceType=musthave channel=stable " +
				"versions=alpha.v1.0.0,alpha.v1.1.0,alpha.v2.0.0",
			want: expectation{csv: v11, why: v12},
		},
		"an upgrade goes step by step": {
			script: catalog + "apply operatorpolicy a complianceType=musthave channel=candidate " +
				"versions=alpha.v1.1.0,alpha.v2.0.0",
			installed: v11,
			want:      expectation{csv: v11, why: v12},
		},
		"an upgrade that is not approved": {
			script:    catalog + "apply operatorpolicy a complianceType=musthave channel=stable upgradeApproval=None",
			installed: v10,
			want:      expectation{csv: v10, why: v11},
		},
		"a policy about the other namespace": {
			script: catalog + "apply operatorpolicy a complianceType=musthave channel=stable namespace=second",
			want:   expectation{},
		},
		"no catalog": {
			script: "apply operatorpolicy a complianceType=musthave channel=stable",
			want:   expectation{why: catalogName},
		},
		"a Subscription that asks for Manual": {
			script: catalog + group + "apply subscription alpha channel=stable installPlanApproval=Manual",
			want:   expectation{why: v12},
		},
		"an allow-list approves for who asked for Automatic": {
			script: catalog + group +
				"apply subscription alpha channel=stable installPlanApproval=Automatic startingCSV=alpha.v1.0.0\n" +
				"apply operatorpolicy a complianceType=mayhave channel=stable versions=alpha.v1.0.0,alpha.v1.1.0",
			want: expectation{csv: v11, why: v12},
		},
		"the annotation counts before the value of the same write": {
			script: catalog + group + "apply subscription alpha channel=old installPlanApproval=Manual requested=Automatic",
			want:   expectation{csv: v11},
		},
		"a version is removed": {
			script:    catalog + "apply operatorpolicy a complianceType=mustnothave versions=alpha.v1.0.0",
			installed: v10,
			want:      expectation{},
		},
		"a Constraint holds the head": {
			script: catalog + group +
				"apply subscription alpha channel=stable installPlanApproval=Automatic\napply constraint c forbids=alpha.v1.2.0",
			want: expectation{why: v12},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script, err := parse(test.script)
			if err != nil {
				t.Fatal(err)
			}
			s := state{}
			for _, a := range script {
				s = s.after(a)
			}
			if got := s.expect(test.installed, test.second); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	s := state{operatorPolicy + "/a": fields{"complianceType": mustnothave, "versions": v20}}
	if s.forbidden(v20, false) == "" || s.forbidden(v12, false) != "" {
		t.Error("mustnothave forbids its versions alone")
	}
}

// TestScripts wants a seed to choose the same walk each time, and a script to be read as it was written.
func TestScripts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		script := generate(seed, 20)
		if len(script) != 20 || format(script) != format(generate(seed, 20)) {
			t.Fatalf("seed %d chooses %d actions, or others the second time", seed, len(script))
		}
		again, err := parse(format(script))
		if err != nil || format(again) != format(script) {
			t.Fatalf("seed %d: %v\n%s", seed, err, format(again))
		}
		for _, a := range script {
			if a.verb == apply {
				place{}.objects(a)
			}
		}
	}
	for script, want := range map[string]string{
		"apply pod a": "names no object", "apply subscription": "names no object", "restart kubelet": "restart olm",
		"dance": "unknown action", "apply subscription a channel": "want field=value",
	} {
		if _, err := parse(script); err == nil {
			t.Errorf("%s is accepted", script)
		} else {
			harness.WantTexts(t, err.Error(), want)
		}
	}
}
