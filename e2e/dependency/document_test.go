package dependency

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// documentScript makes a script of docs/ordering.md, which is run from its beginning to its end in namespace shop:
//
//   - A block of YAML is a file, with the name that its first line has as a comment.
//   - A block "console" has commands, each after "$ ", and what they print; ages, and how wide columns are, do not count.
//   - A comment "test: ..." is a command of TestDependency: it plays a component that does not run here, such as OLM.
func documentScript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/ordering.md")
	if err != nil {
		t.Fatal(err)
	}
	var script, files strings.Builder
	examples := 0
	for _, m := range regexp.MustCompile("(?sm)^```(\\w+)\n(.*?)^```$|^<!-- test: (.*?) -->$").FindAllStringSubmatch(
		string(text), -1) {
		language, block, command := m[1], m[2], m[3]
		switch language {
		case "":
			fmt.Fprintln(&script, command)
		case "yaml":
			name, named := strings.CutPrefix(strings.SplitN(block, "\n", 2)[0], "# ")
			if !named || !regexp.MustCompile("(-f|grant) "+regexp.QuoteMeta(name)).MatchString(string(text)) {
				t.Errorf("an example has no name, or is not applied:\n%s", block)
			}
			fmt.Fprintf(&files, "-- %s --\n%s", name, block)
		case "console":
			for _, command := range strings.Split("\n"+block, "\n$ ")[1:] {
				line, output, _ := strings.Cut(command, "\n")
				examples++
				fmt.Fprintf(&script, "prints output-%d %s\n", examples, line)
				fmt.Fprintf(&files, "-- output-%d --\n%s\n", examples, strings.TrimSuffix(output, "\n"))
			}
		default:
			t.Errorf("a block in %q is not run", language)
		}
	}
	if examples < 10 {
		t.Errorf("%d commands, want at least 10", examples)
	}
	path := filepath.Join(t.TempDir(), "ordering.txtar")
	if err := os.WriteFile(path, []byte(script.String()+"\n"+files.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// setupDocument is setup for the document, which has no names to fill in.
func (e *env) setupDocument(script *testscript.Env) error {
	for variable, value := range map[string]string{"ID": "document", "NS": cluster.ShopNamespace,
		"POLICIES": cluster.ShopNamespace, "OTHER": cluster.PolicyNamespace} {
		script.Setenv(variable, value)
	}
	script.Defer(e.emptied(context.Background(), cluster.ShopNamespace))
	return nil
}

var (
	ages   = regexp.MustCompile(`\b\d+(?:s|m|m\d+s)\b`)
	spaces = regexp.MustCompile(` {2,}`)
)

// withoutMarkup is what a terminal shows, without what is different each time.
func withoutMarkup(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(spaces.ReplaceAllString(ages.ReplaceAllString(line, "AGE"), " ")))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// cmdGrant grants Opgate what values of the chart have in ordering.rules, as the chart does, and waits until that is in
// force.
func (e *env) cmdGrant(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 1, 1, "grant VALUES")
	var values struct {
		WithDependencies struct {
			Rules []rbacv1.PolicyRule `json:"rules"`
		} `json:"ordering"`
	}
	ts.Check(yaml.UnmarshalStrict([]byte(ts.ReadFile(args[0])), &values))
	if len(values.WithDependencies.Rules) == 0 {
		ts.Fatalf("%s has no ordering.rules", args[0])
	}
	rules, err := json.Marshal(values.WithDependencies.Rules)
	ts.Check(err)
	for _, text := range []string{
		"kind: ClusterRole\nrules: " + string(rules),
		`kind: ClusterRoleBinding
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: opgate-ordering}
subjects: [{kind: ServiceAccount, namespace: opgate-system, name: opgate}]`,
	} {
		ts.Check(e.Apply(harness.Object("apiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: opgate-ordering}\n%s",
			text)))
	}
	for _, rule := range values.WithDependencies.Rules {
		for _, verb := range rule.Verbs {
			e.Until(ts, false, e.may(verb, rule.Resources[0]+"."+rule.APIGroups[0]))
		}
	}
}

// may returns an error unless Opgate has a permission in all namespaces.
func (e *env) may(verb, resource string) func(context.Context) error {
	return func(ctx context.Context) error {
		asked := []string{"auth", "can-i", verb, resource, "--all-namespaces", "--as=" + cluster.OpgateUserName}
		result, err := e.Run(ctx, cluster.Command{User: cluster.Admin, Args: asked})
		if err == nil && result.ExitCode != 0 {
			err = fmt.Errorf("kubectl auth can-i %s %s: %s", verb, resource, result.Stdout+result.Stderr)
		}
		return err
	}
}

// cmdPrints runs kubectl in the directory of the script, and wants what it prints to be what is in a file: in the end
// if it only looks, else at once.
func (e *env) cmdPrints(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "kubectl" {
		ts.Fatalf("usage: prints FILE kubectl ARG...")
	}
	want := withoutMarkup(ts.ReadFile(args[0]))
	if e.Gate != nil {
		ts.Check(e.Gate.WaitForBackstop(context.Background()))
	}
	try := func(ctx context.Context) error {
		result, err := e.Run(ctx, cluster.Command{User: cluster.Admin, Args: args[2:], Dir: ts.MkAbs(".")})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(strings.Split(want, "\n"),
			strings.Split(withoutMarkup(result.Stderr+result.Stdout), "\n")); diff != "" {
			return fmt.Errorf("%s does not print what the document has:\n%s\nthe first difference:\n%s\nthe log of opgate ends with\n%s",
				strings.Join(args[1:], " "), result.Stderr+result.Stdout, diff, tail.File(e.Gate.LogPath(), 40))
		}
		return nil
	}
	if !slices.Contains([]string{"get", "describe"}, args[2]) {
		ts.Check(try(context.Background()))
		return
	}
	e.Until(ts, false, try)
}
