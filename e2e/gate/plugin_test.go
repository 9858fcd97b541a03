package gate

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// opgate runs kubectl with the plugin, and expects an exit code.
func opgate(t *testing.T, e *harness.Env, kubeconfig string, exitCode int, args ...string) cluster.Result {
	t.Helper()
	got, err := e.RunPlugin(t.Context(), kubeconfig, cluster.Command{Args: append([]string{"opgate"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	if got.ExitCode != exitCode {
		t.Fatalf("kubectl opgate %s ends with exit code %d, want %d: %s%s", strings.Join(args, " "), got.ExitCode,
			exitCode, got.Stdout, got.Stderr)
	}
	return got
}

// listedPlan is the part of the output of pending that tests read.
type listedPlan struct {
	Namespace, Name, Decision string
	Reasons                   []struct{ Rule, Source, Message string }
}

// listedPlans is the List that pending prints.
type listedPlans struct{ Items []listedPlan }

func pendingJSON(t *testing.T, e *harness.Env, kubeconfig string, args ...string) map[string]listedPlan {
	t.Helper()
	var list listedPlans
	got := opgate(t, e, kubeconfig, 0, append([]string{"pending", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(got.Stdout), &list); err != nil {
		t.Fatalf("%v: %s", err, got.Stdout)
	}
	byName := map[string]listedPlan{}
	for _, p := range list.Items {
		byName[p.Name] = p
	}
	return byName
}

// TestPlugin lists plans and asks why, by the real kubectl, and compares with what the gate answers.
func TestPlugin(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	policy := e.Put(t, harness.OperatorPolicy(namespace))
	e.Put(t, harness.InstallPlan(namespace, "allowed", harness.AllowedVersion))
	e.Put(t, harness.InstallPlan(namespace, "forbidden", harness.ForbiddenVersion))
	e.Sync(t)

	table := opgate(t, e, "", 0, "pending", "-n", namespace).Stdout
	for _, line := range []string{
		`NAMESPACE +PLAN +OPERATORS +VERDICT +RULE +AGE`,
		namespace + ` +allowed +etcdoperator\.v\S+ +Allow \(outdated\) +- +\d+s`,
		namespace + ` +forbidden +etcdoperator\.v\S+ +Deny \(outdated\) +bundle/version +\d+s`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(table) {
			t.Errorf("no line %s in\n%s", line, table)
		}
	}
	if strings.Contains(table, "\x1b") {
		t.Errorf("colors without a terminal:\n%q", table)
	}

	// The words are those of the gate.
	plans := pendingJSON(t, e, "", "-A")
	if plans["allowed"].Decision != "Allow" || plans["forbidden"].Decision != "Deny" ||
		len(plans["forbidden"].Reasons) != 1 {
		t.Fatalf("got %+v", plans)
	}
	approve := []string{"patch", "installplan", "forbidden", "-n", namespace, "--type=merge", "--patch",
		`{"spec":{"approved":true}}`}
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", approve, plans["forbidden"].Reasons[0].Message)

	harness.WantTexts(t, opgate(t, e, "", 0, "pending", "-n", namespace, "-o", "wide").Stdout,
		plans["forbidden"].Reasons[0].Message)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "label", "installplan", "allowed", "-n", namespace, "team=a")
	if got := opgate(t, e, "", 0, "pending", "-n", namespace, "-l", "team=a", "-o",
		"jsonpath={.items[*].name}").Stdout; got != "allowed" {
		t.Errorf("-l team=a lists %q", got)
	}

	// An override with an end counts until then.
	override := []string{"approve", namespace + "/forbidden", "--reason", "INC-1234", "--dry-run", "--expires"}
	opgate(t, e, "", 1, append(override, "2026-01-01T00:00:00Z")...)
	opgate(t, e, "", 0, append(override, "2h")...)

	// The edit that why proposes is made as it is printed, and is enough.
	opgate(t, e, "", 0, "why", "installplan", namespace+"/allowed")
	why := opgate(t, e, "", 1, "why", "ip", namespace+"/forbidden").Stdout
	harness.WantTexts(t, why, "Deny installplan "+namespace+"/forbidden", "denied", "bundle/version",
		"OperatorPolicy policies/"+policy.GetName(),
		plans["forbidden"].Reasons[0].Message)
	command := regexp.MustCompile(`kubectl (patch \S+ \S+ -n \S+ --type=json) -p '(.*)'`).FindStringSubmatch(why)
	if command == nil {
		t.Fatalf("no edit in\n%s", why)
	}
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", append(strings.Fields(command[1]), "-p", command[2])...)
	opgate(t, e, "", 0, "why", "installplan", namespace+"/forbidden")
	e.Sync(t)
	opgate(t, e, "", 0, "approve", namespace+"/forbidden")
	harness.WantTexts(t, opgate(t, e, "", 0, "why", "operatorpolicy", "policies/"+policy.GetName()).Stdout,
		"(operatorpolicy/pending)", namespace+"/allowed")
	opgate(t, e, "", 2, "why", "installplan", namespace+"/missing")
}

// TestPluginDocument compares what docs/plugin.md shows with what is printed for sample bundle-version-deny.
func TestPluginDocument(t *testing.T) {
	e := harness.Shared(t)
	const namespace = "bookshop"
	e.EnsureNamespace(t, namespace, true)
	sample, err := os.ReadFile("../../manifests/samples/bundle-version-deny.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(strings.ReplaceAll(string(sample), "bundle-version-deny", namespace),
		"\n---\n") {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "", "Namespace":
			continue
		case "Subscription":
			status := u.Object["status"].(map[string]any)
			status["installPlanRef"] = map[string]any{"name": "install-x7k2p", "namespace": namespace}
		}
		e.Put(t, &u)
	}
	e.Sync(t)
	text, err := os.ReadFile("../../docs/plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	timeless := func(s string) string { // times differ, and with them the width of no column
		s = regexp.MustCompile(`\d+(m|s)\n`).ReplaceAllString(s, "AGE\n")
		return regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(s, "TIME")
	}
	shown := regexp.MustCompile(
		`(?m)^\$ kubectl opgate (pending|why)(.*)\n((?s:.*?))^\x60\x60\x60`).FindAllStringSubmatch(string(text),
		-1)
	if len(shown) != 2 {
		t.Fatalf("%d commands are shown", len(shown))
	}
	for _, m := range shown {
		exitCode := 0
		if m[1] == "why" {
			exitCode = 1
		}
		got := opgate(t, e, "", exitCode, append([]string{m[1]}, strings.Fields(m[2])...)...)
		if timeless(got.Stdout) != timeless(m[3]) {
			t.Errorf("%s%s prints\n%s\nthe document shows\n%s", m[1], m[2], got.Stdout, m[3])
		}
	}
}

// TestPluginCompletes asks kubectl for completions, which it gets from kubectl_complete-opgate.
func TestPluginCompletes(t *testing.T) {
	e := harness.Shared(t)
	for want, args := range map[string][]string{"approve": {"app"}, "operatorpolicy": {"why", "oper"},
		"bundle/version": {"explain", "bundle/v"}} {
		got, err := e.RunPlugin(t.Context(), "",
			cluster.Command{Args: append([]string{"__complete", "opgate"}, args...)})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains("\n"+got.Stdout, "\n"+want) {
			t.Errorf("%v is completed with\n%s%s\nwant %q in it", args, got.Stdout, got.Stderr, want)
		}
	}
}
