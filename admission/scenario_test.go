package admission

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot/packages"
)

// scenarioDir holds the scenario files; package e2e reads the same ones.
const scenarioDir = "../e2e/scenarios"

var update = flag.Bool("update", false,
	"write the answers that the scenarios get into their files; read the diff before you keep it")

// TestScenarios sends the write of every scenario through the handlers that a server has; package e2e runs the same
// files with kubectl and a real API server.
func TestScenarios(t *testing.T) {
	scenarios := reviewed(t)
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) { runScenario(t, s) })
	}
}

// reviewed returns the scenarios of which webhooks review the write: all but deletions.
func reviewed(t testing.TB) []*scenario.Scenario {
	return slices.DeleteFunc(scenariotest.Load(t, scenarioDir, versions),
		func(s *scenario.Scenario) bool { return s.Verb == "delete" })
}

// TestScenariosCoverRules checks that every rule has a scenario.
func TestScenariosCoverRules(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, versions)
	for _, rule := range rules.Rules() {
		if !slices.ContainsFunc(scenarios,
			func(s *scenario.Scenario) bool { return slices.Contains(s.Rules, rule.ID) }) {
			t.Errorf("rule %s has no scenario in e2e/scenarios", rule.ID)
		}
	}
}

// TestScenariosShowOutcomes checks that no rule refuses in another way than it states.
func TestScenariosShowOutcomes(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, versions)
	shown := 0
	for _, s := range scenarios {
		named := ruleIn.FindAllStringSubmatch(s.Message, -1)
		if len(named) != 1 { // a verdict is as severe as its worst reason
			continue
		}
		shown++
		if r := rules.RuleOf(verdict.RuleID(named[0][1])); !strings.Contains(string(r.Outcomes), s.Decision) {
			t.Errorf("%s: the decision is %s, but %s says %s", s.Name, s.Decision, r.ID, r.Outcomes)
		}
	}
	if shown < len(rules.Rules()) {
		t.Errorf("only %d scenarios show an outcome", shown)
	}
}

var ruleIn = regexp.MustCompile(`\(([a-z]+/[a-z-]+)\)`)

var threatID = regexp.MustCompile(`^[OG][0-9]+$`)

// TestScenariosNameThreats checks that each threat that scenarios are to show has one.
func TestScenariosNameThreats(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, versions)
	text, err := os.ReadFile("../docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	threats := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		id := strings.TrimSpace(cells[1])
		if !threatID.MatchString(id) {
			continue // another table
		}
		threats[id] = true
		named := slices.ContainsFunc(scenarios, func(s *scenario.Scenario) bool { return s.Threat == id })
		if strings.Contains(cells[len(cells)-2], "`TestScenarios`") && !named {
			t.Errorf("docs/threats.md names TestScenarios for %s, and no scenario has the header threat: %s", id, id)
		}
	}
	for _, s := range scenarios {
		if s.Threat != "" && !threats[s.Threat] {
			t.Errorf("%s: threat %s is not in docs/threats.md", s.Name, s.Threat)
		}
	}
}

// TestScenariosCallWebhooks checks that scenarios call every webhook that is shipped, for each of its operations. Package
// gate of the end-to-end tests plays one of them for each way.
func TestScenariosCallWebhooks(t *testing.T) {
	scenarios := reviewed(t)
	ways := map[string]bool{}
	for _, s := range scenarios {
		ways[scenariotest.Way(s)] = true
	}
	for _, webhook := range shippedWebhooks(t) {
		kind, subresource, _ := strings.Cut(webhook.Rules[0].Resources[0], "/")
		kind, user := strings.TrimSuffix(kind, "s"), ""
		if strings.HasSuffix(kind, "policie") {
			kind = strings.TrimSuffix(kind, "ie") + "y"
		}
		if strings.HasPrefix(webhook.Name, "generated-") || strings.HasPrefix(webhook.Name, "steps-") {
			user = " olm"
		}
		for _, operation := range webhook.Rules[0].Operations {
			verbs := []string{"replace", "patch"}
			switch {
			case operation == admissionregistrationv1.Create:
				verbs = []string{"create"}
			case subresource != "":
				verbs = []string{"replace-status"}
			}
			if !slices.ContainsFunc(verbs, func(verb string) bool { return ways[verb+" "+kind+user] }) {
				t.Errorf("no scenario sends %s of %s to webhook %s", operation, kind, webhook.Name)
			}
		}
	}
}

func runScenario(t *testing.T, s *scenario.Scenario) {
	existing := slices.Concat(s.Cluster, s.Policies)
	if s.Write != nil && s.Write.GetNamespace() != "" {
		// one with labels comes later
		existing = append([]*unstructured.Unstructured{namespace(s.Write.GetNamespace())}, existing...)
	}
	var catalogs Catalogs
	var packages state.Packages
	if s.Catalog != nil {
		known := catalogsOf(t, s)
		catalogs, packages = known, known.Version
	}
	gate := newGateWithCatalogs(t, storeWith(t, packages, existing...), overrideBy{"admin"}, catalogs)
	old, object := written(t, s, existing)
	got := send(t, gate, s.User, s.Verb == "replace-status", old, object)

	if *update {
		rewrite(t, s, got)
		return
	}
	if got.decision != s.Decision {
		t.Errorf("the decision is %s, want %s", got.decision, s.Decision)
	}
	if diff := cmp.Diff(s.Message, got.message); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(s.Warnings, got.warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	said := got.message + "\n" + strings.Join(got.warnings, "\n")
	for _, id := range s.Rules {
		if !strings.Contains(said, "("+string(id)+")") && !id.ForDeletions() {
			t.Errorf("rule %s did not speak", id)
		}
	}
	if s.Stored != nil {
		merged, err := jsonpatch.MergePatch(got.object, s.Stored)
		if err != nil {
			t.Fatal(err)
		}
		if !jsonpatch.Equal(merged, got.object) {
			t.Errorf("stored is\n%s\nwant it to have\n%s", got.object, s.Stored)
		}
	}
}

// written is Scenario.Written of objects as they are stored.
func written(
	t *testing.T, s *scenario.Scenario, existing []*unstructured.Unstructured,
) (old, object *unstructured.Unstructured) {
	t.Helper()
	stored := make([]*unstructured.Unstructured, len(existing))
	for i, u := range existing {
		stored[i] = marked(t, u)
	}
	old, object, err := s.Written(stored)
	if err != nil {
		t.Fatal(err)
	}
	return old, object
}

func namespace(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(name)
	return u
}

// catalogsOf returns the packages of a scenario's catalogs, fetched from a server that answers as the package server
// does.
func catalogsOf(t *testing.T, s *scenario.Scenario) *packages.Cache {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var items []json.RawMessage
		for _, u := range s.Catalog {
			if strings.HasSuffix(r.URL.Path, "/namespaces/"+u.GetNamespace()+"/packagemanifests") &&
				r.URL.Query().Get("fieldSelector") == "metadata.name="+u.GetName() {
				items = append(items, raw(t, u))
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": olm.PackageManifests.GroupVersion().String(),
			"kind": "PackageManifestList", "items": items}) // the client closed the connection; the test fails there
	}))
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	known := make(chan string, len(s.Catalog))
	catalogs := packages.New(packages.Options{Client: client, Changed: func(pkg string) { known <- pkg },
		Now: time.Now})
	var running sync.WaitGroup
	running.Go(func() {
		if err := catalogs.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	for _, u := range s.Catalog {
		name, _, err := unstructured.NestedString(u.Object, "status", "catalogSource")
		if err != nil {
			t.Fatal(err)
		}
		catalogs.Get(u.GetName(), olm.Catalog{Namespace: u.GetNamespace(), Name: name})
		select {
		case <-known:
		case <-t.Context().Done():
			t.Fatal("the package was not fetched")
		}
	}
	return catalogs
}

func raw(t testing.TB, u *unstructured.Unstructured) []byte {
	t.Helper()
	data, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rewrite puts the refusal and the warnings that a scenario got into its file.
func rewrite(t *testing.T, s *scenario.Scenario, got outcome) {
	t.Helper()
	path := filepath.Join(scenarioDir, s.Name+scenario.Extension)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, scenario.Update(data, got.message, got.warnings, versions), 0o600); err != nil {
		t.Fatal(err)
	}
}
