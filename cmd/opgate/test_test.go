package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/test"
)

// exitDiffers is the exit code if a write got another answer.
const exitDiffers = 1

// tested is the output of the command, with its exit code.
func tested(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := test.Command()
	var stdout bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if coded, ok := errors.AsType[*cli.ExitError](err); ok {
		return stdout.String() + coded.Message, coded.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stdout.String(), 0
}

const scenarios = "../../e2e/scenarios"

// TestScenarios: the scenarios of the repository, which kubectl plays on a real API server, get the same answers here.
func TestScenarios(t *testing.T) {
	out, code := tested(t, "--kubernetes-version", "1.36.2", "--openshift-version", "4.19.3", scenarios)
	if code != 0 || strings.Count(out, "\nok ") < 150 {
		t.Errorf("exit code %d:\n%s", code, regexp.MustCompile(`(?m)^ok .*\n`).ReplaceAllString(out, ""))
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// repository makes the files of docs/test.md in the current directory.
func repository(t *testing.T) (scenario string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/test.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(?:yaml)?\n(.*?)```").FindAllStringSubmatch(string(page), 2)
	t.Chdir(t.TempDir())
	write(t, "tests/etcd-next-version.txtar", blocks[0][1])
	write(t, "policies/etcd.yaml", blocks[1][1])
	return blocks[0][1]
}

// TestDocumentOfScenarios follows docs/test.md.
func TestDocumentOfScenarios(t *testing.T) {
	repository(t)
	file := "tests/etcd-next-version.txtar"
	if out, code := tested(t, "tests"); code != exitDiffers || !strings.Contains(out, file+":24: wants other words") {
		t.Errorf("without words: exit code %d:\n%s", code, out)
	}
	if out, code := tested(t, "--update", "tests"); code != 0 || !strings.Contains(out, "updated  "+file) {
		t.Errorf("--update: exit code %d:\n%s", code, out)
	}
	text, err := os.ReadFile(file)
	if want := "is not allowed by OperatorPolicy policies/etcd (bundle/version)"; err != nil ||
		!strings.Contains(string(text), want) {
		t.Errorf("%v: the file has no %q:\n%s", err, want, text)
	}
	if out, code := tested(t); code != 0 { // the current directory
		t.Errorf("exit code %d:\n%s", code, out)
	}
	write(t, "policies/etcd.yaml", "")
	out, code := tested(t, "--update", "tests")
	if after, _ := os.ReadFile(file); code != exitDiffers || !bytes.Equal(text, after) ||
		!strings.Contains(out, "wants Deny, and the decision is Allow") {
		t.Errorf("without a policy: exit code %d:\n%s", code, out)
	}
}

// TestFaultyScenarios: what cannot be played is named with its line, and the others are played.
func TestFaultyScenarios(t *testing.T) {
	text := repository(t)
	for _, c := range []struct{ name, old, new, want string }{
		{"an unknown header", "user:  tenant", "usr: tenant", `:4: header "usr" is not one of`},
		{"a header twice", "user:  tenant", "user: tenant\nuser: admin", `:5: header "user" is defined twice`},
		{"an unknown user", "user:  tenant", "user: me", `:4: user "me" is not one of`},
		{"an unknown rule", "bundle/version", "bundle/versoin", `:3: there is no rule "bundle/versoin"`}, //nolint:misspell // on purpose
		{"an unknown file", "-- want --", "-- wants --", ":24: file wants: is not a file"},
		{"an unknown decision", "\nDeny\n", "\nRefuse\n", `:24: wants "Refuse", which is not`},
		{"YAML that is none", "  namespace: shop\nspec:", "  namespace: shop\n\tspec:",
			":13: file cluster.yaml: document 1: error converting YAML to JSON: yaml: found a tab"},
		{"a kind that is missing", "kind: InstallPlan\n", "", ":7: file cluster.yaml: document 1: apiVersion, kind or"},
		{"no object to write to", "shop/install-x7", "shop/install-x8", ":5: there is no installplan shop/install-x8"},
		{"files that are missing", "../policies", "../polices", ":6: cannot be used: polices: cannot be read"},
		{"standard input", "../policies", "-", ":6: standard input is not for scenarios"},
		{"a deletion that is refused", "approve installplan", "delete installplan", ":24: no webhook reviews deletions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(text, c.old) {
				t.Fatalf("the scenario has no %q", c.old)
			}
			write(t, "tests/broken.txtar", strings.Replace(text, c.old, c.new, 1))
			out, code := tested(t, "tests")
			if code != cli.ExitUnusable || !strings.Contains(out, "ERROR    tests/broken.txtar"+c.want) ||
				!strings.Contains(out, "next-version.txtar:24") {
				t.Errorf("exit code %d, want %q:\n%s", code, c.want, out)
			}
		})
	}
}

// TestScenariosAsWebhooksAreCalled: a write that no webhook is asked about is allowed, whatever the handler would answer, and
// the defaults of a definition are no change.
func TestScenariosAsWebhooksAreCalled(t *testing.T) {
	t.Chdir(t.TempDir())
	for patch, want := range map[string]string{
		`{"metadata":{"labels":{"a":"b"}}}`:                         "Allow",
		`{"metadata":{"finalizers":["a/b"]}}`:                       "Allow",
		`{"metadata":{"annotations":{"argocd.argoproj.io/a":"b"}}}`: "Allow",
		`{"spec":{"removalBehavior":{"subscriptions":"Delete"}}}`:   "Allow", // the default
		`{"spec":{"removalBehavior":{"subscriptions":"Keep"}}}`:     "Deny\n",
		`{"metadata":{"annotations":{"opgate.io/pending":"a/b"}}}`:  "Deny\n",
	} {
		write(t, "tests/stored.txtar", `It was stored before Opgate came.

user: tenant
do:   patch operatorpolicy policies/etcd
-- policies.yaml --
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: etcd, namespace: policies}
spec:
  remediationAction: enforce
  complianceType: mayhave
  versionRange: "~4.16"
  complianceConfig: {catalogSourceUnhealthy: Compliant, deploymentsUnavailable: NonCompliant, deprecationsPresent: Compliant, upgradesAvailable: Compliant}
  subscription: {name: etcd, namespace: shop}
-- write.json --
`+patch+`
-- want --
`+want)
		if out, _ := tested(t, "--update", "tests"); strings.Contains(out, "the decision is") {
			t.Errorf("%s:\n%s", patch, out)
		}
	}
}

// TestNoScenarios: a command line that tests nothing is not green.
func TestNoScenarios(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{}, {"nowhere"}, {""}, {"--approval-mode=x"}, {"--nope"}} {
		if out, code := tested(t, args...); code != cli.ExitUnusable || out == "" {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
}

// TestScenariosAtATime: header now is the time at which a write is judged.
func TestScenariosAtATime(t *testing.T) {
	text := repository(t)
	policy, err := os.ReadFile("policies/etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, "policies/etcd.yaml", strings.Replace(string(policy), "  subscription:", `  exceptions:
  - versions: [etcdoperator.v0.9.4]
    rules: [bundle/version]
    reason: CVE-2026-1234
    expires: "2026-12-01T00:00:00Z"
  subscription:`, 1))
	at := func(now string) (string, int) {
		write(t, "tests/etcd-next-version.txtar", strings.Replace(text, "user: ", "now: "+now+"\nuser: ", 1))
		return tested(t, "--update", "tests")
	}
	if out, code := at("2026-11-30T23:59:59Z"); code != exitDiffers ||
		!strings.Contains(out, "wants Deny, and the decision is Allow") {
		t.Errorf("before the end of the exception: exit code %d:\n%s", code, out)
	}
	if out, code := at("2026-12-01T01:00:00+01:00"); code != 0 {
		t.Errorf("at its end: exit code %d:\n%s", code, out)
	}
	if out, code := at("tomorrow"); code != cli.ExitUnusable ||
		!strings.Contains(out, `now "tomorrow" is not a time as in RFC 3339`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
