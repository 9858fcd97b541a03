package rules

import (
	"slices"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	firstImage  = "sha256:0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
	secondImage = "sha256:4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b"
)

var hubCatalog = olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"}

// catalogHeld sets spec.catalog.
func catalogHeld(c policyv1beta2.Catalog) func(*spec) {
	return func(s *spec) { s.Catalog = &c }
}

// catalogFacts are those of a catalog with a tag, whose pods run images.
func catalogFacts(image string, served ...string) facts.Cluster {
	around := facts.Cluster{WithoutServices: true}
	around.AddCatalog(hubCatalog, &olm.CatalogSource{Spec: olm.CatalogSourceSpec{Image: image}})
	for _, digest := range served {
		around.AddServed(hubCatalog, digest)
	}
	return around
}

func TestCatalogImages(t *testing.T) {
	const tag = "registry.example/catalog:latest"
	hold := policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold, Accepted: []string{firstImage}}
	jump := policyv1beta2.Catalog{Jump: policyv1beta2.CatalogHold}
	both := policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold, Jump: policyv1beta2.CatalogHold}
	twoCatalogs := pendingPlan("etcd 0.9.4")
	second := twoCatalogs.Status.BundleLookups[0]
	second.Catalog.Name = "other"
	twoCatalogs.Status.BundleLookups = append(twoCatalogs.Status.BundleLookups, second)
	for _, c := range []struct {
		name    string
		plan    *olm.InstallPlan
		edit    func(*spec)
		facts   facts.Cluster
		history *catalog.History
		want    verdict.Decision
		rule    verdict.RuleID
		says    string
	}{
		{name: "the accepted image", edit: catalogHeld(hold), facts: catalogFacts(tag, firstImage, firstImage)},
		{name: "another image", edit: catalogHeld(hold), facts: catalogFacts(tag, secondImage), want: verdict.Hold,
			rule: "bundle/catalog-digest", says: secondImage},
		{name: "Allow", edit: catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogAllow}),
			facts: catalogFacts(tag, secondImage)},
		{name: "a pod that does not say", edit: catalogHeld(hold), facts: catalogFacts(tag, firstImage, ""),
			want: verdict.Hold, rule: "bundle/catalog-digest", says: "do not say"},
		{name: "an accepted digest that no pod runs yet", edit: catalogHeld(hold),
			facts: catalogFacts("registry.example/catalog@" + firstImage)},
		{name: "an accepted digest beside a pod that does not say", edit: catalogHeld(hold),
			facts: catalogFacts("registry.example/catalog@"+firstImage, ""), want: verdict.Hold,
			rule: "bundle/catalog-digest", says: "not known which image"},
		{name: "a tag that looks like an accepted digest", edit: catalogHeld(hold),
			facts: catalogFacts("registry.example/catalog:" + firstImage), want: verdict.Hold,
			rule: "bundle/catalog-digest", says: "no pod that runs"},
		{name: "no CatalogSource", edit: catalogHeld(hold), want: verdict.Hold, rule: "bundle/catalog-digest",
			says: "does not exist"},
		{name: "nothing is accepted", edit: catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold}),
			facts: catalogFacts(tag, firstImage), want: verdict.Hold, rule: "bundle/catalog-digest", says: "no digest is accepted yet"},
		{name: "two catalogs claim it", plan: twoCatalogs, edit: func(s *spec) { catalogHeld(hold)(s); anyCatalog(s) },
			facts: catalogFacts(tag, firstImage), want: verdict.Hold,
			rule: "bundle/catalog-digest", says: "sources disagree"},
		{name: "a jump that is not compared yet", edit: catalogHeld(jump), facts: catalogFacts(tag, firstImage),
			want: verdict.Hold, rule: "bundle/catalog-jump", says: "not known yet"},
		{name: "a jump with an unknown image", edit: catalogHeld(jump), facts: catalogFacts(tag), want: verdict.Hold,
			rule: "bundle/catalog-jump", says: "no pod that runs"},
		{name: "hostile names in a jump", edit: catalogHeld(jump), facts: catalogFacts(tag, firstImage),
			want: verdict.Hold,
			rule: "bundle/catalog-jump", says: `\n`,
			history: &catalog.History{Polls: []catalog.Poll{{Image: firstImage, Backwards: 1,
				BackwardsExamples: []string{"a\nAllow"}}}}},
		{name: "a policy that forbids it anyway", edit: func(s *spec) {
			catalogHeld(both)(s)
			s.ComplianceType, s.Versions = policyv1beta2.MustNotHave, []string{"etcd.v0.9.2"}
		}, facts: catalogFacts(tag, secondImage)},
		{name: "a value that is neither", edit: catalogHeld(policyv1beta2.Catalog{Jump: "hold"}),
			facts: catalogFacts(tag, firstImage), want: verdict.Hold,
			rule: bundle.RulePolicyUnreadable, says: "spec.catalog.jump is not valid"},
		{name: "a digest that is none",
			edit:  catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold, Accepted: []string{"latest"}}),
			facts: catalogFacts(tag, firstImage), want: verdict.Hold, rule: bundle.RulePolicyUnreadable,
			says: "spec.catalog.accepted[0] is not valid"},
		{name: "a negative number of packages",
			edit:  catalogHeld(policyv1beta2.Catalog{Jump: policyv1beta2.CatalogHold, MaxChangedPackages: -1}),
			facts: catalogFacts(tag, firstImage), want: verdict.Hold, rule: bundle.RulePolicyUnreadable,
			says: "maxChangedPackages is not valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := c.plan
			if plan == nil {
				plan = pendingPlan("etcd 0.9.4")
			}
			if c.history != nil {
				c.facts.AddHistory(hubCatalog, c.history)
			}
			v := JudgePlan(PlanInput{Plan: plan, Namespace: state.NewNamespace("shop",
				state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", c.edit)},
					Plans: []*olm.InstallPlan{plan}, Facts: &c.facts})})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s, want %s with %q: %s", v.Decision, c.want, c.says, v.Refusal())
			}
			if c.rule != "" && (len(v.Reasons) != 1 || v.Reasons[0].Rule != c.rule) {
				t.Errorf("want one reason, of %s: %s", c.rule, v.Refusal())
			}
			if strings.Contains(v.Refusal(), "\n") {
				t.Errorf("a refusal of several lines: %q", v.Refusal())
			}
		})
	}
}

// TestCatalogIsApprovedByHand: OLM must not approve before the image of the catalog is known.
func TestCatalogIsApprovedByHand(t *testing.T) {
	for _, held := range []policyv1beta2.Catalog{{Image: policyv1beta2.CatalogHold},
		{Jump: policyv1beta2.CatalogHold}} {
		if mode, because := (*state.Namespace)(nil).Approval(policyFor("etcd", catalogHeld(held))); mode != olm.ApprovalManual ||
			because != "spec.catalog holds plans" {
			t.Errorf("%+v: %s, %s", held, mode, because)
		}
		named := policyFor("etcd",
			func(s *spec) { catalogHeld(held)(s); anyCatalog(s); s.Versions = []string{"etcd.v0.9.2"} })
		if named.PassesByName("etcd.v0.9.2") {
			t.Errorf("%+v: a plan that is approved from the start passes", held)
		}
	}
}

// TestRecordedCatalogs: a policy that names a catalog asks about that one only, since tenants write Subscriptions.
func TestRecordedCatalogs(t *testing.T) {
	subscription := subscriptionTo("etcd")
	subscription.Spec.Source, subscription.Spec.SourceNamespace = "mine", "shop"
	mine := olm.Catalog{Namespace: "shop", Name: "mine"}
	jump := policyv1beta2.Catalog{Jump: policyv1beta2.CatalogHold}
	for name, c := range map[string]struct {
		edit func(*spec)
		want []olm.Catalog
	}{
		"named by the policy": {catalogHeld(jump), []olm.Catalog{hubCatalog}},
		"any catalog":         {func(s *spec) { catalogHeld(jump)(s); anyCatalog(s) }, []olm.Catalog{mine}},
		"images only":         {catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold}), nil},
		"forbidden anyway": {func(s *spec) { catalogHeld(jump)(s); s.ComplianceType = policyv1beta2.MustNotHave },
			nil},
	} {
		ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", c.edit)},
			Subscriptions: []*olm.Subscription{subscription}})
		if got := fair.Rows(ns.RecordedCatalogs()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCatalogPreview: settings without the effect that their author will expect.
func TestCatalogPreview(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*spec)
		want string
	}{
		"nothing is held": {catalogHeld(policyv1beta2.Catalog{}), "spec.catalog holds nothing"},
		"accepted for nothing": {catalogHeld(policyv1beta2.Catalog{Accepted: []string{firstImage}}),
			"names 1 digests, but neither"},
		"packages without jump": {catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold,
			MaxChangedPackages: 5}),
			"spec.catalog.maxChangedPackages has no effect"},
		"forbidden anyway": {func(s *spec) {
			catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold})(s)
			s.ComplianceType = policyv1beta2.MustNotHave
		}, "spec.catalog has no effect with complianceType mustnothave"},
	} {
		v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: policyFor("etcd", c.edit),
			Namespace: func(string) *state.Namespace { return nil }})
		if !slices.ContainsFunc(v.WarningTexts(), func(w string) bool { return strings.Contains(w, c.want) }) {
			t.Errorf("%s: %q", name, v.WarningTexts())
		}
	}
}
