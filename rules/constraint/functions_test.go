package constraint

import (
	"slices"
	"strings"
	"testing"
)

// functions are those of cel-go and of the API server whose time was looked at: one call takes time in proportion to its
// arguments, or charges names it.
const functions = `
!_ -_ @in @loop @not_strictly_false @pattern @sortByAssociatedKeys @square @text @weight _!=_ _%_ _&&_ _*_ _+_ _-_ _/_
_<=_ _<_ _==_ _>=_ _>_ _?_:_ _[_] __not_strictly_false__ _in_ _||_ bool bytes charAt cidr compareTo contains
containsCIDR containsIP distinct double duration dyn endsWith family flatten format getDate getDayOfMonth getDayOfWeek
getDayOfYear getEscapedPath getFullYear getHost getHostname getHours getMilliseconds getMinutes getMonth getPort
getQuery getScheme getSeconds in indexOf int ip ip.isCanonical isCIDR isGlobalUnicast isGreaterThan isIP isLessThan
isLinkLocalMulticast isLinkLocalUnicast isLoopback isSemver isURL isUnspecified join lastIndexOf lists.range lowerAscii
major masked matches math.@max math.@min math.abs math.bitAnd math.bitNot math.bitOr math.bitShiftLeft
math.bitShiftRight math.bitXor math.ceil math.floor math.isFinite math.isInf math.isNaN math.round math.sign math.sqrt
math.trunc minor patch prefixLength replace reverse semver semver_compare sets.contains sets.equivalent sets.intersects
size slice sort split startsWith string strings.quote substring timestamp trim type uint upperAscii url
`

// TestFunctions: a new version of a library must not add a function whose time is not known.
func TestFunctions(t *testing.T) {
	env, err := vocabularies[OnBundle].environment()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for name := range env.Functions() {
		found = append(found, name)
	}
	slices.Sort(found)
	if want := strings.Fields(functions); !slices.Equal(found, want) {
		t.Errorf("there are %s", strings.Join(found, " "))
	}
	for name := range charges {
		if !slices.Contains(found, name) {
			t.Errorf("%s is charged for, and does not exist", name)
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
		`semver(version).isLessThan(semver("0.10.0")) && isSemver(version) && semver("v1", true).minor() == 0`,
		`url("https://quay.io:443/a").getHostname() == "quay.io" && isURL("https://quay.io") && !isURL("quay")`,
		`cidr("10.0.0.0/8").containsIP(ip("10.1.2.3")) && isIP("::1") && ip("::1").isLoopback()`,
		`csv.matches("^etcd[a-z]+\\.v[0-9.]+$") && timestamp("2026-11-21T00:00:00Z").getFullYear() == 2026`,
		`properties.exists(p, p.type == "olm.gvk" && p.value.kind == "EtcdCluster" && p.value == {"group": "etcd.database.coreos.com", "version": "v1beta2", "kind": "EtcdCluster"})`,
		`properties.exists_one(p, p.type == "olm.gvk") && size(properties) == 2 && packageName in ["etcd", "prometheus"]`,
	} {
		if f := judgeOne(t, seed(rule), etcd(), shop); f.Outcome != Satisfied {
			t.Errorf("%s: %s %s", rule, f.Outcome, f.Why)
		}
	}
}
