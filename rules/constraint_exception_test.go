package rules

import (
	"slices"
	"strings"
	"testing"
	"time"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// exceptedConstraint refuses every operator, except etcd.v0.9.4 in namespace shop until exceptionEnd.
func exceptedConstraint(edit func(*constraintv1.Constraint)) *constraintv1.Constraint {
	c := &constraintv1.Constraint{}
	c.Name = "nothing"
	c.Spec.Constraints = `[{"type":"olm.constraint","value":{"rule":"csv == \"\"","message":"nothing is installed"}}]`
	c.Spec.Exceptions = []constraintv1.Exception{{Package: "etcd", Versions: []string{"etcd.v0.9.4"},
		Namespaces: []string{"shop"}, Reason: "CVE-2026-1234", Expires: exceptionEnd}}
	if edit != nil {
		edit(c)
	}
	return c
}

// TestConstraintException judges a plan, what is installed, and the count of violations around the end of an exception.
func TestConstraintException(t *testing.T) {
	end := momentOf(t, exceptionEnd)
	for name, test := range map[string]struct {
		now     time.Time
		edit    func(*constraintv1.Constraint)
		refused bool
	}{
		"a second before its end": {now: end.Add(-time.Second)},
		"at its end":              {now: end, refused: true},
		"the time is not known":   {refused: true},
		"in every namespace": {now: end.Add(-time.Second), edit: func(c *constraintv1.Constraint) {
			c.Spec.Exceptions[0].Namespaces = nil
		}},
		"in another namespace": {now: end.Add(-time.Second), refused: true, edit: func(c *constraintv1.Constraint) {
			c.Spec.Exceptions[0].Namespaces = []string{"other"}
		}},
		"recorded as ended": {now: end.Add(-time.Second), refused: true, edit: func(c *constraintv1.Constraint) {
			all, _ := constraintExceptions(c)
			c.Status.EndedExceptions = all.Ended(end)
		}},
		"a Constraint that cannot be read": {now: end.Add(-time.Second), refused: true,
			edit: func(c *constraintv1.Constraint) {
				c.Spec.Constraints = `[{`
			}},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDefinition(exceptedConstraint(test.edit), nil)
			around := facts.Cluster{Version: "1.36.3"}
			plan := pendingPlan("etcd 0.9.4")
			ns := state.NewNamespace("shop",
				state.NamespaceContents{Constraints: constraint.NewSet([]*constraint.Definition{d}, around), Facts: &around,
					Plans: []*olm.InstallPlan{plan}, Exists: true,
					CSVs: []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.4", Package: "etcd", Version: "0.9.4", Spec: &olm.CSVSpec{}}}}})
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: test.now})
			if (v.Decision != verdict.Allow) != test.refused {
				t.Errorf("%v: %q", v.Decision, v.Refusal())
			}
			named := `set aside by exception 1 of Constraint nothing until 2026-12-01T00:00:00+01:00 ("CVE-2026-1234") (bundle/exception): etcd.v0.9.4 is not allowed`
			if warnings := strings.Join(v.WarningTexts(), "\n"); test.refused == strings.Contains(warnings, named) {
				t.Errorf("warnings %q", warnings)
			}
			if installed, _ := bundle.JudgeInstalled(ns, "etcd.v0.9.4",
				test.now); (installed.Decision != verdict.Allow) != test.refused {
				t.Errorf("installed: %v %q", installed.Decision, installed.Refusal())
			}
			if counts := NewTally(slices.Values([]*state.Namespace{ns}), test.now).Of(d); len(counts) > 0 &&
				(counts[0].Violating > 0) != test.refused {
				t.Errorf("the status counts %+v", counts)
			}
		})
	}
}

// TestD3ExceptionLendsItsName: a tenant's catalog offers a bundle of the name that an exception of a Constraint has
// (threat O76).
func TestD3ExceptionLendsItsName(t *testing.T) {
	now := momentOf(t, exceptionEnd).Add(-time.Hour)
	for name, test := range map[string]struct {
		pkg, catalog string
		edit         func(*constraintv1.Constraint)
		read         []string
		refused      bool
	}{
		"control: the catalog of the administrator":  {pkg: "etcd", catalog: "olm", read: []string{"olm"}},
		"attack: another package of it":              {pkg: "mine", catalog: "olm", read: []string{"olm"}, refused: true},
		"attack: a catalog of the tenant":            {pkg: "etcd", catalog: "shop", read: []string{"olm"}, refused: true},
		"attack: another package, a catalog of hers": {pkg: "mine", catalog: "shop", read: []string{"olm"}, refused: true},
		"attack: an exception without a package": {pkg: "mine", catalog: "shop", read: []string{"olm"}, refused: true,
			edit: func(c *constraintv1.Constraint) { c.Spec.Exceptions[0].Package = "" }},
		"control: without a package, in the catalog of the administrator": {pkg: "mine", catalog: "olm", read: []string{"olm"},
			edit: func(c *constraintv1.Constraint) { c.Spec.Exceptions[0].Package = "" }},
		"control: every catalog counts": {pkg: "etcd", catalog: "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDefinition(exceptedConstraint(test.edit), nil)
			around := facts.Cluster{Version: "1.36.3", CatalogNamespaces: test.read}
			plan := pendingPlan(test.pkg + " 0.9.4")
			for i := range plan.Status.BundleLookups {
				l := &plan.Status.BundleLookups[i]
				l.Identifier, l.Catalog.Namespace = "etcd.v0.9.4", test.catalog
			}
			plan.Spec.CSVNames = []string{"etcd.v0.9.4"}
			from := olm.Catalog{Namespace: test.catalog, Name: "operatorhubio-catalog"}
			ns := state.NewNamespace("shop",
				state.NamespaceContents{Constraints: constraint.NewSet([]*constraint.Definition{d}, around), Facts: &around,
					Plans: []*olm.InstallPlan{plan}, Exists: true})
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: now})
			if (v.Decision != verdict.Allow) != test.refused {
				t.Errorf("%v: %q", v.Decision, v.Refusal())
			}
			if counts := ns.ExceptionsOf(d, test.pkg, from); (len(counts) == 0) != test.refused {
				t.Errorf("%d exceptions count for what is installed", len(counts))
			}
			if read := ns.ExceptionsOf(d, test.pkg); test.read != nil && len(read) > 0 {
				t.Error("an exception counts for a catalog that is not known")
			}
		})
	}
}

// TestJudgedConstraintExceptions: what is not valid is refused with its field, and what has ended in a review of files.
func TestJudgedConstraintExceptions(t *testing.T) {
	end := momentOf(t, exceptionEnd)
	for name, test := range map[string]struct {
		edit   func(*constraintv1.Constraint)
		now    time.Time
		review bool
		// refused is the field of the refusal, warned a part of a warning.
		refused, warned string
	}{
		"in force": {now: end.Add(-operatorpolicy.Notice - time.Second), review: true},
		"no package": {now: end.Add(-operatorpolicy.Notice - time.Second),
			warned: "spec.exceptions[0] names no package", edit: func(c *constraintv1.Constraint) { c.Spec.Exceptions[0].Package = "" }},
		"in 14 days, files":   {now: end.Add(-operatorpolicy.Notice), review: true, warned: "(constraint/exception-ended)"},
		"in 14 days, cluster": {now: end.Add(-operatorpolicy.Notice)},
		"ended, files":        {now: end, review: true, refused: "spec.exceptions"},
		"ended, cluster":      {now: end, warned: "(constraint/exception-ended)"},
		"no version": {now: end.Add(-time.Hour), refused: "spec.exceptions[0].versions",
			edit: func(c *constraintv1.Constraint) {
				c.Spec.Exceptions[0].Versions = nil
			}},
		"too many namespaces": {now: end.Add(-time.Hour), refused: "spec.exceptions[0].namespaces",
			edit: func(c *constraintv1.Constraint) {
				c.Spec.Exceptions[0].Namespaces = slices.Repeat([]string{"shop"}, 65)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgeConstraint(ConstraintInput{Constraint: exceptedConstraint(test.edit), Now: test.now,
				Review: test.review})
			warnings := strings.Join(v.WarningTexts(), "\n")
			if (v.Decision == verdict.Allow) != (test.refused == "") || test.refused != "" &&
				v.Reasons[0].Field != test.refused ||
				(warnings == "") != (test.warned == "") || !strings.Contains(warnings, test.warned) {
				t.Errorf("%v, warnings %q", v.Reasons, warnings)
			}
		})
	}
}

// TestWidenedExceptions: only an exception that sets more aside, or for longer, needs a right.
func TestWidenedExceptions(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		before, after func(*constraintv1.Exception)
		widened       bool
	}{
		"unchanged":       {},
		"another reason":  {after: func(e *constraintv1.Exception) { e.Reason = "other words" }},
		"shortened":       {after: func(e *constraintv1.Exception) { e.Expires = "2026-11-30T00:00:00Z" }},
		"the same moment": {after: func(e *constraintv1.Exception) { e.Expires = "2026-11-30T23:00:00Z" }},
		"prolonged": {after: func(e *constraintv1.Exception) { e.Expires = "2026-12-01T00:00:01+01:00" },
			widened: true},
		"another version": {after: func(e *constraintv1.Exception) { e.Versions = []string{"etcd.v0.9.4,etcd.v0.9.5"} }, widened: true},
		"bound to a digest": {after: func(e *constraintv1.Exception) {
			e.Versions = []string{"etcd.v0.9.4" +
				digest}
		}},
		"freed from a digest": {before: func(e *constraintv1.Exception) {
			e.Versions = []string{"etcd.v0.9.4" +
				digest}
		}, widened: true},
		"another namespace": {after: func(e *constraintv1.Exception) {
			e.Namespaces = append(e.Namespaces,
				"other")
		}, widened: true},
		"every namespace":      {after: func(e *constraintv1.Exception) { e.Namespaces = nil }, widened: true},
		"another package":      {after: func(e *constraintv1.Exception) { e.Package = "mine" }, widened: true},
		"every package":        {after: func(e *constraintv1.Exception) { e.Package = "" }, widened: true},
		"one package":          {before: func(e *constraintv1.Exception) { e.Package = "" }},
		"fewer namespaces":     {before: func(e *constraintv1.Exception) { e.Namespaces = []string{"other", "shop"} }},
		"one namespace of all": {before: func(e *constraintv1.Exception) { e.Namespaces = nil }},
		"it was not valid":     {before: func(e *constraintv1.Exception) { e.Expires = "" }, widened: true},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(edit func(*constraintv1.Exception)) *constraintv1.Constraint {
				return exceptedConstraint(func(c *constraintv1.Constraint) {
					if edit != nil {
						edit(&c.Spec.Exceptions[0])
					}
				})
			}
			if got := WidenedConstraintExceptions(of(test.after), of(test.before)); (len(got) > 0) != test.widened {
				t.Errorf("%q", got)
			}
		})
	}
	if got := WidenedConstraintExceptions(exceptedConstraint(nil), nil); !slices.Equal(got,
		[]string{"spec.exceptions[0]"}) {
		t.Errorf("on create: %q", got)
	}
}
