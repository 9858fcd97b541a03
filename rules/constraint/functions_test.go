package constraint

import (
	"testing"
)

// TestEveryFunctionIsEstimated: a new version of cel-go must not add a function without an estimate. Functions without
// one are refused, so this test is about noticing them, not about safety.
func TestEveryFunctionIsEstimated(t *testing.T) {
	env, err := vocabularies[OnBundle].environment()
	if err != nil {
		t.Fatal(err)
	}
	for name := range env.Functions() {
		if _, ok := callEstimates[name]; !ok && !coreCalls[name] {
			t.Errorf("no estimate for %s", name)
		}
	}
	for name := range callEstimates {
		if _, ok := env.Functions()[name]; !ok && name != "@in" && name != "_in_" {
			t.Errorf("estimate for %s, which does not exist", name)
		}
	}
}

// TestEnvironment: everything that rules may contain compiles, also names that look like reserved words.
func TestEnvironment(t *testing.T) {
	for _, rule := range []string{
		`catalog.namespace == "olm" && catalog.name == "curated" && catalog["name"] != ""`,
		`packageName == "etcd" && csv == "etcdoperator.v0.9.4" && version == "0.9.4" && channel == "stable"`,
		`namespaceObject.metadata.name == "shop" && namespaceObject.metadata.labels["tier"] == "tenant"`,
		`namespaceObject.metadata.labels.tier == "tenant" && !has(namespaceObject.metadata.labels.other)`,
		`cluster.version == "1.36.3" && cluster.openshift == "" && cluster.properties.exists(p, p.type == "olm.kubeversion")`,
		`semver_compare("v1.2.3", "1.2") == 1 && semver_compare(1.2, "1.2.0") == 0 && semver_compare(2, "1.9.9") == 1`,
		`properties.filter(p, p.type == "olm.package").all(p, semver_compare(p.value.version, "0.9.0") >= 0)`,
		`properties.filter(p, p.type == "olm.package")[0].value.version.startsWith("0.9")`,
		`version.split(".").map(x, int(x)) == [0, 9, 4]`,
		`"%s %s".format([csv, packageName]) == "etcdoperator.v0.9.4 etcd"`,
		`properties.map(p, p.type).join(", ").contains("olm.gvk")`,
		`sets.contains(properties.map(p, p.type), ["olm.gvk", "olm.package"])`,
		`properties.map(p, p.type).distinct().size() == 2 && properties.map(p, p.type).sort()[0] == "olm.gvk"`,
		`lists.range(3) == [0, 1, 2] && [[1], [2]].flatten() == [1, 2] && [1, 2, 3].slice(1, 2) == [2] && [1, 2].reverse() == [2, 1]`,
		`annotations.all(a, annotations[a] != "") && !("x" in annotations) && conversionCRDs.all(c, c.endsWith(".example.com"))`,
		`math.greatest(1, 2) == 2 && math.least([3, 4]) == 3 && math.abs(-1) == 1`,
		`csv.replace("etcd", "x").indexOf("x") == 0 && csv.lowerAscii().trim().substring(0, 4) == "etcd" && "ab".reverse() == "ba" && strings.quote("a") == "\"a\""`,
		`csv.matches("^etcd[a-z]+\\.v[0-9.]+$") && timestamp("2026-11-21T00:00:00Z").getFullYear() == 2026`,
		`properties.exists(p, p.type == "olm.gvk" && p.value.kind == "EtcdCluster" && p.value == {"group": "etcd.database.coreos.com", "version": "v1beta2", "kind": "EtcdCluster"})`,
		`properties.exists_one(p, p.type == "olm.gvk") && size(properties) == 2 && packageName in ["etcd", "prometheus"]`,
	} {
		if f := judgeOne(t, seed(rule), etcd(), shop); f.Outcome != Satisfied {
			t.Errorf("%s: %s %s", rule, f.Outcome, f.Why)
		}
	}
}
