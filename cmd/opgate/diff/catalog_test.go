package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

type object = map[string]any

// entry is a bundle of a test catalog.
type entry struct {
	name, pkg, version string
	// manifests are those of olm.bundle.object, metadata is olm.csv.metadata; nil for none.
	manifests []any
	metadata  any
	requires  string
}

// csv is a ClusterServiceVersion of which the account may do something with a resource.
func csv(name, version, verb, resource string) object {
	return object{
		"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
		"metadata": object{"name": name},
		"spec": object{
			"version": version, "installModes": []object{{"type": "OwnNamespace", "supported": true}},
			"install": object{"strategy": "deployment", "spec": object{
				"clusterPermissions": []object{{"serviceAccountName": "etcd", "rules": []object{
					{"apiGroups": []string{""}, "resources": []string{resource}, "verbs": []string{verb}}}}},
				"deployments": []object{{"name": "etcd",
					"spec": object{"selector": object{"matchLabels": object{"a": "b"}},
						"template": object{"metadata": object{"labels": object{"a": "b"}},
							"spec": object{"serviceAccountName": "etcd",
								"containers": []object{{"name": "etcd", "image": "quay.io/example/etcd:" + version}}}}}}},
			}},
		},
	}
}

// catalogOf writes a file-based catalog and returns its directory.
func catalogOf(t *testing.T, entries ...entry) string {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	add := func(o object) {
		if err := encoder.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entries {
		properties := []object{{"type": "olm.package", "value": object{"packageName": e.pkg, "version": e.version}}}
		if e.requires != "" {
			properties = append(properties, object{"type": "olm.package.required",
				"value": object{"packageName": e.requires, "versionRange": ">=1.0.0"}})
		}
		for _, m := range e.manifests {
			raw, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			properties = append(properties, object{"type": "olm.bundle.object", "value": object{"data": raw}})
		}
		if e.metadata != nil {
			properties = append(properties, object{"type": "olm.csv.metadata", "value": e.metadata})
		}
		add(object{"schema": "olm.bundle", "name": e.name, "package": e.pkg,
			"image": "quay.io/example/bundle:" + e.version, "properties": properties})
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "catalog.json"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs the command and returns its output and exit code.
func run(t *testing.T, args ...string) (stdout, message string, code int) {
	t.Helper()
	cmd := Command()
	var out, errs bytes.Buffer
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if failed, ok := errors.AsType[*cli.ExitError](err); ok {
		return out.String(), errs.String() + failed.Message, failed.Code
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), 0
}

// compared is what the JSON output has of one comparison.
func compared(t *testing.T, args ...string) (item, int) {
	t.Helper()
	out, message, code := run(t, append(args, "-o", "json")...)
	var items []item
	if err := json.Unmarshal([]byte(out), &items); err != nil || len(items) != 1 {
		t.Fatalf("%v: exit code %d: %s: %s", args, code, message, out)
	}
	return items[0], code
}

func TestCatalog(t *testing.T) {
	dir := catalogOf(t,
		entry{name: "etcd.v1", pkg: "etcd", version: "1.0.0",
			manifests: []any{csv("etcd.v1", "1.0.0", "get", "configmaps")}},
		entry{name: "etcd.v2", pkg: "etcd", version: "2.0.0",
			manifests: []any{csv("etcd.v2", "2.0.0", "list", "secrets")}, requires: "vault"},
		entry{name: "etcd.v3", pkg: "etcd", version: "3.0.0", metadata: object{"minKubeVersion": "1.30.0"}},
		entry{name: "etcd.v5", pkg: "etcd", version: "5.0.0",
			manifests: []any{csv("etcd.v5", "5.0.0", "get", "configmaps")}},
		entry{name: "vault.v1", pkg: "vault", version: "1.0.0", manifests: []any{csv("vault.v1", "1.0.0", "get", "pods")}},
		entry{name: "same.v1", pkg: "one", version: "1.0.0"},
		entry{name: "same.v1", pkg: "two", version: "1.0.0", manifests: []any{csv("same.v1", "1.0.0", "get", "pods")}},
		entry{name: "broken.v1", pkg: "etcd", version: "1.0.0", manifests: []any{"no object"}},
	)
	for name, c := range map[string]struct {
		from, to    string
		code        int
		differences []string // each is in one difference
		fault       string
	}{
		"complete":               {from: "etcd.v1", to: "etcd.v2", code: exitDifferent, differences: []string{"secrets", "vault"}},
		"complete, and the same": {from: "etcd.v1", to: "etcd.v5"},
		"a first installation": {to: "etcd.v1", code: exitDifferent,
			differences: []string{"configmaps", "quay.io/example", "OwnNamespace"}},
		"manifests that are no object": {from: "etcd.v1", to: "broken.v1", code: exitUnusable, fault: "manifest 0 cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--catalog", filepath.Join(dir, "catalog.json"), "--to", c.to}
			if c.from != "" {
				args = append(args, "--from", c.from)
			}
			got, code := compared(t, args...)
			if code != c.code || !strings.Contains(got.Fault, c.fault) || (got.Fault == "") != (c.fault == "") ||
				(got.Digest == "") != (c.fault != "") {
				t.Errorf("exit code %d, want %d: %+v", code, c.code, got)
			}
			for _, part := range c.differences {
				if !slices.ContainsFunc(got.Differences,
					func(d difference) bool { return strings.Contains(d.Text, part) }) {
					t.Errorf("no difference says %s: %+v", part, got.Differences)
				}
			}
		})
	}
	for say, args := range map[string][]string{
		`has no bundle etcd.v9`:                                                          {"--to", "etcd.v9"},
		`has no bundle etcd.v1 in package vault`:                                         {"--to", "etcd.v1", "--package", "vault"},
		`no version replaces one of another package`:                                     {"--from", "vault.v1", "--to", "etcd.v1"},
		`in packages one and two: name one by --package`:                                 {"--to", "same.v1"},
		`compare its image, quay.io/example/bundle:3.0.0, as a directory, with --bundle`: {"--from", "etcd.v1", "--to", "etcd.v3"},
		`--to is missing`:                 {"--from", "etcd.v1"},
		`--catalog compares two versions`: {"--to", "etcd.v1", "shop/install-x7"},
		`invalid argument "xml"`:          {"--to", "etcd.v1", "-o", "xml"},
	} {
		if _, message, code := run(t, append([]string{"--catalog", dir}, args...)...); code != exitUnusable ||
			!strings.Contains(message, say) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, message, say)
		}
	}
	if got, code := compared(t, "--catalog", dir, "--to", "same.v1", "--package", "two"); code != exitDifferent ||
		got.Package != "two" {
		t.Errorf("exit code %d: %+v", code, got)
	}
}

// TestCatalogFaults reads what is no catalog.
func TestCatalogFaults(t *testing.T) {
	dir := t.TempDir()
	for text, say := range map[string]string{
		`{"schema":"olm.bundle"`: "", `{"name":"etcd.v1"}`: "schema",
		`{"schema":"olm.bundle","name":"etcd.v1","package":"etcd","properties":7}`: "etcd.v1",
	} {
		if err := os.WriteFile(filepath.Join(dir, "catalog.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, message, code := run(t, "--catalog", dir, "--to", "etcd.v1"); code != exitUnusable ||
			!strings.Contains(message, say) {
			t.Errorf("%s: exit code %d: %s", text, code, message)
		}
	}
	if _, message, code := run(t, "--catalog", filepath.Join(dir, "nothing"), "--to",
		"etcd.v1"); code != exitUnusable || !strings.Contains(message, "no such file") {
		t.Errorf("exit code %d: %s", code, message)
	}
}
