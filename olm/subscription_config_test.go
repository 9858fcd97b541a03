package olm_test

import (
	"encoding/json"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
)

// configs are where decoders, and what they refuse, differ.
var configs = []string{
	`{"selector":{"matchLabels":{"a":"b"}},"nodeSelector":{"c":"d"},"tolerations":[{"key":"e","operator":"Exists","tolerationSeconds":300}],` +
		`"env":[{"name":"A","value":"b"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.namespace"}}}],` +
		`"envFrom":[{"prefix":"x","secretRef":{"name":"s"}}],"resources":{"requests":{"cpu":"0.1","memory":134217728},"limits":{"cpu":1.5}},` +
		`"volumes":[{"name":"v","configMap":{"name":"m","items":[{"key":"k","path":"p","mode":420}]}}],` +
		`"volumeMounts":[{"name":"v","mountPath":"/p","readOnly":true}],"annotations":{"f":"g"},` +
		`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{}]}}}}`,
	`{}`, `null`, `[]`, `""`, `1`, `{"env":null}`, `{"env":[null]}`, `{"selector":{}}`, `{"resources":{}}`,
	`{"resources":null}`,
	`{"env":[],"env":[]}`, `{"env":[{"name":"A","name":"A"}]}`, `{"nodeSelector":{"a":"b","a":"b"}}`,
	`{"nodeSelector":{"a":"b","\u0061":"c"}}`,
	`{"Env":[]}`, `{"env":[{"Name":"A"}]}`, `{"other":1}`, `{"env":[{"other":1}]}`, `{"volumes":[{"other":{}}]}`,
	`{"env":{}}`, `{"env":[1]}`,
	`{"resources":{"limits":{"cpu":null}}}`, `{"resources":{"limits":{"cpu":"x"}}}`,
	`{"resources":{"limits":{"cpu":{"a":1,"a":2}}}}`,
	`{"resources":{"limits":{"cpu":"1","cpu":"1"}}}`, `{"resources":{"limits":{"cpu":1e3,"memory":-0}}}`,
	`{"tolerations":[{"tolerationSeconds":1.0}]}`,
	`{"tolerations":[{"tolerationSeconds":9223372036854775808}]}`,
	`{"volumes":[{"emptyDir":{"sizeLimit":"1Gi"}},{"hostPath":{"path":"/","type":""}}]}`,
	"{\"nodeSelector\":{\"\xff\":\"\xfe\"}}", "{\"nodeSelector\":{\"\xff\":\"a\",\"\xfe\":\"b\"}}",
	`{"nodeSelector":{"\ud800":"\udc00"}}`,
}

// FuzzSubscriptionConfig looks for a config that is read in another way than sigs.k8s.io/json reads it, or is refused
// by one and not by the other.
func FuzzSubscriptionConfig(f *testing.F) {
	for _, config := range configs {
		f.Add([]byte(config))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 4096 || !json.Valid(raw) {
			return // no object with such a member is decoded, or it is too large to be read
		}
		var got olm.SubscriptionConfig
		if err := got.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		got = got.Read()
		var typed v1alpha1.SubscriptionConfig
		faults, err := kjson.UnmarshalStrict(raw, &typed)
		if faulty := err != nil || len(faults) > 0; faulty != (got.Fault != "") {
			t.Fatalf("%q: fault %q, want %v and %v", raw, got.Fault, err, faults)
		}
		want, err := json.Marshal(&typed)
		if err != nil {
			t.Fatal(err)
		}
		if read := got.JSON; got.Fault == "" && read != string(want) && (read != "" || string(want) != "{}") {
			t.Errorf("%q: got %s, want %s", raw, read, want)
		}
	})
}
