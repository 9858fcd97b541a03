package loop

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// TestLoopOLMStories plays the stories that TestLoopOLM does not, with make test-long.
//
// OLM sends five requests a second, and no option makes it send more. So there are several of it, each on a cluster of
// its own.
func TestLoopOLMStories(t *testing.T) {
	t.Parallel()
	harness.Together(t, map[string]func(*testing.T){"operators": loopOperators, "trouble": loopTrouble,
		"consent": loopConsent})
}

// loopOperators is about operators that come, stay and go as policies say.
func loopOperators(t *testing.T) {
	e := startLoopOLM(t, cluster.GateOptions{Loop: true}, loopPackages())
	installed := accountPolicy(t, e, e.NewNamespace(t), "etcd", harness.Etcd4)
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"A7 a stranger's operator for all namespaces":  strangersInstallation,
		"deprecations and minor channels":              deprecationsAndChannels, // scenarios 9.8, 26.1, 26.2 of operators
		"an operator refuses its upgrade, break-glass": upgradeForced,
		"an account that OLM installs as":              installsAsAccount,
		"a tenant deletes the plan that waits":         planDeleted,
	})
	wantNoRefusalOfOLM(t, e.Env)
	t.Run("Opgate is missing while OLM installs as an account", func(t *testing.T) { awayFromAccount(t, e, installed) })
}

// loopTrouble is about operators that are in each other's way, and about what goes wrong.
func loopTrouble(t *testing.T) {
	var unreviewed *unstructured.Unstructured
	e := startLoopOLM(t, cluster.GateOptions{}, loopPackages(), func(e *harness.Env) { unreviewed = slip(t, e) })
	// The first, before the loop runs and heals it.
	if !t.Run("a Subscription that slipped past heals", func(t *testing.T) { slippedHeals(t, e, unreviewed) }) {
		return // the loop may not run
	}
	inline, image := e.NewNamespace(t), e.NewNamespace(t)
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"a dependency that is forbidden": func(t *testing.T,
			e *harness.OLMEnv) {
			forbiddenDependency(t, e, inline, image)
		},
		"a broken catalog that is deleted": brokenCatalog,
	})
	wantNoRefusalOfOLM(t, e.Env, inline, image)
	t.Run("Opgate is away while OLM works", func(t *testing.T) { opgateAway(t, e) })
}

// loopConsent is about policies that want an upgrade reviewed for what it changes, on the real OLM.
func loopConsent(t *testing.T) {
	e := startLoopOLM(t, cluster.GateOptions{Loop: true, Reports: true}, []olm.Package{
		growing("anchor", "anchoroperator", true, "*"), ledgerPackage()}, withReports(t))
	addRebuilt(t, e, growing("anchor", "anchoroperator", true, "*", "impersonate"))
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"by image":                         func(t *testing.T, e *harness.OLMEnv) { upgradeReviewed(t, e, "anchor", "anchoroperator") },
		"OLM does it for a tenant":         deputies,
		"a window opens and an age passes": agePasses, // here, since OLM is idle while it waits
	})
	t.Run("a ConfigMap is edited after the approval", func(t *testing.T) { editedAfterApproval(t, e) })
}
