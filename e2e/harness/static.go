package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
)

// Maintainer is the user that StaticPolicies lets update Opgate's installation.
const Maintainer = "alice"

// StaticPolicies are files that an API server loads admission policies from.
type StaticPolicies struct {
	dir string
	// Configuration is the path of the AdmissionConfiguration, for cluster.Options.AdmissionConfig.
	Configuration string
	// Loaded are the paths of the files that it loads, the validating policies first.
	Loaded []string
}

const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %[1]s/validating}
- name: MutatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration, staticManifestsDir: %[1]s/mutating}
`

// NewStaticPolicies makes the directories, without a policy: an installation comes first, since an installer updates
// what it has created.
func NewStaticPolicies(t testing.TB) *StaticPolicies {
	t.Helper()
	dir := t.TempDir()
	s := &StaticPolicies{dir: dir, Configuration: filepath.Join(dir, "admission-configuration.yaml"),
		Loaded: []string{filepath.Join(dir, "validating", "opgate.yaml"),
			filepath.Join(dir, "mutating", "opgate.yaml")}}
	for _, file := range s.Loaded {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.Configuration, fmt.Appendf(nil, admissionConfiguration, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Write runs `opgate compile --static`. Policies are OperatorPolicies whose rules are in the files as well.
func (s *StaticPolicies) Write(t testing.TB, e *Env, policies string, args ...string) {
	t.Helper()
	args = append([]string{"compile", "--static", s.dir, "--node-dir", s.dir, "--admission-config", s.Configuration,
		"--maintainer", Maintainer}, args...)
	if policies != "" {
		args = append(args, "-f", "-", "--olm-identity", "system:serviceaccount:"+cluster.OLMNamespace+":"+OLMAccount)
	}
	cmd := exec.CommandContext(t.Context(), Opgate(t, e.Cluster), args...)
	cmd.Stdin = strings.NewReader(policies)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Remove removes what Write wrote.
func (s *StaticPolicies) Remove(t testing.TB) {
	t.Helper()
	for _, file := range s.Loaded {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// WaitInForce waits until the API server judges by them, or does not any more.
func (s *StaticPolicies) WaitInForce(t testing.TB, e *Env, want bool) {
	t.Helper()
	Eventually(t, fmt.Sprintf("see the static policies in force: %t", want), func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "delete", "validatingwebhookconfiguration", "opgate",
			"--dry-run=server")
		if err == nil && (result.ExitCode != 0) != want {
			err = errors.New(result.Stdout + result.Stderr)
		}
		return err
	})
}
