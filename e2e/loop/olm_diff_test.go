package loop

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/harness"
)

// wantDiff compares what `opgate diff` says of a held plan with its refusal: the same digest, and the differences that it names.
func wantDiff(t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured, digest string) {
	t.Helper()
	name := plan.GetNamespace() + "/" + plan.GetName()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), e.Opgate(), "diff", "--kubeconfig", e.Kubeconfig(), name, "-o", "json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("opgate diff %s: %v, want exit code 1: %s%s", name, err, out, stderr.String())
		return
	}
	var changes []struct {
		Plan, Digest string
		Differences  []struct {
			Class string
			Risky bool
		}
	}
	if err := json.Unmarshal(out, &changes); err != nil || len(changes) != 1 {
		t.Errorf("opgate diff %s: %v: %s", name, err, out)
		return
	}
	if c := changes[0]; c.Plan != name || c.Digest != digest || len(c.Differences) == 0 || !c.Differences[0].Risky {
		t.Errorf("opgate diff %s shows\n%s\nwant risky differences first, and digest %s", name, out, digest)
	}
}
