package olm

import (
	"reflect"
	"testing"
)

// TestReadDefinitions reads what a ClusterServiceVersion owns and requires, and nothing of what is in another form.
func TestReadDefinitions(t *testing.T) {
	owned, required := ReadDefinitions([]byte(`{"spec":{"customresourcedefinitions":{
		"owned":[{"name":"etcdclusters.etcd.database.coreos.com","version":"v1beta2","kind":"EtcdCluster","displayName":"etcd"}],
		"required":[{"name":"vaults.vault.example.com","kind":"Vault"}]}}}`))
	if want := []Definition{{Name: "etcdclusters.etcd.database.coreos.com", Version: "v1beta2",
		Kind: "EtcdCluster"}}; !reflect.DeepEqual(owned, want) {
		t.Errorf("owned are %v, want %v", owned, want)
	}
	if want := []Definition{{Name: "vaults.vault.example.com", Kind: "Vault"}}; !reflect.DeepEqual(required, want) {
		t.Errorf("required are %v, want %v", required, want)
	}
	if plural, group := owned[0].Resource(); plural != "etcdclusters" || group != "etcd.database.coreos.com" {
		t.Errorf("its objects are %s of %s", plural, group)
	}
	for _, other := range []string{`{}`, `{"spec":{"customresourcedefinitions":[]}}`,
		`{"spec":{"customresourcedefinitions":{"owned":"x"}}}`, `nothing`} {
		if owned, required := ReadDefinitions([]byte(other)); len(owned)+len(required) > 0 {
			t.Errorf("%s: owned are %v, required %v", other, owned, required)
		}
	}
}
