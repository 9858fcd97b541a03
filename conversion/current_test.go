package conversion

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestCurrent(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"v1beta1, with a status of another program": {
			in: `{apiVersion: policy.open-cluster-management.io/v1beta1, spec: {upgradeApproval: None}, status: {compliant: 3}}`,
			want: `{apiVersion: policy.open-cluster-management.io/v1beta2, metadata: {annotations: {opgate.io/conversion: '{"dialect":"upgradeApproval"}'}},
				spec: {upgradeApproval: None}}`,
		},
		"v1beta1 in the older dialect": {
			in: `{apiVersion: policy.open-cluster-management.io/v1beta1, spec: {subscription: {installPlanApproval: Automatic}}}`,
			want: `{apiVersion: policy.open-cluster-management.io/v1beta2, metadata: {annotations: {opgate.io/conversion: '{"dialect":"installPlanApproval"}'}},
				spec: {upgradeApproval: Automatic, subscription: {}}}`,
		},
		"v1beta2 as it is": {
			in:   `{apiVersion: policy.open-cluster-management.io/v1beta2, spec: {}, status: {compliant: 3}}`,
			want: `{apiVersion: policy.open-cluster-management.io/v1beta2, spec: {}, status: {compliant: 3}}`,
		},
		"no object": {in: `[]`, want: `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := yaml.YAMLToJSON([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			want, err := yaml.YAMLToJSON([]byte(test.want))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Current(in)
			if err != nil {
				t.Fatal(err)
			}
			if stripped, err := WithoutStatus(got); (err == nil) != (test.in != "[]") ||
				strings.Contains(string(stripped), "status") {
				t.Errorf("without its status it is %s, %v", stripped, err)
			}
			if got, err = yaml.YAMLToJSON(got); err != nil || string(got) != string(want) { // in the same order
				t.Errorf("got %s, %v\nwant %s", got, err, want)
			}
		})
	}
}
