package conversion

import (
	"encoding/json"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// Current returns the JSON of an OperatorPolicy as v1beta2, where the API server does not convert it because another
// program owns its definition. One of v1beta1 is converted, without its status, which that program writes and nothing
// here reads. Any other JSON is returned as it is: who decodes it reports what is wrong with it. Of two values of a
// field either may be meant, so that is an error.
func Current(raw []byte) ([]byte, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := decode(raw, &head); err != nil || head.APIVersion != policyv1beta1.GroupVersion.String() {
		return raw, nil //nolint:nilerr // see above
	}
	var content map[string]any
	if err := decodeStrictly(string(raw), &content); err != nil {
		return nil, err
	}
	delete(content, fieldStatus)
	content = ToV1beta2(content)
	content["apiVersion"] = policyv1beta2.GroupVersion.String()
	return json.Marshal(content)
}

// WithoutStatus returns the JSON of an OperatorPolicy without its status, for one that another program has written in a
// form of its own.
func WithoutStatus(raw []byte) ([]byte, error) {
	var content map[string]any
	if err := decodeStrictly(string(raw), &content); err != nil {
		return nil, err
	}
	delete(content, fieldStatus)
	return json.Marshal(content)
}
