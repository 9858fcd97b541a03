package olm

import "testing"

// TestContentsDigest compares the manifest of a plan with what the API server stores.
func TestContentsDigest(t *testing.T) {
	digest := func(s string) [32]byte { return ContentsDigest([]byte(s)) }
	const plan = `{"b":{"ports":[{"containerPort":80}],"x":null},"a":[1,null,{"name":"n"}],"webhookdefinitions":[{"type":"t"}]}`
	for _, same := range []string{
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a": [1, null, {"name": "\u006e"}],"b":{"ports":[{"protocol":"TCP","containerPort":80}]},"webhookdefinitions":[{"containerPort":443,"type":"t"}]}`,
	} {
		if digest(same) != digest(plan) {
			t.Errorf("%s differs", same)
		}
	}
	for _, other := range []string{
		`{"a":[1,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"m"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[null,1,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80,"protocol":"UDP"}]},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}],"protocol":"TCP"},"webhookdefinitions":[{"type":"t"}]}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}],"c":false}`,
		`{"a":[1,null,{"name":"n"}],"b":{"ports":[{"containerPort":80}]},"webhookdefinitions":[{"type":"t"}],"c":{}}`,
		`{`, ``,
	} {
		if digest(other) == digest(plan) {
			t.Errorf("%s does not differ", other)
		}
	}
	csv, err := DecodeCSV([]byte(`{"spec":` + plan + `}`))
	if err != nil {
		t.Fatal(err)
	}
	fresh := csv.Spec.ContentsDigest()
	csv.Spec.KeepDigest()
	if csv.Spec.raw != nil || csv.Spec.ContentsDigest() != fresh {
		t.Error("what a snapshot keeps is not the digest")
	}
}
