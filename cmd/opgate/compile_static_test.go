package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wantStatic runs the command with --static and returns what it wrote.
func wantStatic(t *testing.T, dir string, args ...string) (read func(name string) string) {
	t.Helper()
	if _, _, err := compiled(t, "", append([]string{"--static", dir}, args...)...); err != nil {
		t.Fatal(err)
	}
	return func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// TestStatic writes files twice: the same input has the same files, another one another set.
func TestStatic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest := filepath.Join("validating", "opgate.yaml")
	read := wantStatic(t, dir, "--maintainer", "alice")
	first := read(manifest)
	for _, want := range []string{"opgate-installation.static.k8s.io", "'alice'", "opgate-probe.static.k8s.io",
		"in force: set "} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is missing in\n%s", want, first)
		}
	}
	if strings.Contains(first, "opgate-policies.static.k8s.io") {
		t.Error("policies are kept without --keep-policies")
	}
	if _, err := os.Stat(filepath.Join(dir, "mutating")); err == nil {
		t.Error("there is nothing to mutate without policies")
	}
	wantStatic(t, dir, "--maintainer", "alice")
	if again := read(manifest); again != first {
		t.Error("the same flags have other files")
	}
	wantStatic(t, dir, "--maintainer", "bob", "-f", sample, identity)
	if read(manifest) == first || !strings.Contains(read(manifest), "opgate-backstop.static.k8s.io") {
		t.Error("the rules of policies are not in the files")
	}
	if !strings.Contains(read(filepath.Join("mutating", "opgate.yaml")), "policyName: opgate-backstop.static.k8s.io") {
		t.Error("the binding does not name the policy in the files")
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".opgate-*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestStaticLoads: what the API server cannot load together with other files of the directory is not written.
func TestStaticLoads(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a kind that is not loaded": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a.static.k8s.io}\n",
		"the same name": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n" +
			"metadata: {name: opgate-installation.static.k8s.io}\nspec: {validations: [{expression: 'true'}]}\n",
		"a name without the suffix": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n",
		"an unknown field":          "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a.static.k8s.io}\nspek: {}\n",
		"no YAML":                   "a: [\n",
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "validating"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "validating", "other.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := compiled(t, "", "--static", dir)
		if err == nil || !strings.Contains(err.Error(), "the API server would not start with this directory") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "validating", "opgate.yaml")); err == nil {
			t.Errorf("%s: the file is written", name)
		}
	}
}

// TestStaticConfiguration adds the plugins to what an API server is configured with, and loses nothing of it.
func TestStaticConfiguration(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	for name, test := range map[string]struct{ text, want, problem string }{
		"other plugins": {text: head + "plugins:\n- name: PodSecurity\n  path: pod-security.yaml\n",
			want: "path: pod-security.yaml"},
		"the same": {text: head +
			"plugins:\n- name: ValidatingAdmissionPolicy\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, " +
			"kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: /etc/kubernetes/opgate/validating}\n",
			want: "staticManifestsDir: /etc/kubernetes/opgate/validating"},
		"another directory": {text: head +
			"plugins:\n- name: ValidatingAdmissionPolicy\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, " +
			"kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: /other}\n",
			problem: "is configured already"},
		"a path": {text: head + "plugins:\n- name: ValidatingAdmissionPolicy\n  path: a.yaml\n",
			problem: "is configured already"},
		"another kind": {text: "apiVersion: v1\nkind: ConfigMap\n",
			problem: "has to be apiserver.config.k8s.io/v1 AdmissionConfiguration"},
		"no list":         {text: head + "plugins: {}\n", problem: "plugins is no list"},
		"nothing":         {text: "", problem: "has to be apiserver.config.k8s.io/v1 AdmissionConfiguration"},
		"duplicate field": {text: head + "plugins: []\nplugins: []\n", problem: "already set in map"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "existing.yaml")
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := compiled(t, "", "--static", dir, "--admission-config", file)
		if test.problem != "" {
			if err == nil || !strings.Contains(err.Error(), test.problem) {
				t.Errorf("%s: %v, want %q", name, err, test.problem)
			}
			if _, err := os.Stat(filepath.Join(dir, "validating")); err == nil {
				t.Errorf("%s: files are written", name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, "admission-configuration.yaml"))
		if err != nil || !strings.Contains(string(text), test.want) ||
			strings.Count(string(text), "/etc/kubernetes/opgate/validating") != 1 {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		if unchanged, err := os.ReadFile(file); err != nil || string(unchanged) != test.text {
			t.Errorf("%s: the existing file was written", name)
		}
	}
}

func TestStaticUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--maintainer", "alice", "-f", sample, identity}, "--static, which is missing"},
		{[]string{"--static", "x", "--maintainer", ""}, "--maintainer is empty"},
		{[]string{"--static", "x", "--node-dir", "relative"}, "has to be an absolute path"},
		{[]string{"--static", "x", "--opgate-identity", ""}, "needs --opgate-identity"},
		{[]string{"--static", "x", "--opgate-namespace", "No"}, "No"},
		{[]string{"--static", "x", "-f", sample}, "--olm-identity is missing"},
	} {
		if _, _, err := compiled(t, "", test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.args, err, test.want)
		}
	}
}
