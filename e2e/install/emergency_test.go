package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// emergencies types the lines of docs/emergency.md and looks at what becomes of it.
func (s *Site) emergencies(t *testing.T) {
	namespace := s.Govern(t)
	open := func() { s.WantUngated(t, namespace) }
	judging := func() { s.WantGate(t, namespace) }
	var back string // the line that puts everything back
	after := map[string]func(){
		"get deployments": judging,
		"logs":            judging,
		"rollout restart": judging,
		"rotate-ca":       judging,
		"--replicas=0": func() {
			for _, try := range tries(namespace) {
				try.Refused = ""
				harness.Eventually(t, "everything is refused", func(ctx context.Context) error {
					if err := s.Attempt(ctx, try); err == nil ||
						!strings.Contains(err.Error(), "failed calling webhook") {
						return fmt.Errorf("got %w", err)
					}
					return nil
				})
			}
		},
		"--replicas=2":           judging,
		"delete mutatingwebhook": open,
		"helm upgrade":           judging,
		`"strategy":"None"`: func() {
			s.wantConversion(t, "None")
			s.Shell(t, back)
			s.wantConversion(t, "Webhook")
			judging()
		},
		"delete namespace": func() {
			open()
			s.Admin(t, "get", "operatorpolicy", "-n", cluster.PolicyNamespace, namespace)
		},
	}
	lines := strings.Split(strings.TrimSpace(ShellSteps(t, "../../docs/emergency.md", "kubectl")[0]), "\n")
	if len(lines) != len(after) {
		t.Fatalf("there are %d lines, and %d things to see", len(lines), len(after))
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "helm upgrade") {
			back = line
		}
		for text, check := range after {
			if strings.Contains(line, text) {
				s.Shell(t, line)
				check()
				delete(after, text)
			}
		}
	}
	if len(after) > 0 {
		t.Errorf("no line has any of %v", slices.Collect(maps.Keys(after)))
	}
}

func (s *Site) wantConversion(t *testing.T, strategy string) {
	t.Helper()
	if got := s.Admin(t, "get", "crd", registrations[harness.DefinitionResource], "-o",
		"jsonpath={.spec.conversion.strategy}"); got != strategy {
		t.Errorf("the strategy of conversion is %s, want %s", got, strategy)
	}
}
