package install

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/node"
)

// previousRevision is set by -previous.
var previousRevision = flag.String("previous", "",
	"commit that TestRollback goes back to (default: the latest release tag before this commit, or its first parent)")

// TestRollback goes back to the version before, and forward again, by the commands of docs/upgrade.md, while requests
// come in and policies with every field are stored. Nothing that a policy forbids is admitted meanwhile, what is stored
// stays as it is, and this version judges it as before. Its cluster is its own, since definitions change.
func TestRollback(t *testing.T) {
	t.Parallel()
	checkout := checkOut(t, previous(t))
	chart := repo.Checkout{Root: checkout}.Chart()
	setChartVersion(t, chart, earlierVersion)
	earlier := map[string]node.Program{Repository + ":" + earlierVersion: node.Opgate(buildServer(t, checkout))}
	s := start(t, cluster.Options{}, earlier)

	s.RunHelm(t, "install", "opgate", chart, "--create-namespace", "--wait", "--set", patiently())
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	s.underLoad(t, namespace,
		func() { s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--wait") })
	s.wantImage(t, false)

	governed := s.NewNamespace(t)
	features := readFeatures(t, governed)
	for _, object := range features {
		// While pods of the version before drain, they answer as well, and refuse fields that they do not know.
		harness.Eventually(t, "apply "+object.GetName(), func(ctx context.Context) error {
			result, err := s.Kubectl(ctx, cluster.Admin, harness.AsJSON(t, object), "apply", "-f", "-")
			if err == nil && result.ExitCode != 0 {
				err = errors.New(result.Stderr)
			}
			return err
		})
	}
	tries := featureTries(governed)
	refusals := s.wantRefusals(t, tries)
	stored := s.specs(t, features)
	for _, step := range []struct {
		command string
		earlier bool
	}{
		{command: "helm rollback", earlier: true},
		{command: "helm upgrade"},
	} {
		s.underLoad(t, namespace, func() { s.Shell(t, ShellSteps(t, "../../docs/upgrade.md", step.command)[0]) },
			tries...)
		s.wantImage(t, step.earlier)
		s.wantSettled(t)
		for object, got := range s.specs(t, features) {
			if got != stored[object] {
				t.Errorf("after %s %s is\n%s\nit was\n%s", step.command, object, got, stored[object])
			}
		}
		s.WantGate(t, namespace)
		s.wantRefusals(t, tries)
	}
	for _, try := range tries {
		harness.Eventually(t, "the refusal is that of before", func(ctx context.Context) error {
			got, err := s.refusal(ctx, try)
			if err == nil && got != refusals[try.Object.GetName()] {
				err = fmt.Errorf("it is\n%s\nit was\n%s", got, refusals[try.Object.GetName()])
			}
			return err
		})
	}
	s.WantNothingForbidden(t)
}

// wantSettled waits until the webhook configurations are not written any more: two versions that both set their own
// fields would go on for ever.
func (s *Site) wantSettled(t *testing.T) {
	t.Helper()
	generations := func() string {
		return s.Admin(t, "get", "validatingwebhookconfiguration/opgate", "mutatingwebhookconfiguration/opgate", "-o",
			"jsonpath={.items[*].metadata.generation}")
	}
	harness.Eventually(t, "the webhook configurations stay as they are", func(context.Context) error {
		before := generations()
		time.Sleep(2 * time.Second)
		if now := generations(); now != before {
			return fmt.Errorf("their generations are %s, and were %s two seconds before", now, before)
		}
		return nil
	})
}

// previous is the commit to go back to. Without one the test is skipped, and fails where CI runs it, so that a checkout
// without history does not pass for a rollback.
func previous(t *testing.T) string {
	t.Helper()
	if *previousRevision != "" {
		return *previousRevision
	}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output()
		return string(bytes.TrimSpace(out)), err
	}
	tag, noTag := git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")
	parent, err := git("rev-parse", "--verify", "--quiet", "HEAD^")
	switch {
	case noTag == nil:
		return tag
	case err == nil:
		return parent
	case os.Getenv("CI") != "":
		t.Fatalf("no commit before this one is known (git rev-parse HEAD^: %v): fetch the history, with fetch-depth: 0",
			err)
	default:
		t.Skipf("no commit before this one is known (git rev-parse HEAD^: %v); -previous names one", err)
	}
	return ""
}

// checkOut writes the files of a commit into a directory, which it returns. The checkout of the test and its index stay
// as they are.
func checkOut(t *testing.T, revision string) string {
	t.Helper()
	present, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "previous")
	for _, args := range [][]string{{"read-tree", revision}, {"checkout-index", "--all", "--prefix=" + dir + "/"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = present.Root
		cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+dir+".index")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	t.Logf("the version before is %s", revision)
	return dir
}

// buildServer builds opgate-server in a checkout, as cluster.Programs does, so that the two share what is compiled.
func buildServer(t *testing.T, checkout string) string {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "opgate-server")
	cmd := gotool.Command(t.Context(), checkout, dir, "build", "-trimpath", "-o", binary, "./cmd/opgate-server")
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the version before: %v\n%s", errors.Join(err, t.Context().Err()), out)
	}
	return binary
}

// readFeatures reads testdata/features.yaml for a namespace, and wants it to have every field of docs/stability.
func readFeatures(t *testing.T, namespace string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile("testdata/features.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	used := map[string]bool{}
	for _, document := range strings.Split(strings.ReplaceAll(string(data), "NAMESPACE", namespace), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
		_, version, _ := strings.Cut(object.GetAPIVersion(), "/")
		collectFields(used, object.GetKind()+" "+version+" spec", object.Object["spec"])
	}
	list, err := os.ReadFile("../../docs/stability/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		field := strings.Join(strings.Fields(line)[:3], " ")
		kind, rest, _ := strings.Cut(field, " ")
		version, path, _ := strings.Cut(rest, " ")
		stored := version == storedVersions[kind] && strings.HasPrefix(path, "spec.")
		if stored && !used[field] && !slices.Contains(notTogether, path) {
			t.Errorf("testdata/features.yaml has no object with %s", field)
		}
	}
	return objects
}

// storedVersions are the versions in which kinds are stored.
var storedVersions = map[string]string{
	"OperatorPolicy": "v1beta2", "Constraint": "v1", "Policy": "v1", "PolicySet": "v1beta1",
}

// notTogether are fields that are refused in an OperatorPolicy of v1beta2, or beside others that the file has.
var notTogether = []string{
	"spec.subscription.installPlanApproval", "spec.operatorGroup.selector", "spec.operatorGroup.target.selector",
	"spec.operatorGroup.targetNamespaces",
}

// collectFields notes the paths of all fields of a value, as docs/stability/fields.txt has them.
func collectFields(used map[string]bool, path string, value any) {
	used[path] = true
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			collectFields(used, path+"."+name, field)
		}
	case []any:
		for _, element := range v {
			collectFields(used, path+"[]", element)
		}
	}
}

// featureTries are writes that the policies of testdata/features.yaml refuse, by this version and any other: a version
// that cannot read a policy refuses what it may govern.
func featureTries(namespace string) []Try {
	subscription := func(name, channel string) *unstructured.Unstructured {
		object := harness.Subscription(namespace, name, "some", "Manual")
		object.Object["spec"].(map[string]any)["name"] = name
		object.Object["spec"].(map[string]any)["channel"] = channel
		return object
	}
	return []Try{
		{User: cluster.Admin, Object: subscription("allowed", "other"), Refused: "OperatorPolicy policies/feature-"},
		{User: cluster.Admin, Object: subscription("forbidden", "stable"), Refused: "OperatorPolicy policies/feature-"},
		{User: cluster.Admin, Object: subscription("earlier", "other"), Refused: "OperatorPolicy policies/feature-"},
		{User: cluster.Admin, Object: subscription("templated", "stable"), Refused: "OperatorPolicy policies/feature-"},
		{User: cluster.Admin, Object: subscription("unwanted", "stable"), Refused: "feature-"},
		{User: cluster.Admin, Object: subscription("avoided", "stable"), Refused: "feature-"},
	}
}

// wantRefusals wants each of the writes to be refused, soon, and returns the refusals by name.
func (s *Site) wantRefusals(t *testing.T, tries []Try) map[string]string {
	t.Helper()
	refusals := map[string]string{}
	for _, try := range tries {
		harness.Eventually(t, try.Object.GetName()+" is refused", func(ctx context.Context) (err error) {
			refusals[try.Object.GetName()], err = s.refusal(ctx, try)
			return err
		})
	}
	return refusals
}

// specs are the UIDs and specs of objects as they are stored.
func (s *Site) specs(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, object := range objects {
		kind := object.GetKind()
		resource := strings.ToLower(kind) + "." + storedVersions[kind] + "." + object.GroupVersionKind().Group
		args := []string{"get", resource, object.GetName(), "-o",
			"jsonpath={.metadata.uid} {.metadata.generation} {.spec}"}
		if object.GetNamespace() != "" {
			args = append(args, "-n", object.GetNamespace())
		}
		found[resource+" "+object.GetName()] = s.Admin(t, args...)
	}
	return found
}
