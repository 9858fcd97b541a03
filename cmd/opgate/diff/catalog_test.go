package diff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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
	images    []string
	requires  string
	// image is that of the bundle; empty for one that does not exist.
	image string
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
		related := []object{}
		for _, image := range e.images {
			related = append(related, object{"name": "x", "image": image})
		}
		add(object{"schema": "olm.bundle", "name": e.name, "package": e.pkg,
			"image": cmp.Or(e.image, "quay.io/example/bundle:"+e.version), "properties": properties,
			"relatedImages": related})
	}
	add(object{"schema": "olm.deprecations", "package": "etcd", "entries": []object{
		{"reference": object{"schema": "olm.bundle", "name": "etcd.v3"}, "message": "use etcd.v4"}}})
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
	metadata := object{"minKubeVersion": "1.30.0",
		"installModes": []object{{"type": "AllNamespaces", "supported": true}}}
	dir := catalogOf(t,
		entry{name: "etcd.v1", pkg: "etcd", version: "1.0.0",
			manifests: []any{csv("etcd.v1", "1.0.0", "get", "configmaps")}, images: []string{"quay.io/example/etcd:1"}},
		entry{name: "etcd.v2", pkg: "etcd", version: "2.0.0",
			manifests: []any{csv("etcd.v2", "2.0.0", "list", "secrets")}, requires: "vault"},
		entry{name: "etcd.v3", pkg: "etcd", version: "3.0.0", metadata: metadata,
			images: []string{"ghcr.io/other/etcd:3"}},
		entry{name: "etcd.v4", pkg: "etcd", version: "4.0.0"},
		entry{name: "etcd.v5", pkg: "etcd", version: "5.0.0",
			manifests: []any{csv("etcd.v5", "5.0.0", "get", "configmaps")}},
		entry{name: "vault.v1", pkg: "vault", version: "1.0.0"},
		entry{name: "same.v1", pkg: "one", version: "1.0.0"}, entry{name: "same.v1", pkg: "two", version: "1.0.0"},
		entry{name: "broken.v1", pkg: "etcd", version: "1.0.0", manifests: []any{"no object"}},
	)
	for name, c := range map[string]struct {
		from, to    string
		code        int
		differences []string // each is in one difference
		absent      string   // in none
		missing     int
		fault       string
	}{
		"complete":               {from: "etcd.v1", to: "etcd.v2", code: exitDifferent, differences: []string{"secrets", "vault"}},
		"complete, and the same": {from: "etcd.v1", to: "etcd.v5"},
		"a first installation": {to: "etcd.v1", code: exitDifferent,
			differences: []string{"configmaps", "quay.io/example", "OwnNamespace"}},
		"to without manifests": {from: "etcd.v1", to: "etcd.v3", code: exitDifferent,
			differences: []string{"ghcr.io/other", "AllNamespaces", "1.30.0"},
			missing:     len(withoutManifests)},
		"from without manifests": {from: "etcd.v3", to: "etcd.v2", code: exitDifferent,
			differences: []string{"vault"}, absent: "secrets", missing: len(withoutManifests)},
		"to without anything":          {from: "etcd.v1", to: "etcd.v4", code: exitDifferent, missing: len(withoutMetadata)},
		"manifests that are no object": {from: "etcd.v1", to: "broken.v1", code: exitUnusable, fault: "broken.v1"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--catalog", dir, "--to", c.to}
			if c.from != "" {
				args = append(args, "--from", c.from)
			}
			got, code := compared(t, args...)
			if code != c.code || len(got.NotCompared) != c.missing || !strings.Contains(got.Fault, c.fault) ||
				c.fault == "" && got.Fault != "" {
				t.Errorf("exit code %d, want %d: %+v", code, c.code, got)
			}
			for _, part := range c.differences {
				if !slices.ContainsFunc(got.Differences,
					func(d difference) bool { return strings.Contains(d.Text, part) }) {
					t.Errorf("no difference says %s: %+v", part, got.Differences)
				}
			}
			if c.absent != "" && strings.Contains(fmt.Sprint(got.Differences), c.absent) {
				t.Errorf("a difference says %s: %+v", c.absent, got.Differences)
			}
			if (got.Digest != "") != (c.missing == 0 && c.fault == "") {
				t.Errorf("the digest is %q", got.Digest)
			}
		})
	}
	if got, _ := compared(t, "--catalog", filepath.Join(dir, "catalog.json"), "--from", "etcd.v1", "--to",
		"etcd.v3"); !slices.Contains(got.Notes, "the catalog deprecates etcd.v3: use etcd.v4") {
		t.Errorf("a deprecation is not named: %q", got.Notes)
	}
	if out, _, _ := run(t, "--catalog", dir, "--from", "etcd.v1", "--to", "etcd.v3"); !strings.Contains(out,
		"not compared: permissions, webhooks, ") {
		t.Errorf("what the catalog does not have is not named:\n%s", out)
	}
	for say, args := range map[string][]string{
		`has no bundle etcd.v9`:                             {"--to", "etcd.v9"},
		`has no bundle etcd.v1 in package vault`:            {"--to", "etcd.v1", "--package", "vault"},
		`no version replaces one of another package`:        {"--from", "vault.v1", "--to", "etcd.v1"},
		`is in packages one and two: name one by --package`: {"--to", "same.v1"},
		`--to is missing`:                                   {"--from", "etcd.v1"},
		`--catalog compares two versions`:                   {"--to", "etcd.v1", "shop/install-x7"},
		`unknown output format "xml"`:                       {"--to", "etcd.v1", "-o", "xml"},
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

// TestCatalogReleases compares two releases of one version, of a package that the catalog deprecates.
func TestCatalogReleases(t *testing.T) {
	bundle := func(release string) string {
		return `{"schema":"olm.bundle","name":"etcd-v0.9.4-` + release + `","package":"etcd","image":"quay.io/e/1",` +
			`"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4","release":"` +
			release + `"}}]}`
	}
	catalog := `{"schema":"olm.package","name":"etcd"}` + bundle("1") + bundle("2") +
		`{"schema":"olm.deprecations","package":"etcd","entries":[{"reference":{"schema":"olm.package"},` +
		`"message":"use vault"}]}`
	path := filepath.Join(t.TempDir(), "catalog.json")
	if err := os.WriteFile(path, []byte(catalog), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, _ := run(t, "--catalog", path, "--from", "etcd-v0.9.4-1", "--to", "etcd-v0.9.4-2")
	for _, line := range []string{"package etcd, version 0.9.4 release 2, before 0.9.4 release 1",
		"the catalog deprecates package etcd: use vault"} {
		if !strings.Contains(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	got, _ := compared(t, "--catalog", path, "--from", "etcd-v0.9.4-1", "--to", "etcd-v0.9.4-2")
	if got.Release != "2" || got.FromRelease != "1" {
		t.Errorf("in JSON: %+v", got)
	}
}
