package rules

import (
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// TestCreatedMark: users may write annotations, so only a mark that Opgate has signed for this very policy, kind,
// namespace and name counts.
func TestCreatedMark(t *testing.T) {
	key := []byte("a key of 32 bytes, for tests only")
	op := operatorPolicy("etcd", func(*spec) {})
	op.UID = "uid"
	named := olm.ObjectMeta{Namespace: "shop", Name: "scoped"}
	mark := CreatedMark(key, op, olm.KindOperatorGroup, &named, []string{"selector", "targetNamespaces"})
	for name, c := range map[string]struct {
		mark   string
		kind   string
		of     olm.ObjectMeta
		policy string
		want   bool
	}{
		"as it was written":        {mark, olm.KindOperatorGroup, named, "uid", true},
		"of another policy":        {mark, olm.KindOperatorGroup, named, "other", false},
		"of another kind":          {mark, olm.KindSubscription, named, "uid", false},
		"copied to another name":   {mark, olm.KindOperatorGroup, olm.ObjectMeta{Namespace: "shop", Name: "own"}, "uid", false},
		"copied to a namespace":    {mark, olm.KindOperatorGroup, olm.ObjectMeta{Namespace: "bank", Name: "scoped"}, "uid", false},
		"with another field":       {strings.Replace(mark, "selector", "serviceAccountName", 1), olm.KindOperatorGroup, named, "uid", false},
		"of which the rest is off": {"uid [selector targetNamespaces", olm.KindOperatorGroup, named, "uid", false},
		"the UID alone":            {"uid", olm.KindOperatorGroup, named, "uid", false},
		"of another key": {CreatedMark([]byte("other"), op, olm.KindOperatorGroup, &named, nil), olm.KindOperatorGroup, named,
			"uid", false},
		"none": {"", olm.KindOperatorGroup, named, "uid", false},
	} {
		t.Run(name, func(t *testing.T) {
			read := operatorPolicy("etcd", func(*spec) {})
			read.UID, c.of.Annotations.CreatedBy = "uid", c.mark
			if c.policy != "uid" {
				read.UID = "other"
			}
			fields, marked, created := Created(key, read, c.kind, &c.of)
			if marked != c.want || created != c.want || c.want != (strings.Join(fields, " ") == "selector targetNamespaces") {
				t.Errorf("marked %t, created %t, fields %v", marked, created, fields)
			}
		})
	}
	if CreatedMark(nil, op, olm.KindOperatorGroup, &named, nil) != "" {
		t.Error("there is a mark without a key")
	}
	named.Annotations.CreatedBy = mark
	if _, _, created := Created(nil, op, olm.KindOperatorGroup, &named); created {
		t.Error("a mark counts without a key")
	}
}

// TestGroupHolder: an OperatorGroup belongs to the policy that created it, and any other to the oldest policy that
// names it. What both want alike, or one leaves open, is no contradiction.
func TestGroupHolder(t *testing.T) {
	key := []byte("a key of 32 bytes, for tests only")
	now := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	named := func(edit func(*policyv1beta2.OperatorGroupTemplate)) *policyv1beta2.OperatorGroupTemplate {
		g := &policyv1beta2.OperatorGroupTemplate{Name: "scoped"}
		if edit != nil {
			edit(g)
		}
		return g
	}
	raw := func(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
	list := func(text string) *policyv1beta2.OperatorGroupTemplate {
		return named(func(g *policyv1beta2.OperatorGroupTemplate) { g.TargetNamespaces = raw(text) })
	}
	selector := named(func(g *policyv1beta2.OperatorGroupTemplate) { g.Selector = raw(`{"matchLabels":{"team":"a"}}`) })
	account := named(func(g *policyv1beta2.OperatorGroupTemplate) { g.ServiceAccountName = "installer" })
	strategy := named(func(g *policyv1beta2.OperatorGroupTemplate) { g.UpgradeStrategy = "TechPreviewUnsafeFailForward" })
	const older, owner = "which names it first", "which created it"
	for name, c := range map[string]struct {
		first, second *policyv1beta2.OperatorGroupTemplate
		// group is the spec of the stored group, by is the policy that created it.
		group, by string
		edit      func(first, second *policyv1beta2.OperatorPolicy)
		// field and why are what the second policy gets.
		field, why string
	}{
		"D1: a generated group of another policy": {second: list(`["b"]`), group: `{}`, by: "first", field: "targetNamespaces", why: owner},
		"by a selector":            {second: selector, group: `{}`, by: "first", field: "selector", why: owner},
		"as another account":       {second: account, group: `{}`, by: "first", field: "serviceAccountName", why: owner},
		"by another strategy":      {second: strategy, group: `{"upgradeStrategy":"Default"}`, by: "first", field: "upgradeStrategy", why: owner},
		"of which nothing is set":  {second: named(nil), group: `{"targetNamespaces":["a"]}`, by: "first"},
		"as it is":                 {second: list(`["b","a"]`), group: `{"targetNamespaces":["a","b"]}`, by: "first"},
		"its own":                  {first: list(`["a"]`), second: list(`["b"]`), group: `{"targetNamespaces":["a"]}`, by: "second"},
		"of a policy that is gone": {second: list(`["b"]`), group: `{}`, by: "gone"},
		"made by people":           {second: list(`["b"]`), group: `{}`},
		"made by people, and an older policy names it": {first: list(`["a"]`), second: list(`["b"]`), group: `{}`, field: "targetNamespaces", why: older},
		"that does not exist yet":                      {first: list(`["a"]`), second: list(`["b"]`), field: "targetNamespaces", why: older},
		"by a list and by a selector":                  {first: list(`["a"]`), second: selector, field: "selector", why: older},
		"by a selector and by a list":                  {first: selector, second: list(`["a"]`), field: "targetNamespaces", why: older},
		"as the older one wants it":                    {first: list(`["a"]`), second: list(`["a"]`)},
		"that the older one leaves open":               {first: named(nil), second: list(`["a"]`)},
		"of other fields":                              {first: account, second: list(`["a"]`)},
		"of a younger policy": {first: list(`["a"]`), second: list(`["b"]`),
			edit: func(first, second *policyv1beta2.OperatorPolicy) {
				first.CreationTimestamp = second.CreationTimestamp
				first.Name = "z"
			}},
		"while it is not stored": {first: list(`["a"]`), second: list(`["b"]`), field: "targetNamespaces", why: older,
			edit: func(_, second *policyv1beta2.OperatorPolicy) {
				second.CreationTimestamp, second.Name = metav1.Time{}, "a"
			}},
		"of a policy that informs": {first: list(`["a"]`), second: list(`["b"]`),
			edit: func(first, _ *policyv1beta2.OperatorPolicy) { first.Spec.RemediationAction = policyv1beta2.Inform }},
		"of a policy that informs and created it": {first: list(`["a"]`), second: list(`["b"]`), group: `{"targetNamespaces":["a"]}`,
			by: "first", field: "targetNamespaces", why: owner,
			edit: func(first, _ *policyv1beta2.OperatorPolicy) { first.Spec.RemediationAction = policyv1beta2.Inform }},
		"too large to be known": {second: list(`["b"]`), group: `{"targetNamespaces":["` + strings.Repeat("a", 65<<10) + `"]}`,
			by: "first", field: "targetNamespaces", why: owner},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := operatorPolicy("first", func(s *spec) { s.OperatorGroup = c.first }),
				operatorPolicy("second", func(s *spec) { s.OperatorGroup = c.second })
			first.UID, second.UID = "uid-first", "uid-second"
			first.CreationTimestamp, second.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)), now
			if c.edit != nil {
				c.edit(first, second)
			}
			contents := state.NamespaceContents{Policies: []*operatorpolicy.Policy{NewOperatorPolicy(first),
				NewOperatorPolicy(second)}}
			if c.group != "" {
				g := &olm.OperatorGroup{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "scoped", UID: "1"}}
				if err := g.Spec.UnmarshalJSON([]byte(c.group)); err != nil {
					t.Fatal(err)
				}
				by := map[string]*policyv1beta2.OperatorPolicy{"first": first, "second": second,
					"gone": {ObjectMeta: metav1.ObjectMeta{UID: "uid-gone"}}}[c.by]
				if by != nil {
					g.Metadata.Annotations.CreatedBy = CreatedMark(key, by, olm.KindOperatorGroup, &g.Metadata, nil)
				}
				contents.Groups = []*olm.OperatorGroup{g}
			}
			ns := state.NewNamespace("shop", contents)
			holder, field, why := GroupHolder(key, ns, NewOperatorPolicy(second))
			if field != c.field || why != c.why || (holder != nil) != (c.why != "") ||
				holder != nil && holder.Source() != "OperatorPolicy policies/first" {
				t.Errorf("%v: %q, %q", holder, field, why)
			}
		})
	}
}
