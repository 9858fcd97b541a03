package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestA4Escapes kills Opgate and, as OLM, writes steps of approved plans that a Constraint or a policy forbids. The API
// server stores them, since their webhook has failurePolicy Ignore. The next process finds them, and deletes none.
func TestA4Escapes(t *testing.T) {
	t.Parallel()
	e := harness.Vacant(t)
	start := func(args ...string) {
		t.Helper()
		e.StartGate(t, cluster.GateOptions{Loop: true, Args: args})
	}
	start()
	first, constrained, governed := e.NewNamespace(t), e.NewNamespace(t), e.NewNamespace(t)
	install := func(namespace string) *unstructured.Unstructured {
		p := harness.InstallPlan(namespace, "brings", harness.ForbiddenVersion)
		p.Object["spec"].(map[string]any)["approved"] = true
		p.Object["status"].(map[string]any)["phase"] = "Installing"
		e.Put(t, p)
		return installedCSV(namespace, harness.ForbiddenCSV, harness.ForbiddenVersion)
	}
	old, forbidden, unapproved := install(first), install(constrained), install(governed)
	e.Sync(t)
	e.Put(t, old) // before anything forbids it
	for _, namespace := range []string{first, constrained} {
		constrain(t, e, constraintOf(namespace, only(namespace, isCertified), "must be certified"))
	}
	p := e.Put(t, harness.OperatorPolicy(governed))
	e.Sync(t)
	for _, u := range []*unstructured.Unstructured{forbidden, unapproved} {
		harness.WantRefused(t, e.Cluster, cluster.OLM, harness.AsJSON(t, u), []string{"create", "-f", "-"}, "(bundle/")
	}
	for _, holder := range []*unstructured.Unstructured{p, constraintOf(constrained, "", ""),
		constraintOf(first, "", "")} {
		harness.Eventually(t, "see "+holder.GetName()+" in force", func(ctx context.Context) error {
			now, err := find(ctx, e, holder)
			if err != nil || now == nil {
				return fmt.Errorf("it is %v: %w", now, err)
			}
			if n, _, _ := unstructured.NestedInt64(now.Object, "status",
				"observedGeneration"); n != now.GetGeneration() {
				return fmt.Errorf("status is of generation %d", n)
			}
			if created := now.GetCreationTimestamp(); time.Since(created.Time) < 2*time.Second {
				return errors.New("what is created now could have the same time of creation")
			}
			return nil
		})
	}

	if err := e.Gate.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, u := range []*unstructured.Unstructured{forbidden, unapproved} {
		t.Cleanup(func() { e.Remove(t, u) })
		harness.Eventually(t, "store "+u.GetNamespace()+"/"+u.GetName(), func(ctx context.Context) error {
			_, err := e.Clients[cluster.OLM].Of(u).Create(ctx, u, metav1.CreateOptions{})
			return err
		})
	}

	start()
	wantEscapes(t, e, "opgate_escapes{kind=\"constraint\"} 1", "opgate_escapes{kind=\"policy\"} 1")
	wantEscapeEvent(t, e, constrained, "Escaped", "must be certified")
	wantEscapeEvent(t, e, governed, "Escaped", "is not allowed by OperatorPolicy")
	for name, want := range map[string]int64{constrained: 1, first: 0} {
		harness.Eventually(t, "see the status of Constraint "+name, func(ctx context.Context) error {
			c, err := find(ctx, e, constraintOf(name, "", ""))
			if err != nil || c == nil {
				return fmt.Errorf("it is %v: %w", c, err)
			}
			if n, _, _ := unstructured.NestedInt64(c.Object, "status", "escaped"); n != want {
				t.Logf("status of %s is %v", name, c.Object["status"])
				return fmt.Errorf("status.escaped is %d, want %d", n, want)
			}
			return nil
		})
	}
	harness.Eventually(t, "see the policy say so", func(ctx context.Context) error {
		now, err := find(ctx, e, p)
		if err != nil || now == nil {
			return fmt.Errorf("it is %v: %w", now, err)
		}
		if text := harness.AsJSON(t, now); !strings.Contains(text, "InstalledDuringOutage") ||
			!strings.Contains(text, "was installed while Opgate was not running, and is not allowed") {
			return fmt.Errorf("it says nothing of it: %v", now.Object["status"])
		}
		return nil
	})
	for _, u := range []*unstructured.Unstructured{old, forbidden, unapproved} {
		if e.Stored(t, u) == nil {
			t.Errorf("%s/%s is gone, although escapes are only reported", u.GetNamespace(), u.GetName())
		}
	}
}

// wantEscapes waits for series of the metrics.
func wantEscapes(t *testing.T, e *harness.Env, series ...string) {
	t.Helper()
	harness.Eventually(t, "see "+strings.Join(series, ", "), func(ctx context.Context) error {
		_, body, err := harness.GetURL(ctx, e.Gate.MetricsURL())
		if err != nil {
			return err
		}
		for _, one := range series {
			if !strings.Contains(body, one+"\n") {
				var found []string
				for line := range strings.Lines(body) {
					if strings.HasPrefix(line, "opgate_escapes") || strings.HasPrefix(line, "opgate_loop_leading") {
						found = append(found, line)
					}
				}
				return fmt.Errorf("there is no %s, but %q", one, found)
			}
		}
		return nil
	})
}

// wantEscapeEvent waits for an event on a ClusterServiceVersion.
func wantEscapeEvent(t *testing.T, e *harness.Env, namespace, reason, message string) {
	t.Helper()
	harness.Eventually(t, "see event "+reason+" in namespace "+namespace, func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "get", "events", "-n", namespace, "-o",
			`jsonpath={range .items[*]}{.involvedObject.kind} {.reason} {.message}{"\n"}{end}`)
		if err != nil {
			return err
		}
		for line := range strings.Lines(result.Stdout) {
			if strings.HasPrefix(line, "ClusterServiceVersion "+reason+" ") && strings.Contains(line, message) {
				return nil
			}
		}
		return fmt.Errorf("events are %s%s", result.Stdout, result.Stderr)
	})
}
