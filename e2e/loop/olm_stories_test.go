package loop

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
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
		"stories 1 to 3, a pinned version and its upgrade": storiesPinned, // scenarios 9.5, 9.7 of operators
		"story 4, inform":                                          storyInform,
		"story 5, one namespace":                                   storyNamespace,
		"story 6, removal":                                         storyRemoval,
		"story 6, removal of definitions and plans":                storyRemovalOfAll,
		"story 7, removal of a version":                            storyRemovalOfVersion,
		"story 7, a forbidden version and its neighbours":          storyForbiddenVersion,
		"an operator that is installed for all namespaces already": existingInstallation, // scenario 29.1 of operators
		"A7 a stranger's operator for all namespaces":              strangersInstallation,
		"an operator that supports its own namespace only":         ownNamespaceOnly,
		"defaults from the catalog":                                defaultsFromCatalog,     // scenarios 1.1, 21.1 of operators
		"deprecations and minor channels":                          deprecationsAndChannels, // scenarios 9.8, 26.1, 26.2 of operators
		"an operator waits for another one":                        operatorWaits,           // scenario S2 of operators
		"an operator refuses its upgrade, an admin overrules it":   upgradeOverruled,
		"an operator refuses its upgrade, break-glass":             upgradeForced,
		"an allow-list":                                            allowList,
		"an account that OLM installs as":                          installsAsAccount,
		"calls avoided":                                            callsAvoided,
		"a freeze and an exception end":                            timePasses,
		"a tenant deletes the plan that waits":                     planDeleted,
	})
	t.Run("an operator that is installed for all namespaces, without copies",
		func(t *testing.T) { withoutCopies(t, e) })
	t.Run("without a package server", func(t *testing.T) { withoutPackageServer(t, e) })
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
		"a pinned operator and free ones share a namespace":       pinnedAndFree,
		"free operators are held where the namespace says so":     freeAreHeld,
		"a dependency comes along":                                dependencyComesAlong,
		"a dependency that is an image is held by its own policy": dependencyIsHeld,
		"an operator that does not come up":                       notComingUp, // scenario 7.1 of trouble
		"a list without the newest version":                       startsAllowed,
		"a policy is corrected while its plan waits":              startIsCorrected,
		"a neighbour in the way is deleted":                       neighbourIsFreed,
		"an unhealthy catalog":                                    unhealthyCatalog, // scenario 8.4 of trouble
		"a broken catalog that is deleted":                        brokenCatalog,
		"a policy is edited while a plan waits":                   editedWhilePending,
	})
	wantNoRefusalOfOLM(t, e.Env, inline, image)
	t.Run("Opgate is away while OLM works", func(t *testing.T) { opgateAway(t, e) })
}

// loopConsent is about policies that want an upgrade reviewed for what it changes, on the real OLM.
func loopConsent(t *testing.T) {
	e := startLoopOLM(t, cluster.GateOptions{Loop: true, Reports: true}, append(changingPackages(),
		growing("anchor", "anchoroperator", true, "*"), ledgerPackage()), withReports(t))
	addRebuilt(t, e, growing("anchor", "anchoroperator", true, "*", "impersonate"))
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"by image": func(t *testing.T, e *harness.OLMEnv) { upgradeReviewed(t, e, "anchor", "anchoroperator") },
		"C1 rights for an account of another namespace": attackC1,
		"C2 a role that was prepared":                   attackC2,
		"C3 pods that run as another account":           attackC3,
		"C4 a Secret with the token of another account": attackC4,
		"past the policies, step by step":               pastPolicies,
		"OLM does it for a tenant":                      deputies,
		"a window opens and an age passes":              agePasses, // here, since OLM is idle while it waits
	})
	t.Run("a ConfigMap is edited after the approval", func(t *testing.T) { editedAfterApproval(t, e) })
}
