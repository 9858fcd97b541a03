package loop

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestLoop runs the scripts of testdata against an API server with Opgate's background loop. There is no OLM: a script
// writes what OLM would, and so reaches states in which a real one stays for milliseconds. What a real OLM does is in
// TestLoopOLM.
//
// Each script has a namespace for an operator, $NS, and one for its policies, $POLICIES. $ID is different for each, for the
// names of what is not in a namespace. Where not said otherwise, a command waits until what it says is so. Commands:
//
//	apply FILE...                 write objects with $NS, $POLICIES and $ID filled in: plans as OLM does, all else as an
//	                              admin, and every status as OLM
//	proposes PLAN SUBSCRIPTION=CSV...
//	                              OLM has resolved Subscriptions of $NS: a plan brings them to what they then follow
//	installs PLAN SUBSCRIPTION=CSV...
//	                              OLM carries a plan out, once it is approved, and all is well
//	kubectl ARG...                run kubectl as an admin; its output is for stdout and stderr
//	state POLICY STATE            status.compliant of a policy, in its newest generation
//	condition POLICY TYPE STATUS REASON [TEXT]
//	                              a condition, with a text in its message
//	related POLICY KIND NAME STATE REASON [UID]
//	                              a related object; - as STATE is one without; "uid" or "created" as UID wants these properties
//	relatedcount POLICY KIND N    how many related objects there are of a kind
//	event POLICY REGEXP           a compliance event that matches
//	history POLICY REGEXP         an entry of status.history that matches
//	gauge POLICY [SEVERITY VALUE]  the one series of cluster_policy_governance_info of a policy; or that it has none
//	object KIND NAME [NAMESPACE]  there is one; and its negation
//	field KIND NAME PATH VALUE    a field, by kubectl's JSONPath without braces, in $NS
//	quiet DURATION POLICY         the policy comes to rest: it is not written for so long, longer on a slow machine
func TestLoop(t *testing.T) {
	t.Parallel()
	e := startLoop(t)
	testscript.RunT(harness.Terse{T: t}, testscript.Params{
		Dir:             "testdata",
		ContinueOnError: true,
		Setup:           e.Setup,
		Cmds:            e.Commands(),
	})
}

// startLoop starts one for a test alone. PackageManifests are a plain kind here: the real server of them takes what it says
// from catalogs, and cannot be made to say anything else.
func startLoop(t testing.TB) *harness.LoopEnv {
	t.Helper()
	e := &harness.LoopEnv{Env: harness.StartWithoutGate(t)}
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.PackageManifests, "create", "-f", "-")
	var err error
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, SecureMetrics: true}); err != nil {
		t.Fatal(err)
	}
	e.Scraper = e.NewScraper(t, "prometheus", true)
	harness.Eventually(t, "see that Prometheus may read metrics", func(ctx context.Context) error {
		code, body, err := e.Scrape(ctx, e.Scraper)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("metrics: %d %s", code, body)
		}
		return err
	})
	e.Connect(t)
	return e
}
