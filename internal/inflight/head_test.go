package inflight

import (
	"strings"
	"testing"
)

// TestHead reads the UID and the namespace of whole reviews, of their first part, and of what is no review.
func TestHead(t *testing.T) {
	const begin = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705a","kind":{"group":"g","version":"v1","kind":"K"},` +
		`"resource":{"resource":"ks"},"name":"n","namespace":"shop","operation":"CREATE",`
	for name, test := range map[string]struct {
		text string
		want Head
	}{
		"whole":                    {begin + `"object":{"uid":"1","namespace":"2"}}}`, Head{"705a", "shop"}},
		"cut in the object":        {begin + `"object":{"a":"` + strings.Repeat("<", 1000), Head{"705a", "shop"}},
		"cut in the user":          {begin + `"userInfo":{"groups":["a`, Head{"705a", "shop"}},
		"cut before the namespace": {strings.SplitN(begin, "n\",\"namespace", 2)[0], Head{"705a", ""}},
		"cut in the UID":           {`{"request":{"uid":"70`, Head{}},
		"uid last": {`{"request":{"object":{"uid":"1"},"namespace":"shop","uid":"705a"}}`,
			Head{"705a", "shop"}},
		"request last":  {`{"response":{"uid":"1"},"request":{"uid":"705a"}}`, Head{"705a", ""}},
		"a uid outside": {`{"uid":"1","namespace":"n"}`, Head{}},
		"a long uid": {`{"request":{"uid":"` + strings.Repeat("a", maxName+1) + `","namespace":"shop"}}`,
			Head{"", "shop"}},
		"a uid that is no text":    {`{"request":{"uid":{"uid":"1"},"namespace":[1]}}`, Head{}},
		"a request that is a list": {`{"request":[{"uid":"1"}]}`, Head{}},
		"white space":              {" { \"request\" : { \"uid\" : \"705a\" } } ", Head{"705a", ""}},
		"a list":                   {`["request",{"uid":"1"}]`, Head{}},
		"a text":                   {`"request"`, Head{}},
		"nothing":                  {``, Head{}},
		"no JSON":                  {"\x00\xff", Head{}},
	} {
		if got := ReadHead([]byte(test.text)); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
