package compliance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/olm"
)

// play evaluates until nothing changes any more, and returns a line for each turn.
func play(t *testing.T, s *site) []string {
	t.Helper()
	var turns []string
	for range 20 {
		out, _ := s.turn(t)
		turns = append(turns, strings.TrimPrefix(string(s.policy.Status.Compliant)+" "+deletions(out), " "))
		if len(out.Actions) == 0 && out.After == 0 {
			return turns
		}
	}
	t.Fatal("no end")
	return nil
}

func TestRemovalInTurns(t *testing.T) {
	allOfIt := []string{
		"NonCompliant Subscription etcd", "NonCompliant ClusterServiceVersion etcd.v0.9.4",
		"NonCompliant InstallPlan install-etcd",
		"NonCompliant CustomResourceDefinition etcds.example.com", "Compliant OperatorGroup shop-x7", "Compliant ",
	}
	recorded := slices.Concat([]string{"NonCompliant "}, allOfIt)
	for name, c := range map[string]struct {
		site *site
		want []string
	}{
		"12.5 everything goes in order": {installed(deleteAll), recorded},
		"story 6: the defaults keep plans and definitions": {installed(),
			[]string{allOfIt[0], allOfIt[1], allOfIt[4], allOfIt[5]}},
		"story 6: with a catalog, which is put on record first": {installed(fromHub),
			[]string{recorded[0], allOfIt[0], allOfIt[1], allOfIt[4], allOfIt[5]}},
		"story 7: by version, with definitions, which are recorded": {installed(deleteAll, forbidding("etcd.v0.9.4")),
			recorded},
		"what only the Subscription tells apart is recorded": {installed(deleteAll,
			func(s *site) { s.csvs[0].Package = "" }), recorded},
		"stories 5 and 6: the group that the policy created is not forgotten": {
			installed(func(s *site) { s.groups[0].Metadata.GenerateName = ""; recordCreated(s.policy, s.groups[0]) }),
			[]string{allOfIt[0], allOfIt[1], allOfIt[4], allOfIt[5]}},
		"kept Subscriptions do not hold up the rest": {
			installed(func(s *site) { s.policy.Spec.RemovalBehavior.Subscriptions = policyv1beta2.RemovalKeep }),
			[]string{"Compliant ClusterServiceVersion etcd.v0.9.4", "Compliant "}},
		"several of a kind go together": {
			installed(deleteAll, func(s *site) { s.csvs = append(s.csvs, aCSV("etcd", "0.9.5")) }),
			slices.Concat(recorded[:2],
				[]string{"NonCompliant ClusterServiceVersion etcd.v0.9.4, ClusterServiceVersion etcd.v0.9.5"},
				allOfIt[2:])},
		"another version stays, with all that it needs": {
			installed(deleteAll, forbidding("etcd.v0.9.2")), []string{"Compliant "}},
		"inform acts never": {installed(deleteAll, fromHub, inform), []string{"NonCompliant "}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, play(t, c.site)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRemovalFailures(t *testing.T) {
	s := installed(withoutSubscription,
		func(s *site) { s.csvs = append(s.csvs, aCSV("etcd", "0.9.5"), aCSV("etcd", "0.9.6")) })
	actions := removal(s.input()).Actions
	if len(actions) != 3 {
		t.Fatalf("%d actions", len(actions))
	}
	want := []string{
		"False/ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 was deleted; the ClusterServiceVersions shop/etcd.v0.9.5, shop/etcd.v0.9.6 are present and will be deleted",
		"False/ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 was deleted; the ClusterServiceVersion shop/etcd.v0.9.5 is present and cannot be deleted: forbidden; the ClusterServiceVersion shop/etcd.v0.9.6 is present and will be deleted",
		"True/ClusterServiceVersionDeleted: the ClusterServiceVersions shop/etcd.v0.9.4, shop/etcd.v0.9.5, shop/etcd.v0.9.6 were deleted",
	}
	var got []string
	for _, f := range []Condition{actions[0].Done, actions[1].Failed("forbidden"), actions[2].Done} {
		got = append(got, string(f.Status)+"/"+f.Reason+": "+f.Message)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRemovalRecord: a record counts for the policy and the object that it was written for, and
// never against other evidence.
func TestRemovalRecord(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*site)
		deletes string
	}{
		"as recorded":            {func(*site) {}, "ClusterServiceVersion etcd.v0.9.4"},
		"the policy was changed": {func(s *site) { s.policy.Generation++ }, ""},
		"it was made anew":       {func(s *site) { s.csvs[0].Metadata.UID = "uid-anew" }, ""},
		"the status was lost":    {func(s *site) { s.policy.Status = policyv1beta2.OperatorPolicyStatus{} }, ""},
		"another Subscription came": {func(s *site) {
			s.subscriptions = []*olm.Subscription{aSubscription("etcd", "etcd.v0.9.4")}
			s.subscriptions[0].Spec.Source = "mine"
		}, ""},
		"it was not sure then": {func(s *site) {
			s.policy.Status = policyv1beta2.OperatorPolicyStatus{}
			s.turn(t)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := installed(fromHub)
			if out, _ := s.turn(t); len(out.Actions) != 0 || out.After != recordTime {
				t.Fatalf("nothing is on record and it deletes %q, after %s", deletions(out), out.After)
			}
			s.subscriptions = nil
			c.edit(s)
			if got := deletions(removal(s.input())); got != c.deletes {
				t.Errorf("deletes %q, want %q", got, c.deletes)
			}
		})
	}
	t.Run("definitions of a version that came later stay", func(t *testing.T) {
		s := installed(deleteAll, forbidding("etcd.v0.9.4"))
		s.turn(t)
		s.csvs, s.plans, s.subscriptions = []*Installed{aCSV("etcd", "0.9.5")}, nil, nil
		if got := deletions(removal(s.input())); got != "" {
			t.Errorf("deletes %q", got)
		}
	})
}

// randomSite mixes objects that the policy selects with others that must not be touched.
func randomSite(r *rand.Rand) *site {
	one := func(n int) bool { return r.IntN(n) == 0 }
	s := installed(nothing)
	spec := &s.policy.Spec
	if one(4) {
		inform(s)
	}
	if one(3) {
		fromHub(s)
	}
	if one(3) {
		spec.Versions = []string{"etcd.v0.9.4"}
	}
	if one(5) {
		spec.VersionRange = "<0.9.5"
	}
	pick := func(values ...policyv1beta2.RemovalAction) policyv1beta2.RemovalAction {
		return values[r.IntN(len(values))]
	}
	const keep, remove = policyv1beta2.RemovalKeep, policyv1beta2.RemovalDelete
	spec.RemovalBehavior = policyv1beta2.RemovalBehavior{OperatorGroups: pick("", keep, remove,
		policyv1beta2.RemovalDeleteIfUnused),
		Subscriptions: pick("", keep, remove, remove), ClusterServiceVersions: pick("", keep, remove, remove),
		InstallPlans: pick("", keep, remove, remove), CustomResourceDefinitions: pick("", keep, remove, remove)}
	hold := func() []any {
		if one(4) {
			return []any{"example.com/hold"}
		}
		return nil
	}
	for _, pkg := range []string{"etcd", "grafana"} {
		var ofPackage []*Installed
		for _, version := range []string{"0.9.2", "0.9.4", "0.9.5"} {
			c := aCSV(pkg, version, hold()...)
			if one(2) {
				s.plans = append(s.plans, aPlan("install-"+c.Metadata.Name, int64(r.IntN(5)), c))
			}
			if !one(3) {
				continue
			}
			if one(4) {
				c.Package = ""
			}
			if one(6) {
				c.CopiedFrom = "elsewhere"
			}
			ofPackage = append(ofPackage, c)
		}
		if s.csvs = append(s.csvs, ofPackage...); one(3) {
			continue
		}
		sub := aSubscription(pkg, "", hold()...)
		if len(ofPackage) > 0 && !one(4) {
			sub.Status.InstalledCSV = ofPackage[r.IntN(len(ofPackage))].Metadata.Name
			sub.Status.CurrentCSV = sub.Status.InstalledCSV
		}
		if one(4) {
			sub.Spec.Source = "mine"
		}
		s.subscriptions = append(s.subscriptions, sub)
	}
	if one(3) {
		s.plans = append(s.plans, aPlan("both", 3, aCSV("etcd", "0.9.4"), aCSV("grafana", "0.9.4")))
	}
	for i := range r.IntN(3) {
		crd := aCRD(fmt.Sprintf("etcds%d.example.com", i), hold()...)
		if one(4) {
			crd.Operators = []string{"operators.coreos.com/etcd.lab", "operators.coreos.com/etcd.shop"}
		}
		s.crds = append(s.crds, crd)
	}
	definitionsRecorded(s)
	for i := range r.IntN(3) {
		s.groups = append(s.groups, aGroup(fmt.Sprintf("shop-%d", i), "shop-", hold()...))
	}
	return s
}

// release removes objects that only finalizers retain.
func (s *site) release() {
	s.subscriptions = slices.DeleteFunc(s.subscriptions,
		func(o *olm.Subscription) bool { return o.Metadata.DeletionTimestamp != "" })
	s.csvs = slices.DeleteFunc(s.csvs, func(o *Installed) bool { return o.Metadata.DeletionTimestamp != "" })
	s.crds = slices.DeleteFunc(s.crds, func(o CRD) bool { return o.DeletionTimestamp != "" })
	s.groups = slices.DeleteFunc(s.groups,
		func(o *olm.OperatorGroup) bool { return o.Metadata.DeletionTimestamp != "" })
}

// TestRemovalProperties evaluates random sites until nothing changes.
func TestRemovalProperties(t *testing.T) {
	order := []string{kindSubscription, kindClusterServiceVersion, kindInstallPlan, kindCustomResourceDefinition,
		kindOperatorGroup}
	ended := map[policyv1beta2.ComplianceState]int{}
	sites := cases.Of(1_500)
	for seed := range uint64(sites) {
		s := randomSite(rand.New(rand.NewPCG(seed, 1)))
		foreign := func() int {
			return len(slices.DeleteFunc(slices.Clone(s.csvs),
				func(c *Installed) bool {
					return !strings.HasPrefix(c.Metadata.Name, "grafana") &&
						c.CopiedFrom == ""
				}))
		}
		before, reached := foreign(), 0
		for turn := 0; ; turn++ {
			if turn == 20 {
				t.Fatalf("seed %d: no end", seed)
			}
			found := s.policy.DeepCopy()
			observed := *s
			out, _ := s.turn(t)
			if !found.Spec.IsEnforced() && len(out.Actions) > 0 {
				t.Fatalf("seed %d: informs and deletes %s", seed, deletions(out))
			}
			for _, a := range out.Actions {
				meta := a.Live["metadata"].(map[string]any)
				kind := a.Live["kind"].(string)
				if a.Object != nil || strings.Contains(meta["name"].(string), "grafana") || meta["name"] == "both" {
					t.Fatalf("seed %d: %s %s %s", seed, verbOf(a), kind, meta["name"])
				}
				if kind != out.Actions[0].Live["kind"] {
					t.Fatalf("seed %d: deletes of two kinds: %s", seed, deletions(out))
				}
				if slices.Index(order, kind) < reached {
					t.Fatalf("seed %d: %s after %s", seed, kind, order[reached])
				}
				reached = slices.Index(order, kind)
			}
			if len(out.Actions) > 0 {
				checkNothingBefore(t, seed, &observed, out, order[:reached])
			}
			if len(out.Actions) == 0 && out.After == 0 {
				if !slices.ContainsFunc(out.Conditions,
					func(f Condition) bool { return strings.HasSuffix(f.Reason, "Deleting") }) {
					break
				}
				s.release()
			}
		}
		if foreign() != before {
			t.Fatalf("seed %d: something of another package is gone", seed)
		}
		ended[s.policy.Status.Compliant]++
		checkRest(t, seed, s)
	}
	if ended[policyv1beta2.Compliant] < sites/8 || ended[policyv1beta2.NonCompliant] < sites/8 {
		t.Errorf("the sites are too much alike: %v", ended)
	}
}

// checkNothingBefore: R-RM-2, nothing of an earlier kind is left to delete.
func checkNothingBefore(t *testing.T, seed uint64, s *site, out Outcome, earlier []string) {
	t.Helper()
	for _, f := range out.Conditions {
		if slices.Contains(earlier, kindOf[f.Type]) && f.Status != "True" {
			t.Fatalf("seed %d: deletes %s although %s", seed, deletions(out), f.Message)
		}
	}
	if slices.Contains(earlier, kindSubscription) &&
		s.policy.Spec.RemovalBehavior.Subscriptions != policyv1beta2.RemovalKeep {
		for _, sub := range s.subscriptions {
			if sub.Spec.Package == "etcd" && s.policy.Spec.Versions == nil && s.policy.Spec.VersionRange == "" &&
				(sub.Catalog() == hub || s.policy.Spec.Subscription.Source == "") {
				t.Fatalf("seed %d: deletes %s before the Subscription", seed, deletions(out))
			}
		}
	}
}

// checkRest: a policy that enforces, selects everything and retains nothing leaves nothing.
func checkRest(t *testing.T, seed uint64, s *site) {
	t.Helper()
	spec := &s.policy.Spec
	if !spec.IsEnforced() || spec.Versions != nil || spec.VersionRange != "" || spec.Subscription.Source != "" {
		return
	}
	left := slices.ContainsFunc(s.subscriptions, func(o *olm.Subscription) bool { return o.Spec.Package == "etcd" })
	if spec.RemovalBehavior.Subscriptions != policyv1beta2.RemovalKeep && left {
		t.Fatalf("seed %d: the Subscription is left", seed)
	}
	left = slices.ContainsFunc(s.csvs, func(o *Installed) bool { return o.Package == "etcd" && o.CopiedFrom == "" })
	if spec.RemovalBehavior.ClusterServiceVersions != policyv1beta2.RemovalKeep && left {
		t.Fatalf("seed %d: a ClusterServiceVersion is left", seed)
	}
	left = slices.ContainsFunc(s.plans,
		func(p *olm.InstallPlan) bool { return strings.HasPrefix(p.Metadata.Name, "install-etcd") })
	if spec.RemovalBehavior.InstallPlans == policyv1beta2.RemovalDelete && left {
		t.Fatalf("seed %d: an InstallPlan is left", seed)
	}
	left = slices.ContainsFunc(s.crds, func(o CRD) bool { return len(o.Operators) == 1 })
	if spec.RemovalBehavior.CustomResourceDefinitions == policyv1beta2.RemovalDelete && left {
		t.Fatalf("seed %d: a CustomResourceDefinition is left", seed)
	}
}
