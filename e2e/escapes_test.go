package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
)

// TestA4Escapes kills Opgate and, as OLM, writes steps of approved plans that a Constraint or a policy forbids. The API server stores them,
// since their webhook has failurePolicy Ignore. The next process finds them; one with --escapes=remove deletes them.
func TestA4Escapes(t *testing.T) {
	t.Parallel()
	e := startBare(t, cluster.Options{Audit: true, Log: os.Stderr})
	var err error
	start := func(args ...string) {
		t.Helper()
		if e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, Args: args}); err != nil {
			t.Fatal(err)
		}
	}
	start()
	first, constrained, governed := e.newNamespace(t), e.newNamespace(t), e.newNamespace(t)
	brought := func(namespace string) *unstructured.Unstructured {
		p := plan(namespace, "brings", forbiddenVersion)
		p.Object["spec"].(map[string]any)["approved"] = true
		p.Object["status"].(map[string]any)["phase"] = "Installing"
		e.put(t, p)
		return installedCSV(namespace, forbiddenCSV, forbiddenVersion)
	}
	old, forbidden, unapproved := brought(first), brought(constrained), brought(governed)
	e.sync(t)
	e.put(t, old) // before anything forbids it
	for _, namespace := range []string{first, constrained} {
		e.constrain(t, constraintOf(namespace, only(namespace, isCertified), "must be certified"))
	}
	p := e.put(t, policy(governed))
	e.sync(t)
	for _, u := range []*unstructured.Unstructured{forbidden, unapproved} {
		refused(t, e.Cluster, cluster.OLM, asJSON(t, u), []string{"create", "-f", "-"}, "(csv/")
	}
	for _, guard := range []*unstructured.Unstructured{p, constraintOf(constrained, "", ""), constraintOf(first, "", "")} {
		eventually(t, "see "+guard.GetName()+" in force", func(ctx context.Context) error {
			now, err := e.find(ctx, guard)
			if err != nil || now == nil {
				return fmt.Errorf("it is %v: %w", now, err)
			}
			if n, _, _ := unstructured.NestedInt64(now.Object, "status", "observedGeneration"); n != now.GetGeneration() {
				return fmt.Errorf("status is of generation %d", n)
			}
			if created := now.GetCreationTimestamp(); time.Since(created.Time) < 2*time.Second {
				return errors.New("what is created now could have the same time of creation")
			}
			return nil
		})
	}

	if err := e.gate.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, u := range []*unstructured.Unstructured{forbidden, unapproved} {
		t.Cleanup(func() { e.remove(t, u) })
		eventually(t, "store "+u.GetNamespace()+"/"+u.GetName(), func(ctx context.Context) error {
			_, err := e.clients[cluster.OLM].of(u).Create(ctx, u, metav1.CreateOptions{})
			return err
		})
	}

	start()
	e.wantEscapes(t, "opgate_escapes{kind=\"constraint\"} 1", "opgate_escapes{kind=\"policy\"} 1")
	e.wantEscapeEvent(t, constrained, "Escaped", "must be certified")
	e.wantEscapeEvent(t, governed, "Escaped", "is not allowed by OperatorPolicy")
	for name, want := range map[string]int64{constrained: 1, first: 0} {
		eventually(t, "see the status of Constraint "+name, func(ctx context.Context) error {
			c, err := e.find(ctx, constraintOf(name, "", ""))
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
	eventually(t, "see the policy say so", func(ctx context.Context) error {
		now, err := e.find(ctx, p)
		if err != nil || now == nil {
			return fmt.Errorf("it is %v: %w", now, err)
		}
		if text := asJSON(t, now); !strings.Contains(text, "InstalledDuringOutage") || !strings.Contains(text, "was installed while Opgate was not running, and is not allowed") {
			return fmt.Errorf("it says nothing of it: %v", now.Object["status"])
		}
		return nil
	})
	for _, u := range []*unstructured.Unstructured{old, forbidden, unapproved} {
		if e.stored(t, u) == nil {
			t.Errorf("%s/%s is gone, although escapes are only reported", u.GetNamespace(), u.GetName())
		}
	}

	if _, err := e.gate.Stop(); err != nil {
		t.Fatal(err)
	}
	start("--escapes=remove")
	for _, u := range []*unstructured.Unstructured{forbidden, unapproved} {
		eventually(t, "see "+u.GetNamespace()+"/"+u.GetName()+" removed", func(ctx context.Context) error {
			now, err := e.find(ctx, u)
			if err == nil && now != nil {
				err = errors.New("it is there")
			}
			return err
		})
	}
	e.wantEscapeEvent(t, constrained, "EscapeRemoved", "must be certified")
	e.wantEscapes(t, "opgate_escapes{kind=\"constraint\"} 0", "opgate_escapes{kind=\"policy\"} 0")
	if e.stored(t, old) == nil {
		t.Error("what was installed before the Constraint is removed")
	}
}

// wantEscapes waits for series of the metrics.
func (e *env) wantEscapes(t *testing.T, series ...string) {
	t.Helper()
	eventually(t, "see "+strings.Join(series, ", "), func(ctx context.Context) error {
		_, body, err := get(ctx, e.gate.MetricsURL())
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
func (e *env) wantEscapeEvent(t *testing.T, namespace, reason, message string) {
	t.Helper()
	eventually(t, "see event "+reason+" in namespace "+namespace, func(ctx context.Context) error {
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
