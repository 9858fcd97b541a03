package compliance

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
)

// short returns the condition of a type as Reason: message.
func short(t *testing.T, out Outcome, conditionType string) string {
	t.Helper()
	f := findingOf(t, out.Conditions, conditionType)
	return f.Reason + ": " + f.Message
}

func deletions(out Outcome) string {
	var names []string
	for _, a := range out.Actions {
		names = append(names, a.Live["kind"].(string)+" "+a.Live["metadata"].(map[string]any)["name"].(string))
	}
	return strings.Join(names, ", ")
}

// withoutSubscription is an installation that lost its Subscription.
func withoutSubscription(s *site) { s.subscriptions = nil }

// planned adds a plan that has written a ClusterServiceVersion from a catalog.
func planned(csv string, from olm.Catalog) func(*site) {
	return func(s *site) {
		plan := aPlan("install-"+strconv.Itoa(len(s.plans)), 9)
		plan.Spec.CSVNames = []string{csv}
		plan.Status.Steps = olm.Steps{{Resolving: csv, Status: "Created",
			Resource: olm.StepResource{Group: "operators.coreos.com",
				Kind: kindClusterServiceVersion, Name: csv, CatalogNamespace: from.Namespace, CatalogName: from.Name}}}
		s.plans = append(s.plans, plan)
	}
}

// elsewhere is an installation that was observed in a namespace other than the policy's.
func elsewhere(s *site) {
	s.subscriptions[0].Metadata.Namespace, s.csvs[0].Metadata.Namespace, s.groups[0].Metadata.Namespace,
		s.plans[0].Metadata.Namespace = "lab", "lab", "lab", "lab"
}

func TestRemovalScope(t *testing.T) {
	older := func(s *site) { s.csvs = append([]*Installed{aCSV("etcd", "0.9.2")}, s.csvs...) }
	for name, c := range map[string]struct {
		site          *site
		conditionType string
		want, deletes string
	}{
		"a Subscription of another name is the package's": {
			installed(func(s *site) { s.subscriptions[0].Metadata = anObject("my-etcd") }), TypeSubscription,
			"SubscriptionPresent: the Subscription shop/my-etcd is present and will be deleted",
			"Subscription my-etcd"},
		"a Subscription of the same name to another package is not": {
			installed(func(s *site) {
				s.subscriptions[0].Spec.Package, s.csvs[0].Package = "grafana", "grafana"
			}), TypeSubscription,
			"SubscriptionNotPresent: no Subscription in namespace shop matches the policy", ""},
		"a Subscription to another catalog is not meant": {
			installed(fromHub, func(s *site) { s.subscriptions[0].Spec.Source = "mine" }), TypeSubscription,
			"SubscriptionNotPresent: no Subscription in namespace shop matches the policy; the Subscription shop/etcd is not matched by the policy", ""},
		"and neither is what it installed": {
			installed(fromHub, func(s *site) { s.subscriptions[0].Spec.Source = "mine" }), TypeClusterServiceVersion,
			"ClusterServiceVersionNotPresent: no ClusterServiceVersion in namespace shop matches the policy; the ClusterServiceVersion shop/etcd.v0.9.4 is not matched by the policy", ""},
		"half a catalog is compared as far as it goes": {
			installed(func(s *site) { s.policy.Spec.Subscription.SourceNamespace = "other" }), TypeSubscription,
			"SubscriptionNotPresent: no Subscription in namespace shop matches the policy; the Subscription shop/etcd is not matched by the policy", ""},
		"story 7: another version stays": {
			installed(forbidding("etcd.v0.9.2")), TypeSubscription,
			"SubscriptionNotPresent: no Subscription in namespace shop matches the policy; the Subscription shop/etcd is not matched by the policy", ""},
		"story 7: the version goes": {
			installed(forbidding("etcd.v0.9.2, etcd.v0.9.4")), TypeSubscription,
			"SubscriptionPresent: the Subscription shop/etcd is present and will be deleted", "Subscription etcd"},
		"a Subscription with nothing installed is not meant by version": {
			installed(forbidding("etcd.v0.9.4"), func(s *site) { s.csvs = nil }), TypeSubscription,
			"SubscriptionNotPresent: no Subscription in namespace shop matches the policy; the Subscription shop/etcd is not matched by the policy", ""},
		"a Subscription that lost its version is judged by what is there": {
			installed(forbidding("etcd.v0.9.4"), func(s *site) { s.subscriptions[0].Status.InstalledCSV = "" }),
			TypeSubscription,
			"SubscriptionPresent: the Subscription shop/etcd is present and will be deleted", "Subscription etcd"},
		"a Subscription that moved on from the version stays": {
			installed(forbidding("etcd.v0.9.2"), older), TypeSubscription,
			"SubscriptionNotPresent: no Subscription in namespace shop matches the policy; the Subscription shop/etcd is not matched by the policy",
			"ClusterServiceVersion etcd.v0.9.2"},
		"a range decides by the version": {
			installed(func(s *site) { s.policy.Spec.VersionRange = "<0.9.4" }, older), TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.2 is present and will be deleted; the ClusterServiceVersion shop/etcd.v0.9.4 is not matched by the policy",
			"ClusterServiceVersion etcd.v0.9.2"},
		"a range leaves alone what has no version": {
			installed(func(s *site) { s.policy.Spec.VersionRange, s.csvs[0].Version = "<1.0.0", "" }),
			TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 is present and not deleted, since its version is not known", ""},
		"a version of which the catalog is not known is reported and left alone": {
			installed(fromHub, withoutSubscription), TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 is present and not deleted, since its catalog is not known: neither a Subscription nor a plan names it", ""},
		"the plan that installed it tells the catalog": {
			installed(fromHub, withoutSubscription, planned("etcd.v0.9.4", hub)), TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 is present and will be deleted once the status of the policy reports it", ""},
		"of several plans one may be forged": {
			installed(fromHub, withoutSubscription, planned("etcd.v0.9.4", hub), planned("etcd.v0.9.4", hub)),
			TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 is present and not deleted, since its catalog is not known: neither a Subscription nor a plan names it", ""},
		"nothing goes while that is so": {
			installed(fromHub, withoutSubscription), TypeOperatorGroup,
			"OperatorGroupPresent: the OperatorGroup shop/shop-x7 is present and will be deleted after the ClusterServiceVersion shop/etcd.v0.9.4", ""},
		"unless it is kept anyway": {
			installed(fromHub, withoutSubscription, keepAll), TypeClusterServiceVersion,
			"ClusterServiceVersionKept: the ClusterServiceVersion shop/etcd.v0.9.4 is kept, since spec.removalBehavior.clusterServiceVersions is Keep", ""},
		"Subscriptions that disagree tell no catalog": {
			installed(fromHub, func(s *site) {
				for _, name := range []string{"one", "two"} {
					sub := aSubscription("etcd", "")
					sub.Metadata, sub.Spec.Source = anObject(name), name
					s.subscriptions = append(s.subscriptions, sub)
				}
				s.subscriptions = s.subscriptions[1:]
			}), TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 is present and not deleted, since its catalog is not known: neither a Subscription nor a plan names it", ""},
		"a version is found without its Subscription": {
			installed(withoutSubscription), TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 is present and will be deleted",
			"ClusterServiceVersion etcd.v0.9.4"},
		"but not against its own word": {
			installed(withoutSubscription, func(s *site) {
				s.csvs[0].Package = "grafana"
			}), TypeClusterServiceVersion,
			"ClusterServiceVersionNotPresent: no ClusterServiceVersion in namespace shop matches the policy", ""},
		"nor where another package's Subscription follows it": {
			installed(func(s *site) {
				s.csvs[0].Package = ""
				s.subscriptions = append(s.subscriptions, aSubscription("grafana", "etcd.v0.9.4"))
			}), TypeClusterServiceVersion,
			"ClusterServiceVersionNotPresent: no ClusterServiceVersion in namespace shop matches the policy",
			"Subscription etcd"},
		"a copy is installed elsewhere": {
			installed(withoutSubscription, func(s *site) { s.csvs[0].CopiedFrom = "operators" }),
			TypeClusterServiceVersion,
			"ClusterServiceVersionNotPresent: no ClusterServiceVersion in namespace shop matches the policy",
			"OperatorGroup shop-x7"},
		"an orphan is taken to be from where the package's Subscription is": {
			installed(withoutSubscription, fromHub,
				func(s *site) { s.subscriptions = []*olm.Subscription{aSubscription("etcd", "")} }),
			TypeClusterServiceVersion,
			"ClusterServiceVersionPresent: the ClusterServiceVersion shop/etcd.v0.9.4 is present and will be deleted after the Subscription shop/etcd", ""},
		"what stands in other namespaces is none of the policy's": {
			installed(deleteAll, elsewhere, definitionsRecorded), TypeSubscription,
			"SubscriptionNotPresent: no Subscription in namespace shop matches the policy",
			"CustomResourceDefinition etcds.example.com"},
		"and neither is a group there": {
			installed(elsewhere), TypeOperatorGroup,
			"OperatorGroupNotPresent: no OperatorGroup in namespace shop matches the policy", ""},
		"what is not on record yet says so": {
			installed(fromHub), TypeSubscription,
			"SubscriptionPresent: the Subscription shop/etcd is present and will be deleted once the status of the policy reports it", ""},
		"each waits for the first that is left": {
			installed(deleteAll, definitionsRecorded), TypeOperatorGroup,
			"OperatorGroupPresent: the OperatorGroup shop/shop-x7 is present and will be deleted after the Subscription shop/etcd", "Subscription etcd"},
		"inform says what is not done": {
			installed(deleteAll, inform), TypeSubscription,
			"SubscriptionPresent: the Subscription shop/etcd is present and will not be deleted, because the policy is not enforced", ""},
		"12.5 what a finalizer holds is being deleted": {
			installed(withoutSubscription,
				func(s *site) { s.csvs[0].Metadata.DeletionTimestamp = "2026-11-21T10:00:00Z" }),
			TypeClusterServiceVersion,
			"ClusterServiceVersionDeleting: the ClusterServiceVersion shop/etcd.v0.9.4 is still being deleted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := removal(c.site.input())
			if diff := cmp.Diff(c.want, short(t, out, c.conditionType)); diff != "" {
				t.Error(diff)
			}
			if got := deletions(out); got != c.deletes {
				t.Errorf("deletes %q, want %q", got, c.deletes)
			}
		})
	}
}

func TestRemovalOfDefinitions(t *testing.T) {
	withPlans := func(s *site) { s.subscriptions, s.csvs = nil, nil; deleteAll(s) }
	clean := func(s *site) { withPlans(s); s.plans = nil }
	for name, c := range map[string]struct {
		site          *site
		want, deletes string
	}{
		"go when the operator is gone": {installed(clean, definitionsRecorded),
			"CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted", "CustomResourceDefinition etcds.example.com"},
		"stay by default": {installed(clean,
			func(s *site) { s.policy.Spec.RemovalBehavior.CustomResourceDefinitions = "" }),
			"CustomResourceDefinitionKept: the CustomResourceDefinition etcds.example.com is kept, since spec.removalBehavior.customResourceDefinitions is Keep", "OperatorGroup shop-x7"},
		"say so first if they are kept": {installed(clean, keepAll,
			func(s *site) { s.crds[0].Operators = append(s.crds[0].Operators, "operators.coreos.com/etcd.lab") }),
			"CustomResourceDefinitionKept: the CustomResourceDefinition etcds.example.com is kept, since spec.removalBehavior.customResourceDefinitions is Keep", ""},
		"stay where another namespace has the operator too": {installed(clean, func(s *site) {
			s.crds[0].Operators = append(s.crds[0].Operators, "operators.coreos.com/etcd.lab")
		}), "CustomResourceDefinitionKept: the CustomResourceDefinition etcds.example.com is kept, since another installation in this cluster uses it", "OperatorGroup shop-x7"},
		"stay with a version that is not meant": {installed(deleteAll, forbidding("etcd.v0.9.2")),
			"CustomResourceDefinitionKept: the CustomResourceDefinition etcds.example.com is kept, since the operator that stays installed needs it", ""},
		"stay where no version that is meant was ever seen": {installed(withPlans, forbidding("etcd.v0.9.4")),
			"CustomResourceDefinitionKept: the CustomResourceDefinition etcds.example.com is kept, since nothing shows that it belongs to an operator that the policy removes", "InstallPlan install-etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			out := removal(c.site.input())
			if diff := cmp.Diff(c.want, short(t, out, TypeCustomResourceDefinition)); diff != "" {
				t.Error(diff)
			}
			if got := deletions(out); got != c.deletes {
				t.Errorf("deletes %q, want %q", got, c.deletes)
			}
		})
	}
}

// installRecord records etcd 0.9.4 as installed, since a time.
func installRecord(since string, adopted bool) *state.InstallRecord {
	return &state.InstallRecord{Namespace: "shop", Since: since,
		Operators: []state.RecordedOperator{{Package: "etcd", CSV: "etcd.v0.9.4", Adopted: adopted}}}
}

// TestB4ForeignDefinitionStays covers definitions with OLM's label that the operator did not create.
func TestB4ForeignDefinitionStays(t *testing.T) {
	const kept = "CustomResourceDefinitionKept: the CustomResourceDefinition etcds.example.com is kept, " +
		"since no InstallPlan in namespace shop shows that OLM created it for the operator"
	deleteDefinitions := func(s *site) {
		s.subscriptions, s.csvs = nil, nil
		s.policy.Spec.RemovalBehavior.CustomResourceDefinitions = policyv1beta2.RemovalDelete
	}
	step := func(change func(*olm.Step)) func(*site) {
		return func(s *site) { change(&s.plans[0].Status.Steps[0]) }
	}
	for name, c := range map[string]struct {
		edit func(*site)
		want string
	}{
		"its own goes": {
			edit: func(*site) {},
			want: "CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted",
		},
		"its own goes, created in the second of the plan": {
			edit: func(s *site) { s.crds[0].CreationTimestamp = s.plans[0].Metadata.CreationTimestamp },
			want: "CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted",
		},
		"its own goes, though OLM repeated the step": {
			edit: step(func(st *olm.Step) { st.Status = "Present" }),
			want: "CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted",
		},
		"it was deleted and made again by another user": {
			edit: func(s *site) { s.crds[0].CreationTimestamp = "2026-11-21T09:01:41Z" },
			want: kept,
		},
		"its own goes, created after the time that OLM notes before it writes": {
			edit: func(s *site) { s.crds[0].CreationTimestamp = "2026-11-21T09:01:20Z" },
			want: "CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted",
		},
		"attack: the plan was planted before the record of what is installed began": {
			edit: func(s *site) { s.record = installRecord("2026-11-21T09:00:01Z", false) },
			want: kept,
		},
		"control: the plan is older than the record, and what it installed was adopted": {
			edit: func(s *site) { s.record = installRecord("2026-11-21T09:00:01Z", true) },
			want: "CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted",
		},
		"control: the plan was created under the record": {
			edit: func(s *site) { s.record = installRecord("2026-11-21T09:00:00Z", false) },
			want: "CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted",
		},
		"its own goes, though the plan has not ended": {
			edit: func(s *site) {
				s.plans[0].Status.Phase, s.plans[0].Status.Steps[0].Status = olm.PhaseInstalling, "Created"
			},
			want: "CustomResourceDefinitionPresent: the CustomResourceDefinition etcds.example.com is present and will be deleted after the InstallPlan shop/install-etcd",
		},
		"the plan has not ended, and found it": {
			edit: func(s *site) {
				s.plans[0].Status.Phase, s.plans[0].Status.Steps[0].Status = olm.PhaseInstalling, "Present"
			},
			want: kept,
		},
		"the plan has not begun": {
			edit: func(s *site) {
				s.plans[0].Status.Phase, s.plans[0].Status.Steps[0].Status = olm.PhaseRequiresApproval, "Created"
			},
			want: kept,
		},
		"the plan created it for another operator": {
			edit: step(func(st *olm.Step) { st.Resolving = "grafana.v1.0.0" }),
			want: kept,
		},
		"the plan created another one": {
			edit: step(func(st *olm.Step) { st.Resource.Name = "others.example.com" }),
			want: kept,
		},
		"the step is of another group": {
			edit: step(func(st *olm.Step) { st.Resource.Group = "example.com" }),
			want: kept,
		},
		"it is older than the plan that claims to have created it": {
			edit: func(s *site) { s.crds[0].CreationTimestamp = "2026-11-20T09:00:00Z" },
			want: kept,
		},
		"the plan was never approved": {
			edit: func(s *site) { s.plans[0].Spec.Approved = false },
			want: kept,
		},
		"the plan is gone": {
			edit: func(s *site) { s.plans = nil },
			want: kept,
		},
		"the plan is in another namespace": {
			edit: func(s *site) { s.plans[0].Metadata.Namespace = "lab" },
			want: kept,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := removal(installed(deleteDefinitions, c.edit).input())
			if diff := cmp.Diff(c.want, short(t, out, TypeCustomResourceDefinition)); diff != "" {
				t.Error(diff)
			}
			later := strings.Contains(c.want, "will be deleted after")
			if got := deletions(out); strings.Contains(got, kindCustomResourceDefinition) == (c.want == kept || later) {
				t.Errorf("deletes %q", got)
			}
		})
	}
}

// executed returns a plan that OLM executes.
func executed(plan *olm.InstallPlan) *olm.InstallPlan {
	plan.Spec.Approved, plan.Status.Phase = true, olm.PhaseInstalling
	return plan
}

func TestRemovalOfPlans(t *testing.T) {
	grafana := aCSV("grafana", "1.0.0")
	clean := func(s *site) { s.subscriptions, s.csvs = nil, nil; deleteAll(s); definitionsRecorded(s) }
	plans := func(plans ...*olm.InstallPlan) func(*site) { return func(s *site) { s.plans = plans } }
	const kept = "kept, since spec.removalBehavior.installPlans is Keep"
	for name, c := range map[string]struct {
		site          *site
		want, deletes string
	}{
		"go if asked to": {installed(clean),
			"InstallPlanPresent: the InstallPlan shop/install-etcd is present and will be deleted",
			"InstallPlan install-etcd"},
		"stay if they install another operator too": {installed(clean,
			plans(aPlan("both", 1, aCSV("etcd", "0.9.4"), grafana))),
			"InstallPlanKept: the InstallPlan shop/both is kept, since it also installs grafana.v1.0.0",
			"CustomResourceDefinition etcds.example.com"},
		"of other operators are none of the policy's": {installed(clean, plans(aPlan("other", 1, grafana))),
			"NoInstallPlansFound: no InstallPlans of the operator are in namespace shop",
			"CustomResourceDefinition etcds.example.com"},
		"of another version stay": {installed(clean, forbidding("etcd.v0.9.2"), func(s *site) { s.crds = nil }),
			"InstallPlanKept: the InstallPlan shop/install-etcd is kept, since the policy may not match etcd.v0.9.4 in it", "OperatorGroup shop-x7"},
		"of another catalog stay": {installed(clean, fromHub, func(s *site) {
			s.crds = nil
			s.plans[0].Status.BundleLookups[0].Catalog.Name = "mine"
		}), "InstallPlanKept: the InstallPlan shop/install-etcd is kept, since the policy may not match etcd.v0.9.4 in it", "OperatorGroup shop-x7"},
		"of two catalogs stay": {installed(clean, fromHub, func(s *site) {
			s.crds = nil
			s.plans[0].Status.BundleLookups = append(s.plans[0].Status.BundleLookups,
				olm.BundleLookup{Identifier: "etcd.v0.9.4", Catalog: olm.Catalog{Namespace: "olm", Name: "mine"}})
		}), "InstallPlanKept: the InstallPlan shop/install-etcd is kept, since the policy may not match etcd.v0.9.4 in it", "OperatorGroup shop-x7"},
		"tell the catalog in their steps, too": {installed(clean, fromHub, func(s *site) {
			s.plans[0].Status.BundleLookups[0].Catalog = olm.Catalog{}
			s.plans[0].Status.Steps = []olm.Step{{Resource: olm.StepResource{Kind: kindClusterServiceVersion,
				Name: "etcd.v0.9.4", CatalogNamespace: hub.Namespace, CatalogName: hub.Name}}}
		}), "InstallPlanPresent: the InstallPlan shop/install-etcd is present and will be deleted",
			"InstallPlan install-etcd"},
		"with something that is not known stay": {installed(clean,
			func(s *site) { s.plans[0].Spec.CSVNames = append(s.plans[0].Spec.CSVNames, "mystery.v1") }),
			"InstallPlanKept: the InstallPlan shop/install-etcd is kept, since the package of mystery.v1 in it is not known", "CustomResourceDefinition etcds.example.com"},
		"that OLM has not finished stay": {installed(deleteAll, definitionsRecorded,
			func(s *site) { s.plans[0].Status.Phase = "" }),
			"InstallPlanKept: the InstallPlan shop/install-etcd is kept, since what it installs is not known",
			"Subscription etcd"},
		"that are kept are all named": {
			installed(plans(aPlan("newer", 9, aCSV("etcd", "0.9.5")), aPlan("install-etcd", 1, aCSV("etcd", "0.9.4")),
				aPlan("other", 1, grafana))),
			"InstallPlanNotApplicable: the InstallPlans shop/install-etcd, shop/newer are " + kept,
			"Subscription etcd"},
		"12.6 are kept without a Subscription": {installed(withoutSubscription),
			"InstallPlanNotApplicable: the InstallPlan shop/install-etcd is " + kept,
			"ClusterServiceVersion etcd.v0.9.4"},
		"are kept when all else is gone": {installed(nothing, plans(aPlan("install-etcd", 1, aCSV("etcd", "0.9.4")))),
			"InstallPlanNotApplicable: the InstallPlan shop/install-etcd is " + kept, ""},
		"that run go, since OLM would repeat them": {
			installed(nothing, plans(aPlan("install-etcd", 1, aCSV("etcd", "0.9.4")),
				executed(aPlan("running", 2, aCSV("etcd", "0.9.5"))))),
			"InstallPlanPresent: the InstallPlan shop/running is present and will be deleted", "InstallPlan running"},
		"that run for another operator too are kept": {
			installed(nothing, plans(executed(aPlan("both", 1, aCSV("etcd", "0.9.4"), grafana)))),
			"InstallPlanNotApplicable: the InstallPlan shop/both is " + kept, ""},
		"of another version are not matched by the policy": {installed(forbidding("etcd.v0.9.2")),
			"InstallPlanNotApplicable: the InstallPlan shop/install-etcd is not matched by the policy", ""},
		"of other operators are not the policy's to keep": {installed(nothing, plans(aPlan("other", 1, grafana))),
			"NoInstallPlansFound: no InstallPlans of the operator are in namespace shop", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := removal(c.site.input())
			if diff := cmp.Diff(c.want, short(t, out, TypeInstallPlan)); diff != "" {
				t.Error(diff)
			}
			if got := deletions(out); got != c.deletes {
				t.Errorf("deletes %q, want %q", got, c.deletes)
			}
		})
	}

	t.Run("a deleted one may be held, for all that is known", func(t *testing.T) {
		if got := removal(installed(clean).input()).Actions[0].Done.Reason; got != "InstallPlanDeleting" {
			t.Error(got)
		}
	})
	t.Run("the status lists no more of them than messages do", func(t *testing.T) {
		s := installed()
		for i := range 2 * maxListed {
			s.plans = append(s.plans, aPlan(fmt.Sprintf("install-%02d", i), 1, s.csvs[0]))
		}
		if n := len(findingOf(t, removal(s.input()).Conditions, TypeInstallPlan).Related); n != maxListed {
			t.Errorf("%d related plans", n)
		}
	})
}

// TestG25DefinitionsStay: without the right to delete definitions they are kept, and the status names the value that
// grants it.
func TestG25DefinitionsStay(t *testing.T) {
	in := installed(func(s *site) { s.subscriptions, s.csvs, s.plans = nil, nil, nil; deleteAll(s) },
		definitionsRecorded).input()
	in.Grants, _ = grant.NewSet(nil, nil)
	out := removal(in)
	const want = "CustomResourceDefinitionKept: the CustomResourceDefinition etcds.example.com is kept, since opgate may not delete " +
		"CustomResourceDefinitions here: chart value rights.definitions grants it"
	if diff := cmp.Diff(want, short(t, out, TypeCustomResourceDefinition)); diff != "" {
		t.Error(diff)
	}
	if got := deletions(out); strings.Contains(got, "CustomResourceDefinition") {
		t.Errorf("deletes %q", got)
	}
}
