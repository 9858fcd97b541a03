package backstop_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// scenarioDir holds the scenario files, which package admission and the tests on a real API server play as well.
const scenarioDir = "../../e2e/scenarios"

var update = flag.Bool("update", false,
	"write what the API server answers by itself into the scenarios; read the diff before you keep it")

// TestScenarios plays the write of every scenario through what the policies in it compile to.
func TestScenarios(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, scenario.Versions{Kubernetes: "${KUBERNETES}",
		OpenShift: "${OPENSHIFT}"})
	// One table for all: it takes as long to compile as that of one scenario.
	apart := make([]*scenario.Scenario, len(scenarios))
	var existing []*unstructured.Unstructured
	for i, s := range scenarios {
		apart[i] = scenariotest.Apart(t, s, suffix(i))
		existing = slices.Concat(existing, apart[i].Cluster, apart[i].Policies)
	}
	in := backstop.Input{OLM: []string{olmUser}, Opgate: opgateUser, Features: everything, Now: time.Now(),
		Accounts: map[string][]string{}, Operators: map[string][]string{},
		Kept: map[string][]bundle.Kept{}}
	cluster := snapshotOf(t, existing)
	in.Constraints = cluster.Constraints().Definitions()
	for ns := range cluster.All() {
		in.Operators[ns.Name()], in.Kept[ns.Name()] = ns.Operators(), bundle.KeptIn(ns)
		in.Catalogs = append(in.Catalogs, ns.ProtectedCatalogs()...)
		in.Policies = append(in.Policies, ns.Policies()...)
		if accounts := ns.StepAccounts(); len(ns.Policies()) > 0 && len(accounts) > 0 {
			in.Accounts[ns.Name()] = accounts
		}
	}
	objects := compile(in)
	if len(objects.Left) > 0 {
		t.Fatalf("the table lacks a part of %v", objects.Left)
	}
	wantRules(t, objects)
	server := newAPIServer(t, objects)
	onDeletions := newAPIServer(t, &parts{Validating: objects.Deletion,
		ValidatingBinding: objects.DeletionBinding})
	for i, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			got := answerToDeletion(t, onDeletions, apart[i])
			if got == "" {
				got = answerTo(t, server, apart[i])
			}
			got = strings.ReplaceAll(got, suffix(i), "")
			if *update {
				rewrite(t, s, got)
				return
			}
			if got != s.Backstop {
				t.Errorf("the API server answers by itself\n%s\nwant\n%s", got, s.Backstop)
			}
			for _, id := range s.Rules {
				if id.ForDeletions() && !strings.Contains(got, "("+string(id)+")") {
					t.Errorf("rule %s did not speak", id)
				}
			}
		})
	}
}

// advice matches a rule in a message, and what would be accepted up to the first detail.
var advice = regexp.MustCompile(`\(([a-z]+/[a-z-]+)\): ([^;\n]*)`)

// TestSameWordsAsTheGate checks that the advice of the API server in a scenario is the beginning of the gate's by the same
// rule. The gate does not judge deletions, and the API server cannot name what a Policy waits for.
func TestSameWordsAsTheGate(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, scenario.Versions{})
	gate, compared := map[string][]string{}, 0
	for _, s := range scenarios {
		for _, m := range advice.FindAllStringSubmatch(strings.Join(append(s.Warnings, s.Message), "\n"), -1) {
			gate[m[1]] = append(gate[m[1]], m[2])
		}
	}
	for _, s := range scenarios {
		for _, m := range advice.FindAllStringSubmatch(s.Backstop, -1) {
			if verdict.RuleID(m[1]).ForDeletions() || m[1] == "bundle/dependency-pending" {
				continue
			}
			compared++
			if !slices.ContainsFunc(gate[m[1]], func(said string) bool { return strings.HasPrefix(said, m[2]) }) {
				t.Errorf("%s: the API server says %q, the gate never begins so by %s", s.Name, m[2], m[1])
			}
		}
	}
	if compared == 0 {
		t.Error("nothing was compared")
	}
}

// wantRules checks that the API server refuses by the rules that say so, and by no others.
func wantRules(t *testing.T, objects *parts) {
	t.Helper()
	text, err := json.Marshal(objects)
	if err != nil {
		t.Fatal(err)
	}
	held := map[verdict.RuleID]bool{}
	for _, match := range ruleIn.FindAllStringSubmatch(string(text), -1) {
		held[verdict.RuleID(match[1])] = true
	}
	for _, r := range rules.Rules() {
		if held[r.ID] != r.Backstop {
			t.Errorf("the API server holds %s: %t, but the rule says %t", r.ID, held[r.ID], r.Backstop)
		}
	}
}

// TestRefusalsWithoutTrace checks that the documentation names every rule by which a scenario is refused before Opgate
// is asked.
func TestRefusalsWithoutTrace(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, scenario.Versions{})
	section := documented(t, "What is held")
	refused := 0
	for _, s := range scenarios {
		for _, match := range ruleIn.FindAllStringSubmatch(s.Backstop, -1) {
			refused++
			if !strings.Contains(section, "`"+match[1]+"`") {
				t.Errorf("%s: docs/backstop.md does not name %s", s.Name, match[1])
			}
		}
	}
	if refused == 0 {
		t.Error("no scenario is refused")
	}
}

// TestDocumentedAsLeft checks that the documentation names every rule on objects of OLM that the API server does not
// hold.
func TestDocumentedAsLeft(t *testing.T) {
	section := documented(t, "What is left to the webhooks")
	kinds := []string{"subscription", "bundle", "plan", "csv", "catalogsource", "operatorgroup"}
	left := 0
	for _, r := range rules.Rules() {
		kind, _, _ := strings.Cut(string(r.ID), "/")
		if !slices.Contains(kinds, kind) || r.Outcomes == verdict.Warns {
			continue
		}
		if !r.Backstop {
			left++
		}
		if named := strings.Contains(section, "`"+string(r.ID)+"`"); named == r.Backstop {
			t.Errorf("docs/backstop.md says that %s is left to the webhooks: %t, the API server holds it: %t", r.ID,
				named, r.Backstop)
		}
	}
	if left == 0 {
		t.Error("no rule is left")
	}
}

// documented returns a section of docs/backstop.md.
func documented(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/backstop.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

var ruleIn = regexp.MustCompile(`\(([a-z]+/[a-z-]+)\)`)

// suffix makes names of namespaces those of one scenario.
func suffix(number int) string { return fmt.Sprintf("-%03d", number) }

// answerToDeletion is answerTo of the policy on deletions, which judges updates as well.
func answerToDeletion(t *testing.T, server *apiServer, s *scenario.Scenario) string {
	t.Helper()
	old, object, err := s.Written(slices.Concat(s.Cluster, s.Policies))
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]string{"Subscription": "subscriptions", "ClusterServiceVersion": "clusterserviceversions",
		"OperatorGroup": "operatorgroups", "CatalogSource": "catalogsources", "OperatorPolicy": "operatorpolicies",
		"Namespace": "namespaces", "Constraint": "constraints",
		"CustomResourceDefinition": "customresourcedefinitions"}
	if old == nil || resources[old.GetKind()] == "" || s.Verb == "replace-status" {
		return "" // it is not matched
	}
	old = old.DeepCopy()
	old.SetUID("uid-of-it")
	w := write{resource: resources[old.GetKind()], user: s.User, old: old.Object}
	if object != nil {
		w.object = object.Object
	}
	if s.User == "olm" {
		w.user, w.rights = olmUser, []string{escalate}
	}
	got := server.judge(t, w)
	if len(got.failed) > 0 {
		t.Fatalf("an expression fails: %q", got.failed)
	}
	if len(got.refused) == 0 {
		return ""
	}
	text, found := strings.CutSuffix(got.refused[0], "; "+scenariotest.HeldByDeletion)
	if !found {
		t.Fatalf("the refusal is %q", got.refused)
	}
	return strings.ReplaceAll(text, string(old.GetUID()), scenariotest.UIDPlaceholder)
}

// answerTo is what the file backstop of a scenario has to have.
func answerTo(t *testing.T, server *apiServer, s *scenario.Scenario) string {
	t.Helper()
	old, object, err := s.Written(slices.Concat(s.Cluster, s.Policies))
	if err != nil {
		t.Fatal(err)
	}
	if object == nil {
		return "" // a deletion is not matched
	}
	resources := map[string]string{"InstallPlan": "installplans", "Subscription": "subscriptions",
		"ClusterServiceVersion": "clusterserviceversions"}
	w := write{resource: resources[object.GetKind()], user: s.User, object: object.Object}
	if old != nil {
		w.old = old.Object
	}
	switch {
	case w.resource == "", s.Verb == "replace-status" && w.resource != "installplans":
		return "" // it is not matched
	case s.Verb == "replace-status":
		w.resource += "/status"
	}
	switch s.User {
	case "olm":
		w.user, w.rights = olmUser, []string{escalate}
	case "admin":
		w.rights = []string{escalate}
		for _, p := range s.Policies {
			w.rights = append(w.rights, "override operatorpolicies "+p.GetNamespace()+"/"+p.GetName())
		}
	}
	stored := ""
	if w.resource == "subscriptions" {
		before, _, _ := unstructured.NestedString(object.Object, "spec", "installPlanApproval")
		if approval := server.mutate(t, w); approval != before {
			object = object.DeepCopy()
			if err := unstructured.SetNestedField(object.Object, approval, "spec", "installPlanApproval"); err != nil {
				t.Fatal(err)
			}
			w.object, stored = object.Object, approval
		}
	}
	got := server.judge(t, w)
	if len(got.failed) > 0 {
		t.Fatalf("an expression fails: %q", got.failed)
	}
	if len(got.refused) == 0 {
		return stored
	}
	text, found := strings.CutSuffix(got.refused[0], "; "+scenariotest.HeldByBackstop)
	if !found || len(got.refused) > 1 {
		t.Fatalf("the refusal is %q", got.refused)
	}
	return text
}

// snapshotOf is the snapshot of some objects.
func snapshotOf(t *testing.T, objects []*unstructured.Unstructured) *snapshot.Snapshot {
	t.Helper()
	reader := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName, err error) { t.Fatal(err) }}
	kinds := []*snapshot.Kind{snapshot.OperatorPolicies, snapshot.OperatorGroups, snapshot.Policies, snapshot.Constraints,
		snapshot.Subscriptions, snapshot.ClusterServiceVersions}
	var all []*snapshot.Object
	for _, u := range objects {
		if i := slices.IndexFunc(kinds, func(k *snapshot.Kind) bool { return k.Kind == u.GetKind() }); i >= 0 {
			all = append(all, reader.Read(kinds[i], []byte(compact(u.Object))))
		}
	}
	builder := snapshot.Builder{}
	return builder.Put(time.Time{}, all...)
}

// rewrite puts what the API server answers by itself into the file of a scenario.
func rewrite(t *testing.T, s *scenario.Scenario, answer string) {
	t.Helper()
	path := filepath.Join(scenarioDir, s.Name+".txtar")
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "backstop" })
	if answer != "" {
		archive.Files = append(archive.Files, txtar.File{Name: "backstop", Data: []byte(answer + "\n")})
	}
	if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
		t.Fatal(err)
	}
}
