package diff

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// encoded is the JSON of a value.
func encoded(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// installPlan is a plan of namespace shop for etcd.v2, whose manifest is in the step: the object itself or a reference.
func installPlan(t *testing.T, name, phase string, manifest any) object {
	t.Helper()
	return object{
		"apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
		"metadata": object{"namespace": "shop", "name": name},
		"spec": object{"approval": "Manual", "approved": false, "generation": 1,
			"clusterServiceVersionNames": []string{"etcd.v2"}},
		"status": object{"phase": phase, "catalogSources": []string{"community"},
			"bundleLookups": []object{{"identifier": "etcd.v2", "path": "quay.io/example/etcd-bundle@sha256:1",
				"replaces":         "etcd.v1",
				"catalogSourceRef": object{"namespace": "olm", "name": "community"},
				"properties":       properties("2.0.0")}},
			"plan": []object{{"resolving": "etcd.v2", "status": "Unknown", "resource": object{
				"group": "operators.coreos.com", "version": "v1alpha1", "kind": "ClusterServiceVersion",
				"name":       "etcd.v2",
				"sourceName": "community", "sourceNamespace": "olm", "manifest": string(encoded(t, manifest))}}}},
	}
}

func properties(version string) string {
	return `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"` + version + `"}}]}`
}

// withProperties returns a ClusterServiceVersion with the properties of its bundle.
func withProperties(csv object, version string) object {
	csv["metadata"].(object)["annotations"] = object{"operatorframework.io/properties": properties(version)}
	return csv
}

// shop is what is in namespace shop: etcd.v1 is installed, and a plan for etcd.v2 from a bundle image waits.
func shop(t *testing.T) (plan, installed, unpacked object) {
	t.Helper()
	plan = installPlan(t, "install-x7", "RequiresApproval",
		object{"kind": "ConfigMap", "name": "unpacked", "namespace": "olm",
			"catalogSourceName": "community", "catalogSourceNamespace": "olm", "properties": properties("2.0.0")})
	installed = withProperties(csv("etcd.v1", "1.0.0", "get", "configmaps"), "1.0.0")
	installed["metadata"].(object)["namespace"] = "shop"
	unpacked = object{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": object{"namespace": "olm", "name": "unpacked", "labels": object{"olm.managed": "true"}},
		"data":     object{"etcd.clusterserviceversion.yaml": string(encoded(t, csv("etcd.v2", "2.0.0", "*", "secrets")))}}
	return plan, installed, unpacked
}

// files writes objects into one file and returns its path.
func files(t *testing.T, name string, objects ...object) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, encoded(t, object{"apiVersion": "v1", "kind": "List", "items": objects}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFiles(t *testing.T) {
	plan, installed, unpacked := shop(t)
	inline := installPlan(t, "install-x8", "RequiresApproval",
		withProperties(csv("etcd.v2", "2.0.0", "*", "secrets"), "2.0.0"))
	same := installPlan(t, "install-x9", "RequiresApproval",
		withProperties(csv("etcd.v2", "2.0.0", "get", "configmaps"), "2.0.0"))
	done := installPlan(t, "install-x6", "Complete", withProperties(csv("etcd.v2", "2.0.0", "*", "secrets"), "2.0.0"))
	file := files(t, "shop.json", plan, installed, unpacked)

	image, code := compared(t, "-f", file)
	if code != exitDifferent || image.From != "etcd.v1" || image.Plan != "shop/install-x7" ||
		image.Catalog != "olm/community" || image.Digest == "" {
		t.Errorf("exit code %d: %+v", code, image)
	}
	if len(image.Differences) != 1 || !image.Differences[0].Risky ||
		!strings.Contains(image.Differences[0].Text, "secrets") {
		t.Errorf("differences are %+v", image.Differences)
	}
	if got, _ := compared(t, "-f", files(t, "inline.json", inline, installed)); got.Digest != image.Digest {
		t.Errorf("the bundle in the plan has digest %s, from its image %s", got.Digest, image.Digest)
	}
	dir := catalogOf(t, entry{name: "etcd.v1", pkg: "etcd", version: "1.0.0",
		manifests: []any{csv("etcd.v1", "1.0.0", "get", "configmaps")}},
		entry{name: "etcd.v2", pkg: "etcd", version: "2.0.0",
			manifests: []any{csv("etcd.v2", "2.0.0", "*", "secrets")}})
	if got, _ := compared(t, "--catalog", dir, "--from", "etcd.v1", "--to", "etcd.v2"); got.Digest != image.Digest {
		t.Errorf("the catalog has digest %s, the plan %s", got.Digest, image.Digest)
	}
	if got, code := compared(t, "-f", files(t, "same.json", same, installed)); code != 0 || len(got.Differences) > 0 {
		t.Errorf("exit code %d: %+v", code, got)
	}
	if got, code := compared(t, "-f", files(t, "first.json", plan, unpacked)); code != exitDifferent ||
		got.From != "" || len(got.Differences) < 2 {
		t.Errorf("a first installation: exit code %d: %+v", code, got)
	}
	if got, code := compared(t, "-f", files(t, "missing.json", plan, installed)); code != exitUnusable ||
		!strings.Contains(got.Fault, "olm/unpacked") {
		t.Errorf("without the ConfigMap: exit code %d: %+v", code, got)
	}
	both := files(t, "both.json", plan, done, installed, unpacked)
	if got, _ := compared(t, "-f", both); got.Plan != "shop/install-x7" {
		t.Errorf("a plan that is done is compared: %+v", got)
	}
	if got, _ := compared(t, "-f", both, "shop/install-x6"); got.Plan != "shop/install-x6" {
		t.Errorf("not the plan that was named: %+v", got)
	}
	anonymous := installPlan(t, "install-x5", "RequiresApproval", csv("etcd.v2", "2.0.0", "*", "secrets"))
	anonymous["status"].(object)["bundleLookups"] = nil
	if got, code := compared(t, "-f", files(t, "anonymous.json", anonymous)); code != exitUnusable ||
		!strings.Contains(got.Fault, "package is not known") {
		t.Errorf("an unknown package: exit code %d: %+v", code, got)
	}
	for say, args := range map[string][]string{
		"no InstallPlan that is still to be run":          {"-f", files(t, "done.json", done)},
		"has no InstallPlan shop/install-x1":              {"-f", file, "shop/install-x1"},
		"the input has no InstallPlan default/install-x7": {"-f", file, "install-x7"},
		"is no name of an InstallPlan":                    {"../x/y"},
		"nothing to compare":                              {},
		"--from, --to and --package":                      {"-f", file, "--to", "etcd.v2"},
		"a name is empty":                                 {"-f", ""},
		"- is given 2 times":                              {"-f", "-", "-f", "-"},
		"nothing was compared: ":                          {"-f", filepath.Join(t.TempDir(), "nothing")},
	} {
		if _, message, code := run(t, args...); code != exitUnusable || !strings.Contains(message, say) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, message, say)
		}
	}
}

// TestDocument runs the commands of docs/diff.md that need no cluster, and compares what it shows of them.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../../../docs/diff.md")
	if err != nil {
		t.Fatal(err)
	}
	plan, installed, unpacked := shop(t)
	dir := t.TempDir()
	for name, o := range map[string]object{"shop.yaml": {"apiVersion": "v1", "kind": "List",
		"items": []object{plan, installed}}, "bundles.yaml": unpacked,
		"cluster.yaml": {"apiVersion": "v1", "kind": "List", "items": []object{}}} {
		if err := os.WriteFile(filepath.Join(dir, name), encoded(t, o), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	ran := 0
	for _, m := range regexp.MustCompile(
		`(?m)^\$ (?:kubectl )?opgate diff (-f.*)\n((?s:.*?))(?:\x60\x60\x60|\n\$ )`).FindAllSubmatch(
		document, -1) {
		ran++
		out, message, code := run(t, strings.Fields(string(m[1]))...)
		if code != exitDifferent || undigested([]byte(out)) != undigested(m[2]) {
			t.Errorf("opgate diff %s: exit code %d: %s\n%s\nthe document shows\n%s", m[1], code, message, out, m[2])
		}
	}
	if ran != 1 {
		t.Errorf("%d commands were run, want 1", ran)
	}
}
