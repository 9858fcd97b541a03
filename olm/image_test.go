package olm

import (
	"strings"
	"testing"
)

func TestImageDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0f", 32)
	for image, want := range map[string]string{
		"quay.io/example/etcd@" + digest:          digest,
		"mirror:5000/etcd:v0.9.4@" + digest:       digest,
		"quay.io/example/etcd:v0.9.4":             "",
		"quay.io/example/etcd":                    "",
		"quay.io/etcd@" + strings.ToUpper(digest): "",
		"quay.io/etcd@" + digest + "0":            "",
		"quay.io/etcd@" + digest[1:]:              "",
		"quay.io/etcd@" + digest + "@other":       "",
		"quay.io/etcd@sha512:" + digest[7:]:       "",
		digest:                                    "",
		"":                                        "",
	} {
		if got := ImageDigest(image); got != want {
			t.Errorf("%q has digest %q, want %q", image, got, want)
		}
	}
}

// TestInline reads the manifest of a step before and after Trim.
func TestInline(t *testing.T) {
	for name, c := range map[string]struct {
		manifest string
		want     bool
	}{
		"a reference":                 {`"{\"kind\":\"ConfigMap\",\"name\":\"n\",\"namespace\":\"olm\",\"catalogSourceName\":\"c\",\"catalogSourceNamespace\":\"olm\"}"`, false},
		"a reference without catalog": {`"{\"kind\":\"ConfigMap\",\"name\":\"n\",\"namespace\":\"olm\"}"`, true},
		"the object": {`"{\"kind\":\"ClusterServiceVersion\",\"metadata\":{\"name\":\"etcd.v1\"}}"`,
			true},
		"the object with properties": {`"{\"kind\":\"ClusterServiceVersion\",\"metadata\":{\"annotations\":{\"operatorframework.io/properties\":\"\"}}}"`, true},
		"keys in two cases":          {`"{\"kind\":\"ConfigMap\",\"name\":\"n\",\"namespace\":\"olm\",\"catalogSourceName\":\"c\",\"catalogSourceNamespace\":\"olm\",\"Kind\":\"x\"}"`, true},
		"no object":                  {`"nonsense"`, true},
		"no text":                    {`7`, true},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := DecodePlan(
				[]byte(`{"status":{"plan":[{"resource":{"kind":"ClusterServiceVersion","name":"etcd.v1","manifest":` +
					c.manifest + `}}]}}`))
			if err != nil {
				t.Fatal(err)
			}
			before := plan.Status.Steps[0].Resource.Inline()
			plan.Trim()
			if after := plan.Status.Steps[0].Resource.Inline(); before != c.want || after != c.want {
				t.Errorf("is %t, and %t in a snapshot, want %t", before, after, c.want)
			}
		})
	}
	if (&StepResource{Kind: KindClusterServiceVersion}).Inline() {
		t.Error("a step without a manifest has the object")
	}
}
