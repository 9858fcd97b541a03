package admission

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/play"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// TestOverridesAreRecorded plays, for each rule by which refusals are set aside, the scenarios in which that happens:
// each leaves the reason in the audit log, and is counted under its rule.
func TestOverridesAreRecorded(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, versions)
	for _, rule := range rules.Rules() {
		if !rule.SetsAside {
			continue
		}
		t.Run(string(rule.ID), func(t *testing.T) {
			played := 0
			for _, s := range scenarios {
				if s.Decision == verdict.Allow.String() && slices.Contains(s.Rules, rule.ID) {
					played++
					wantRecorded(t, s, rule.ID)
				}
			}
			if played == 0 {
				t.Errorf("no scenario sets a refusal aside by %s", rule.ID)
			}
		})
	}
}

func wantRecorded(t *testing.T, s *scenario.Scenario, id verdict.RuleID) {
	t.Helper()
	existing := slices.Concat(s.Cluster, s.Policies)
	store := storeOf(t, existing...)
	options := optionsOf(Options{Store: store, Authorizer: overrideBy{"admin"}, Authenticated: byAPIServer})
	if s.Catalog != nil {
		options.Catalogs = catalogsOf(t, s)
	}
	registry := prometheus.NewRegistry()
	options.Metrics = NewMetrics(registry, store, time.Now)
	gate := New(options)
	before := sampled(t, registry)
	for _, of := range rules.Rules() {
		if _, counted := before["opgate_overrides_total "+string(of.ID)]; counted != of.SetsAside {
			t.Errorf("%s is counted from 0 on: %t, want %t", of.ID, counted, of.SetsAside)
		}
	}
	old, object := written(t, s, existing)
	got, err := (&play.Write{User: s.User, Status: s.Verb == "replace-status", Old: old, New: object}).Send(
		context.WithoutCancel(t.Context()), gate.Handlers())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.Audit["override"], "overridden with reason") ||
		!strings.Contains(got.Audit["override"], "("+string(id)+")") {
		t.Errorf("%s: audit annotation override is %q, want the reason and %s", s.Name, got.Audit["override"], id)
	}
	if counted := sampled(t, registry)["opgate_overrides_total "+string(id)]; counted != 1 {
		t.Errorf("%s: %v overrides are counted under %s, want 1", s.Name, counted, id)
	}
}
