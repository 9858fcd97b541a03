package certs

import (
	"slices"
	"testing"
)

// TestG12Selectors finds selectors by which who may label namespaces exempts them.
func TestG12Selectors(t *testing.T) {
	const shipped = `{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["opgate-system"]}`
	for _, test := range []struct {
		name, webhooks string
		want           []string
	}{
		{name: "as shipped", webhooks: `{"name":"a","namespaceSelector":{"matchExpressions":[` + shipped +
			`]}},{"name":"b"}`},
		{
			name: "an expression that AKS adds",
			webhooks: `{"name":"a","namespaceSelector":{"matchExpressions":[` + shipped +
				`,{"key":"control-plane","operator":"DoesNotExist"}]}}`,
			want: []string{"a: control-plane"},
		},
		{
			name:     "labels instead of the shipped expression",
			webhooks: `{"name":"b","namespaceSelector":{"matchLabels":{"judged":"yes"}}},{"name":"a","namespaceSelector":{"matchLabels":{"judged":"yes"}}}`,
			want:     []string{"a: judged", "b: judged"},
		},
		{name: "an expression without a key", webhooks: `{"name":"a","namespaceSelector":{"matchExpressions":["x"]}}`,
			want: []string{"a: "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := foreignSelectors(stored(t, `{"webhooks":[`+test.webhooks+`]}`).Get()); !slices.Equal(got,
				test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
