package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// rest is how long Opgate sends no request once it has nothing to do.
	rest, longestRest = 3 * time.Second, 10 * time.Second
	// moreGoroutines and moreMemory are by how much a replica may have more of them than before all faults.
	moreGoroutines, moreMemory = 1.5, 2.0
)

// allowedApproved returns an error until the plan for the allowed version is approved.
func (p *play) allowedApproved(ctx context.Context) error {
	plans, err := p.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(p.own).List(ctx,
		metav1.ListOptions{})
	if err != nil {
		return err
	}
	var seen []string
	for _, plan := range plans.Items {
		approved, _, _ := unstructured.NestedBool(plan.Object, "spec", "approved")
		if approved && !forbidden(&plan) {
			return nil
		}
		seen = append(seen, fmt.Sprintf("%s approved %t", plan.GetName(), approved))
	}
	return fmt.Errorf("plans are %v", seen)
}

// rests returns an error until Opgate has sent no request for a while, but for its Leases and watches.
func (p *play) rests(context.Context) error {
	requests, err := p.OpgateRequests(time.Now().Add(-min(speed.Scale(rest), longestRest)), time.Time{})
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, r := range requests {
		if r.Verb != "watch" && r.Object.Resource != "leases" {
			count[strings.Join([]string{r.Verb, r.Object.Resource, r.Object.Subresource, r.Object.Namespace,
				r.Object.Name}, " ")]++
		}
	}
	if len(count) > 0 {
		return fmt.Errorf("it sent %v", count)
	}
	return nil
}

// check checks what must be true of the whole schedule.
func (p *play) check(t *testing.T) {
	t.Helper()
	for _, err := range append(p.violations, p.plansAndVersions(t.Context())) {
		if err != nil {
			t.Errorf(harness.Final+"%v", err)
		}
	}
	if err := p.counted(t.Context()); err != nil {
		t.Error(err)
	}
	if n := p.peak["opgate_panics_total"]; n > 0 {
		t.Errorf(harness.Final+"%.0f panics", n)
	}
	if n := p.peak["go_goroutines"]; n > moreGoroutines*p.goroutines {
		t.Errorf("a replica had %.0f goroutines, %.0f before the faults", n, p.goroutines)
	}
	if n := p.peak["process_resident_memory_bytes"]; n > moreMemory*p.memory || n > harness.ContainerMemory {
		t.Errorf("a replica had %.0f MiB, %.0f before the faults", n/(1<<20), p.memory/(1<<20))
	}
}

// plansAndVersions returns an error if a version was approved or installed that is not allowed. The audit log has all
// writes of plans: none but those of OLM, and Opgate's approvals.
func (p *play) plansAndVersions(ctx context.Context) error {
	plans, err := p.Clients[cluster.Admin].Resource(harness.InstallPlans).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range plans.Items {
		p.seePlan(&plans.Items[i])
	}
	var errs []error
	mine := []string{p.permanent, p.own, p.extra}
	for _, plan := range plans.Items {
		approved, _, _ := unstructured.NestedBool(plan.Object, "spec", "approved")
		if approved && forbidden(&plan) && slices.Contains(mine, plan.GetNamespace()) {
			errs = append(errs, fmt.Errorf("plan %s/%s for %v is approved", plan.GetNamespace(), plan.GetName(),
				p.versions[plan.GetNamespace()+"/"+plan.GetName()]))
		}
	}
	for name := range p.installed {
		if namespace, csv, _ := strings.Cut(name, "/"); csv != harness.Etcd2 && slices.Contains(mine, namespace) {
			errs = append(errs, fmt.Errorf("%s was installed", name))
		}
	}
	events, err := harness.ReadAudit(p.AuditLog())
	if err != nil {
		return err
	}
	for _, e := range events {
		o := e.ObjectRef
		if e.At.Before(p.began) || o.Resource != "installplans" || o.Subresource != "" || e.Response.Code/100 != 2 ||
			e.Verb != "update" && e.Verb != "patch" || !slices.Contains(mine, o.Namespace) {
			continue
		}
		switch versions := p.versions[o.Namespace+"/"+o.Name]; {
		case e.User.Username == cluster.OLMUserName:
		case e.User.Username != cluster.OpgateUserName:
			errs = append(errs, fmt.Errorf("%s: %s wrote plan %s/%s", e.At, e.User.Username, o.Namespace, o.Name))
		case !slices.Equal(versions, []string{harness.Etcd2}):
			errs = append(errs, fmt.Errorf("%s: Opgate wrote plan %s/%s for %v", e.At, o.Namespace, o.Name, versions))
		}
	}
	return errors.Join(errs...)
}
