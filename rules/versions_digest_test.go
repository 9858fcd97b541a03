package rules

import (
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The digests of two bundle images of the same version.
var (
	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
)

// fromImage returns a plan for etcd 0.9.2 from a bundle image.
func fromImage(path string) *olm.InstallPlan {
	plan := pendingPlan("etcd 0.9.2")
	plan.Status.BundleLookups[0].Path = path
	return plan
}

// TestListedDigests judges plans for etcd.v0.9.2 by policies that bind the name to the contents of an image.
func TestListedDigests(t *testing.T) {
	const listed = "etcd.v0.9.2@"
	inline := func(p *olm.InstallPlan) *olm.InstallPlan {
		return withStep(p, "etcd.v0.9.2", olm.Manifest{Spec: &olm.CSVSpec{}, Properties: properties("etcd", "0.9.2")})
	}
	twoImages := fromImage("quay.io/example/etcd@" + digestA)
	twoImages.Status.BundleLookups = append(twoImages.Status.BundleLookups,
		fromImage("quay.io/example/etcd@"+digestB).Status.BundleLookups...)
	same := fromImage("quay.io/example/etcd@" + digestA)
	forbid := func(s *spec) { s.ComplianceType = policyv1beta2.MustNotHave }
	start := func(s *spec) { s.Subscription.StartingCSV = "etcd.v0.9.2" }
	for name, c := range map[string]struct {
		plan     *olm.InstallPlan
		versions []string
		edit     func(*spec)
		want     verdict.Decision
		says     string
	}{
		"the digest":         {plan: same, versions: []string{listed + digestA}},
		"one of two digests": {plan: same, versions: []string{listed + digestB, listed + digestA}},
		"a mirror with a tag": {plan: fromImage("mirror:5000/etcd:v0.9.2@" + digestA),
			versions: []string{listed + digestA}},
		"another digest": {plan: same, versions: []string{listed + digestB}, want: verdict.Deny,
			says: "etcd.v0.9.2@" + digestA + " is not allowed"},
		"the digest of another name": {plan: same, versions: []string{"etcd.v0.9.4@" + digestA, listed + digestB},
			want: verdict.Deny, says: "allowed are etcd.v0.9.4@" + digestA},
		"the digest in the repository": {plan: fromImage("evil.example/" + digestA + "@" + digestB),
			versions: []string{listed + digestA}, want: verdict.Deny, says: digestB},
		"the digest in a tag": {plan: fromImage("evil.example/etcd:" + digestA[7:]),
			versions: []string{listed + digestA}, want: verdict.Deny, says: "without a digest"},
		"more than a digest": {plan: fromImage("quay.io/etcd@" + digestA + "a"),
			versions: []string{listed + digestA}, want: verdict.Deny, says: "without a digest"},
		"a hostile path": {plan: fromImage("quay.io/\x1b[31m\u202e"), versions: []string{listed +
			digestA}, want: verdict.Deny, says: `"quay.io/\x1b[31m\u202e" without a digest`},
		"no path": {plan: fromImage(""), versions: []string{listed + digestA}, want: verdict.Deny,
			says: "does not come from a bundle image"},
		"the digest beside the bundle": {plan: inline(fromImage("quay.io/example/etcd@" + digestA)),
			versions: []string{listed + digestA}, want: verdict.Deny, says: "does not come from a bundle image"},
		"two images": {plan: twoImages, versions: []string{listed + digestA, listed + digestB},
			want: verdict.Deny, says: "several bundle images"},
		"the name, too": {plan: same, versions: []string{listed + digestB, "etcd.v0.9.2"}},
		"startingCSV does not set it free": {plan: same, versions: []string{listed + digestB}, edit: start,
			want: verdict.Deny, says: digestA},
		"startingCSV beside another": {plan: same, versions: []string{"etcd.v0.9.4@" + digestB}, edit: start},
		"forbidden by digest": {plan: same, versions: []string{listed + digestA}, edit: forbid,
			want: verdict.Deny, says: "mustnothave for etcd.v0.9.2@" + digestA},
		"other contents are forbidden": {plan: same, versions: []string{listed + digestB}, edit: forbid},
		"forbidden, without a digest": {plan: fromImage("quay.io/etcd:v1"), versions: []string{listed + digestB},
			edit: forbid, want: verdict.Hold, says: "digest of its bundle image is not known"},
		"forbidden, in the plan": {plan: inline(fromImage("quay.io/example/etcd@" + digestB)),
			versions: []string{listed + digestB}, edit: forbid, want: verdict.Hold,
			says: "digest of its bundle image is not known"},
		"forbidden with and without": {plan: same, versions: []string{listed + digestB, "etcd.v0.9.2"}, edit: forbid,
			want: verdict.Deny, says: "is forbidden"},
		"forbidden by digest in a range": {plan: fromImage("quay.io/etcd:v1"), versions: []string{listed + digestB},
			edit: func(s *spec) { forbid(s); s.VersionRange = ">=1.0.0" }},
	} {
		t.Run(name, func(t *testing.T) {
			p := policyFor("etcd", func(s *spec) {
				s.Versions = c.versions
				if c.edit != nil {
					c.edit(s)
				}
			})
			v := judged(c.plan, p)
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s: %s, want %s: … %s …", v.Decision, v.Refusal(), c.want, c.says)
			}
		})
	}
}

// TestDigestsByNameAlone: where contents are not known yet, a name that is bound to contents is neither allowed nor
// forbidden for good.
func TestDigestsByNameAlone(t *testing.T) {
	bound := []string{"etcd.v0.9.2@" + digestA}
	allow := policyFor("etcd",
		func(s *spec) { anyCatalog(s); s.Versions, s.Subscription.StartingCSV = bound, "etcd.v0.9.2" })
	forbid := policyFor("etcd",
		func(s *spec) { anyCatalog(s); s.ComplianceType, s.Versions = policyv1beta2.MustNotHave, bound })
	if allow.PassesByName("etcd.v0.9.2") {
		t.Error("a plan that is born approved passes by a name that is bound to contents")
	}
	if ok, _ := bundle.Covers(allow, "etcd.v0.9.2", "0.9.2", time.Time{}); !ok {
		t.Error("what is installed under the name counts as not allowed")
	}
	if ok, _ := bundle.Covers(allow, "etcd.v0.9.4", "0.9.4", time.Time{}); ok {
		t.Error("what is installed under another name counts as allowed")
	}
	if match, known := bundle.Forbids(forbid, "etcd.v0.9.2", "0.9.2", olm.Catalog{}, time.Time{}); match || known {
		t.Error("what is installed would be removed without knowing its contents")
	}
	for name, p := range map[string]*operatorpolicy.Policy{"allowed": allow, "forbidden": forbid} {
		sub := subscriptionTo("etcd")
		sub.Spec.StartingCSV, sub.Spec.InstallPlanApproval = "etcd.v0.9.2", olm.ApprovalManual
		ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{p}})
		if v := JudgeSubscription(SubscriptionInput{New: sub, Namespace: ns,
			Mode: DenyApproval}); v.Decision != verdict.Allow {
			t.Errorf("a Subscription that starts with a name of which contents are %s: %s", name, v.Refusal())
		}
	}
}

// TestDigestOfAStep judges what OLM writes for a plan by the image that the plan names, and what bypasses OLM by none.
func TestDigestOfAStep(t *testing.T) {
	csv := written(t, etcdSpec)
	policy := func(digest string) *operatorpolicy.Policy { return policyFor("etcd", versions("etcd.v0.9.2@"+digest)) }
	running := installing(t, "",
		func(p *olm.InstallPlan) { p.Status.BundleLookups[0].Path = "quay.io/example/etcd@" + digestA })
	undescribed := installing(t, "", func(p *olm.InstallPlan) {
		p.Status.BundleLookups[0].Path, p.Status.BundleLookups[0].Properties = "quay.io/example/etcd@"+digestA, ""
	})
	for name, c := range map[string]struct {
		plan   *olm.InstallPlan
		policy *operatorpolicy.Policy
		byOLM  bool
		want   verdict.Decision
	}{
		"the digest":                    {plan: running, policy: policy(digestA), byOLM: true},
		"another digest":                {plan: running, policy: policy(digestB), byOLM: true, want: verdict.Deny},
		"the digest, no properties":     {plan: undescribed, policy: policy(digestA), byOLM: true},
		"another, no properties":        {plan: undescribed, policy: policy(digestB), byOLM: true, want: verdict.Deny},
		"a copy of it, by another user": {plan: running, policy: policy(digestA), want: verdict.Deny},
	} {
		t.Run(name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{c.policy},
				Plans:         []*olm.InstallPlan{c.plan},
				Subscriptions: []*olm.Subscription{subscribed("etcd", "etcd.v0.9.2", "")}})
			v := JudgeCSV(CSVInput{New: csv, Namespace: ns, ByOLM: c.byOLM, User: "someone"})
			if v.Decision != c.want {
				t.Errorf("%s: %s, want %s", v.Decision, v.Refusal(), c.want)
			}
		})
	}
}

// TestAlternativeHasItsVersion adds versions to a range: it has each then, and none beside it.
func TestAlternativeHasItsVersion(t *testing.T) {
	for _, version := range []string{"1.2.3", "1.2.3-rc.1", "1.2.3-x86", "1.2.3-0.x.1", "1.2.3-X", "1.2.3+7", "0.0.0-x"} {
		text := ">=9.0.0" + bundle.Alternative(version)
		r, err := olm.ParseVersionRange(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for other, want := range map[string]bool{version: true, "1.2.4": false, "1.2.2": false, "9.1.0": true} {
			if has, err := r.Contains(other); err != nil || has != want {
				t.Errorf("%s has %s: %t, %v", text, other, has, err)
			}
		}
	}
	for _, version := range []string{"latest", "1.2.18446744073709551615-x86"} {
		if got := bundle.Alternative(version); got != "" {
			t.Errorf("%s: %s", version, got)
		}
	}
}
