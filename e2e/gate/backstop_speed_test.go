package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const (
	// speedPolicies is how many policies the API server holds while approvals are timed, each for another namespace.
	speedPolicies = 1000
	// speedPlan is about how large a plan is as JSON: that of an operator with two CustomResourceDefinitions.
	speedPlan = 40 << 10
)

// BenchmarkBackstop takes the time of an approval that the API server judges by itself, with many policies, no Opgate
// and no webhooks. The floor is an approval in turns with it of an equal plan in a namespace that the admission
// policies exclude.
func BenchmarkBackstop(b *testing.B) {
	e := harness.StartWithoutGate(b)
	held, floor := e.NewNamespace(b), e.NewNamespace(b)
	var input []string
	for i := range speedPolicies - 2 {
		input = append(input, harness.Normal(harness.OperatorPolicy(fmt.Sprintf("tenant-%04d", i)).Object))
	}
	for _, namespace := range []string{held, floor} {
		input = append(input, harness.Normal(harness.OperatorPolicy(namespace).Object))
	}
	cmd := exec.CommandContext(b.Context(), harness.Opgate(b, e.Cluster), "compile", "-f", "-", "--olm-identity",
		cluster.OLMUserName, "--excluded-namespace", floor)
	cmd.Stdin = strings.NewReader(strings.Join(input, "\n"))
	var objects, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &objects, &problems
	if err := cmd.Run(); err != nil {
		b.Fatalf("%v\n%s", err, problems.String())
	}
	harness.Kubectl(b, e.Cluster, cluster.Admin, objects.String(), "apply", "--server-side", "-f", "-")
	for _, namespace := range []string{held, floor} {
		e.Put(b, harness.InstallPlan(namespace, "forbidden", harness.ForbiddenVersion))
		e.Put(b, speedPlanIn(namespace))
	}
	approve := func(ctx context.Context, namespace, plan string, approved, dry bool) (harness.Answer, error) {
		r := harness.Request{Method: http.MethodPatch, Path: harness.PathOf(harness.InstallPlans, namespace, plan, ""),
			ContentType: string(types.MergePatchType), Body: fmt.Appendf(nil, `{"spec":{"approved":%t}}`, approved)}
		if dry {
			r.Query = map[string][]string{"dryRun": {"All"}}
		}
		return e.Clients[cluster.Admin].Send(ctx, r)
	}
	harness.Eventually(b, "the API server refuses", func(ctx context.Context) error {
		got, err := approve(ctx, held, "forbidden", true, true)
		if err == nil && !strings.Contains(got.Message, heldByServer) {
			err = errors.New(got.String())
		}
		return err
	})
	if got, err := approve(b.Context(), floor, "forbidden", true, true); err != nil || !got.OK() {
		b.Fatalf("in the excluded namespace: %s, %v", got, err)
	}

	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, namespace := range []string{held, floor} {
			start := time.Now()
			got, err := approve(b.Context(), namespace, "speed", true, false)
			took[namespace] = append(took[namespace], time.Since(start))
			if err != nil || !got.OK() {
				b.Fatalf("%s, %v", got, err)
			}
			if got, err := approve(b.Context(), namespace, "speed", false, false); err != nil || !got.OK() {
				b.Fatalf("%s, %v", got, err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, percent := range map[string]int{"p50": 50, "p99": 99} {
		at := func(of []time.Duration) time.Duration {
			return slices.Sorted(slices.Values(of))[(len(of)-1)*percent/100]
		}
		b.ReportMetric(float64(at(took[held]).Microseconds())/1000, name+"-ms")
		b.ReportMetric(float64(at(took[floor]).Microseconds())/1000, name+"-floor-ms")
		b.ReportMetric(at(took[held]).Seconds()/at(took[floor]).Seconds(), name+"-ratio")
	}
}

// speedPlanIn is a plan for the allowed version, with definitions in its steps.
func speedPlanIn(namespace string) *unstructured.Unstructured {
	p := harness.InstallPlan(namespace, "speed", harness.AllowedVersion)
	status := p.Object["status"].(map[string]any)
	for i := range 2 {
		name := fmt.Sprintf("definition-%d", i)
		status["plan"] = append(status["plan"].([]any),
			map[string]any{"resolving": harness.AllowedCSV, "status": "Unknown",
				"resource": map[string]any{"group": "apiextensions.k8s.io", "version": "v1",
					"kind": "CustomResourceDefinition", "name": name,
					"sourceName": harness.GoodCatalog, "sourceNamespace": cluster.OLMNamespace,
					"manifest": `{"description":"` + strings.Repeat("x", speedPlan/2) + `"}`}})
	}
	return p
}
