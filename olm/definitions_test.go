package olm

import (
	"reflect"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
)

// TestReadDefinitions reads what a ClusterServiceVersion owns and requires, and nothing of what is in another form.
func TestReadDefinitions(t *testing.T) {
	owned, required := ReadDefinitions([]byte(`{"spec":{"customresourcedefinitions":{
		"owned":[{"name":"etcdclusters.etcd.database.coreos.com","version":"v1beta2","kind":"EtcdCluster","displayName":"etcd"}],
		"required":[{"name":"vaults.vault.example.com","kind":"Vault"}]}}}`))
	if want := []v1alpha1.CRDDescription{{Name: "etcdclusters.etcd.database.coreos.com", Version: "v1beta2",
		Kind: "EtcdCluster", DisplayName: "etcd"}}; !reflect.DeepEqual(owned, want) {
		t.Errorf("owned are %v, want %v", owned, want)
	}
	if want := []v1alpha1.CRDDescription{{Name: "vaults.vault.example.com", Kind: "Vault"}}; !reflect.DeepEqual(required, want) {
		t.Errorf("required are %v, want %v", required, want)
	}
	for _, other := range []string{`{}`, `{"spec":{"customresourcedefinitions":[]}}`,
		`{"spec":{"customresourcedefinitions":{"owned":"x"}}}`, `nothing`} {
		if owned, required := ReadDefinitions([]byte(other)); len(owned)+len(required) > 0 {
			t.Errorf("%s: owned are %v, required %v", other, owned, required)
		}
	}
}
