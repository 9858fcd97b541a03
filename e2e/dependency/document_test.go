package dependency

import (
	"context"
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
	"k8s.io/apimachinery/pkg/runtime"

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

// cmdGrant grants Opgate the permissions that a release with these values has for templates, and waits until they are
// in force.
func (e *env) cmdGrant(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 1, 1, "grant VALUES")
	rendered, err := e.Helm(context.Background(), "template", "opgate", harness.ChartDir, "--namespace",
		cluster.OpgateNamespace, "--values", ts.MkAbs(args[0]),
		"--set", "olm.identity="+cluster.OLMUserName, "--show-only", "templates/rbac.yaml")
	ts.Check(err)
	granted := 0
	var role rbacv1.ClusterRole
	for _, document := range strings.Split(rendered.Stdout, "\n---\n") {
		u := harness.Object("%s", document)
		if u.GetName() != "opgate-ordering" {
			continue
		}
		ts.Check(e.Apply(u))
		granted++
		if u.GetKind() == "ClusterRole" {
			ts.Check(runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role))
		}
	}
	if granted != 2 || len(role.Rules) == 0 {
		ts.Fatalf("the chart has %d objects called opgate-ordering, want a role and a binding\n%s", granted,
			rendered.Stderr)
	}
	for _, rule := range role.Rules {
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
