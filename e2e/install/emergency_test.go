package install

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// emergencies types the lines of docs/emergency.md and looks at what becomes of it.
func (s *site) emergencies(t *testing.T) {
	namespace := s.govern(t)
	open := func() { s.wantUngated(t, namespace) }
	judging := func() { s.wantGate(t, namespace) }
	var back string // the line that puts everything back
	after := map[string]func(){
		"get deployments": judging,
		"logs":            judging,
		"rollout restart": judging,
		"rotate-ca":       judging,
		"--replicas=0": func() {
			for _, try := range tries(namespace) {
				try.refused = ""
				harness.Eventually(t, "everything is refused", func(ctx context.Context) error {
					if err := s.attempt(ctx, try); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
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
			s.shell(t, back)
			s.wantConversion(t, "Webhook")
			judging()
		},
		"delete namespace": func() {
			open()
			s.admin(t, "get", "operatorpolicy", "-n", cluster.PolicyNamespace, namespace)
		},
	}
	lines := strings.Split(strings.TrimSpace(shellSteps(t, "../../docs/emergency.md", "kubectl")[0]), "\n")
	if len(lines) != len(after) {
		t.Fatalf("there are %d lines, and %d things to see", len(lines), len(after))
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "helm upgrade") {
			back = line
		}
		for text, check := range after {
			if strings.Contains(line, text) {
				s.shell(t, line)
				check()
				delete(after, text)
			}
		}
	}
	if len(after) > 0 {
		t.Errorf("no line has any of %v", slices.Collect(maps.Keys(after)))
	}
}

func (s *site) wantConversion(t *testing.T, strategy string) {
	t.Helper()
	if got := s.admin(t, "get", "crd", registrations[harness.DefinitionResource], "-o", "jsonpath={.spec.conversion.strategy}"); got != strategy {
		t.Errorf("the strategy of conversion is %s, want %s", got, strategy)
	}
}

// shellSteps are the commands in a document, as people copy them, that hold a text.
func shellSteps(t *testing.T, path, text string) []string {
	t.Helper()
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for i, part := range strings.Split(string(document), "```") {
		if step, ok := strings.CutPrefix(part, "shell\n"); i%2 == 1 && ok && strings.Contains(step, text) {
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		t.Fatalf("%s has no command with %q", path, text)
	}
	return steps
}

// shell runs what people copy from a document, as the admin, in the root of the checkout.
func (s *site) shell(t *testing.T, step string) string {
	t.Helper()
	helm, err := assets.FindHelm(t.Context(), assets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", step)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(), "HOME="+s.Dir(),
		"PATH="+filepath.Dir(s.Assets().Kubectl())+":"+filepath.Dir(helm)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", step, err, out)
	}
	return string(out)
}
