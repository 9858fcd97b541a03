package olm

import (
	"strings"
	"testing"
)

func TestNotUpgradeable(t *testing.T) {
	for _, tt := range []struct {
		name, object string
		want         string
	}{
		{
			name:   "OLM created it and the operator says nothing",
			object: `{"metadata":{"generation":1},"spec":{"deployments":["etcd"],"serviceAccounts":["etcd"]}}`,
		},
		{
			name: "not upgradeable",
			object: `{"metadata":{"generation":2},"spec":{"conditions":[{"type":"Upgradeable","status":"False","message":"migrating"}]},
				"status":{"conditions":[{"type":"Upgradeable","status":"False","message":"migrating","observedGeneration":2}]}}`,
			want: `Upgradeable is False, "migrating"`,
		},
		{
			name:   "not upgradeable, without a message",
			object: `{"status":{"conditions":[{"type":"Upgradeable","status":"False","message":""}]}}`,
			want:   "Upgradeable is False",
		},
		{
			name:   "upgradeable",
			object: `{"status":{"conditions":[{"type":"Upgradeable","status":"True"}]}}`,
		},
		{
			name:   "unknown counts as upgradeable",
			object: `{"status":{"conditions":[{"type":"Upgradeable","status":"Unknown"}]}}`,
		},
		{
			name:   "OLM has not copied the condition yet",
			object: `{"spec":{"conditions":[{"type":"Upgradeable","status":"False","message":"migrating"}]}}`,
			want:   `Upgradeable is False, "migrating"`,
		},
		{
			name: "OLM has copied an earlier condition",
			object: `{"metadata":{"generation":3},"spec":{"conditions":[{"type":"Upgradeable","status":"False","message":"again"}]},
				"status":{"conditions":[{"type":"Upgradeable","status":"True","observedGeneration":2}]}}`,
			want: `OLM has not observed the present Upgradeable in spec.conditions yet, False, "again"`,
		},
		{
			name: "the operator removed its condition",
			object: `{"metadata":{"generation":3},"spec":{},
				"status":{"conditions":[{"type":"Upgradeable","status":"True","observedGeneration":2}]}}`,
			want: "status.conditions has an outdated Upgradeable that spec.conditions does not have",
		},
		{
			name: "an admin allows it",
			object: `{"metadata":{"generation":3},"spec":{"overrides":[{"type":"Upgradeable","status":"True","message":"known"}],
				"conditions":[{"type":"Upgradeable","status":"False"}]},
				"status":{"conditions":[{"type":"Upgradeable","status":"False","observedGeneration":2}]}}`,
		},
		{
			name: "an admin forbids it",
			object: `{"spec":{"overrides":[{"type":"Upgradeable","status":"False","message":"not this week"}],
				"conditions":[{"type":"Upgradeable","status":"True"}]},"status":{"conditions":[{"type":"Upgradeable","status":"True"}]}}`,
			want: `spec.overrides sets Upgradeable to False, "not this week"`,
		},
		{
			name:   "an override that is not True forbids, as for OLM",
			object: `{"spec":{"overrides":[{"type":"Upgradeable","status":"Unknown"}]}}`,
			want:   "spec.overrides sets Upgradeable to Unknown",
		},
		{
			name: "an override of an absent condition changes nothing",
			object: `{"spec":{"overrides":[{"type":"Migrated","status":"True"}]},
				"status":{"conditions":[{"type":"Upgradeable","status":"False"}]}}`,
			want: "Upgradeable is False",
		},
		{
			name:   "unknown conditions, and one in another spelling",
			object: `{"status":{"conditions":[{"type":"Available","status":"False"},{"type":"upgradeable","status":"False"}]}}`,
		},
		{
			name:   "of duplicates the first counts, as for OLM",
			object: `{"status":{"conditions":[{"type":"Upgradeable","status":"False"},{"type":"Upgradeable","status":"True"}]}}`,
			want:   "Upgradeable is False",
		},
		{
			name: "of duplicate overrides the first counts, as for OLM",
			object: `{"spec":{"overrides":[{"type":"Upgradeable","status":"True"},{"type":"Upgradeable","status":"False"}]},
				"status":{"conditions":[{"type":"Upgradeable","status":"False"}]}}`,
		},
		{
			name:   "a hostile message stays on one line, inside its quotes",
			object: `{"status":{"conditions":[{"type":"Upgradeable","status":"False","message":"a\"; approved\n\u001b[2J\u202eb"}]}}`,
			want:   `Upgradeable is False, "a\"; approved [2J\\u202eb"`,
		},
		{
			name:   "null lists",
			object: `{"spec":{"conditions":null,"overrides":null},"status":{"conditions":null}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := DecodeOperatorCondition([]byte(tt.object))
			if err != nil {
				t.Fatal(err)
			}
			if got := NotUpgradeable(c); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestOperatorConditionBounds: what a tenant may write takes bounded memory (threat G18).
func TestOperatorConditionBounds(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{},`, maxConditionValues+1), ",")
	if _, err := DecodeOperatorCondition([]byte(`{"status":{"conditions":[` + many + `]}}`)); err == nil {
		t.Error("any number of conditions is read")
	}
	c, err := DecodeOperatorCondition(
		[]byte(`{"status":{"conditions":[{"type":"Upgradeable","status":"False","message":"` +
			strings.Repeat("x", 32768) + `"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := NotUpgradeable(c); len(got) > 2*maxConditionMessage {
		t.Errorf("%d bytes are kept of a message", len(got))
	}
}
