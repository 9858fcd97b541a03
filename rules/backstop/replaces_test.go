package backstop_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestC3Replaces compares the API server and the gate on every way to write spec.replaces: it refuses nothing that the
// gate admits, and what a user writes as the gate does (attacks-3, c3).
func TestC3Replaces(t *testing.T) {
	csvOfPackage := func(pkg, replaces string) object {
		o := csvFor("shop", pkg, object{"name": pkg + ".v2.0.0"})
		return with(o, "spec", object{"version": "2.0.0", "replaces": replaces})
	}
	governed := policy("etcd", "shop", "etcd", nil)
	contents := state.NamespaceContents{Exists: true, Policies: []*operatorpolicy.Policy{governed}}
	for _, pkg := range []string{"etcd", "vault"} {
		contents.CSVs = append(contents.CSVs, state.Installed{Bundle: csvOf(t, csvFor("shop", pkg, nil)).StatedBundle()})
	}
	ns := state.NewNamespace("shop", contents)
	s := newAPIServer(t, compile(backstop.Input{Features: everything, Policies: contents.Policies,
		Accounts: map[string][]string{}, Kept: map[string][]bundle.Kept{"shop": bundle.KeptIn(ns)}}))
	refused := 0
	for _, pkg := range []string{"etcd", "vault", "grafana"} {
		for _, replaces := range []string{"etcd.v0.9.2", "vault.v0.9.2", "etcd.v0.9.1", ""} {
			for _, before := range []string{"none", "", "etcd.v0.9.2"} {
				for _, user := range []string{"alice", opgateUser, olmUser} {
					name := fmt.Sprintf("%s of %s replaces %q, before %q", user, pkg, replaces, before)
					object := csvOfPackage(pkg, replaces)
					w := write{resource: "clusterserviceversions", user: user, object: object}
					in := rules.CSVInput{New: csvOf(t, object), Namespace: ns, User: user, ByOLM: user == olmUser,
						ByOpgate: user == opgateUser}
					if user == olmUser {
						w.rights = []string{escalate}
					}
					if before != "none" {
						old := csvOfPackage(pkg, before)
						w.old, in.Old = old, csvOf(t, old)
					}
					got, v := s.judge(t, w), rules.JudgeCSV(in)
					byRule := slices.ContainsFunc(v.Reasons, func(r verdict.Reason) bool { return r.Rule == bundle.RuleReplaces })
					switch {
					case len(got.failed) > 0:
						t.Errorf("%s: an expression fails: %q", name, got.failed)
					case len(got.refused) > 0 && v.Decision == verdict.Allow:
						t.Errorf("%s: the API server refuses what the gate admits: %q", name, got.refused)
					case user == "alice" && byRule && len(got.refused) == 0:
						t.Errorf("%s: the API server admits what the gate refuses: %s", name, v.Refusal())
					}
					refused += len(got.refused)
				}
			}
		}
	}
	if refused < 4 {
		t.Errorf("%d writes are refused", refused)
	}
}

// TestKeptIsShared: an author of very many policies takes the rows of no other namespace.
func TestKeptIsShared(t *testing.T) {
	in := backstop.Input{Features: everything, Kept: map[string][]bundle.Kept{}}
	row := func(author, namespace string) {
		in.Kept[namespace] = append(in.Kept[namespace], bundle.Kept{CSV: "etcd.v0.9.2", Package: "etcd",
			By: verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: author, Name: "etcd-" + namespace}})
	}
	row("zz-admin", "shop")
	for i := range 3000 {
		row("aa-tenant", fmt.Sprintf("tenant-%04d", i))
	}
	o := compile(in)
	s := newAPIServer(t, o)
	w := write{resource: "clusterserviceversions", user: "alice", object: with(csvFor("shop", "vault", nil), "spec",
		object{"replaces": "etcd.v0.9.2"})}
	if got := s.judge(t, w); len(got.refused) != 1 || len(got.failed) > 0 {
		t.Errorf("the admin's row has fallen out: %+v", got)
	}
	if len(o.Left) == 0 || slices.Contains(names(o.Left), "zz-admin/etcd-shop") {
		t.Errorf("left to the webhooks are %d policies", len(o.Left))
	}
}
