package olm

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/metakey"
)

// TestDecodeMigrated: which objects of OLM v1 show that it manages the operator of a Subscription. Those of another
// package, or that name a Subscription of another namespace, do not.
func TestDecodeMigrated(t *testing.T) {
	extension := func(annotation, namespace, source string) string {
		return `{"metadata":{"name":"e","annotations":{"` + metakey.MigratedFrom + `":"` + annotation + `"}},
			"spec":{"namespace":"` + namespace + `","source":` + source + `}}`
	}
	revision := func(annotation, pkg, state string) string {
		return `{"metadata":{"name":"e-1","annotations":{"` + metakey.MigratedFrom + `":"` + annotation + `","` +
			metakey.PackageName + `":"` + pkg + `"}},"spec":{"lifecycleState":"` + state + `"}}`
	}
	const etcd = `{"sourceType":"Catalog","catalog":{"packageName":"etcd"}}`
	for _, test := range []struct {
		name, kind, raw string
		want            bool
	}{
		{"migrated", KindClusterExtension, extension("shop/etcd", "shop", etcd), true},
		{"migrated into another namespace", KindClusterExtension, extension("shop/etcd", "etcd-system", etcd), true},
		{"migrated from another namespace", KindClusterExtension, extension("other/etcd", "shop", etcd), false},
		{"not migrated", KindClusterExtension, extension("", "shop", etcd), true},
		{"not migrated, in another namespace", KindClusterExtension, extension("", "other", etcd), false},
		{"a namespace alone", KindClusterExtension, extension("other", "shop", etcd), true},
		{"another package", KindClusterExtension,
			extension("shop/etcd", "shop", strings.ReplaceAll(etcd, "etcd", "vault")), false},
		{"another type of source", KindClusterExtension, extension("shop/etcd", "shop", `{"sourceType":"Helm"}`),
			false},
		{"a long bundle", KindClusterExtension, strings.TrimSuffix(extension("shop/etcd", "shop", etcd), "}") +
			`,"status":{"install":{"bundle":{"name":"` + strings.Repeat("e", 1000) + `"}}}}`, false},
		{"a revision of the tool", KindClusterObjectSet, revision("shop/etcd", "etcd", "Active"), true},
		{"a revision of another package", KindClusterObjectSet, revision("shop/etcd", "vault", "Active"), false},
		{"an archived revision", KindClusterObjectSet, revision("shop/etcd", "etcd", "Archived"), false},
		{"a revision of OLM v1", KindClusterObjectSet, revision("", "etcd", "Active"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := DecodeMigrated(test.kind, []byte(test.raw))
			if err != nil {
				t.Fatal(err)
			}
			if got := m != nil && m.Of("etcd", "shop"); got != test.want {
				t.Errorf("got %v: %+v", got, m)
			}
		})
	}
}
