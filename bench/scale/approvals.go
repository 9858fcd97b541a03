package scale

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// approvals writes plans that the policies allow, all at once, and measures how long after each the loop has approved
// it.
func (s *site) approvals(ctx context.Context) error {
	n := min(s.Approvals, len(s.names))
	plans, statuses := make([]*unstructured.Unstructured, n), make([]any, n)
	err := s.each(ctx, n, writers, func(ctx context.Context, i int) error {
		namespace := s.names[i]
		sub, err := s.olm.Resource(subscriptions).Namespace(namespace).Get(ctx, subscription, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if plans[i], statuses[i], err = s.newPlan(ctx, namespace, secondPlan, allowed, sub); err != nil {
			return err
		}
		return s.status(ctx, subscriptions, sub, "Subscription", namespace, allowed, secondPlan)
	})
	if err != nil {
		return err
	}
	if err := s.waitQuiet(ctx); err != nil {
		return err
	}
	before, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	began := s.Now()
	if err := s.each(ctx, n, n,
		func(ctx context.Context, i int) error { return s.require(ctx, plans[i], statuses[i]) }); err != nil {
		return err
	}
	s.row.Approvals.WrittenSeconds = s.Now().Sub(began).Seconds()
	var took []time.Duration
	var last time.Time
	for len(took) < n {
		if err := s.pause(ctx, time.Second); err != nil {
			return err
		}
		if s.Now().Sub(began) > settleTimeout {
			return fmt.Errorf("%d of %d plans are approved after %s", len(took), n, settleTimeout)
		}
		if took, last, err = s.approved(began); err != nil {
			return err
		}
	}
	if err := s.waitQuiet(ctx); err != nil {
		return err
	}
	after, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	counts, _, err := s.log.since(began)
	a := &s.row.Approvals
	a.Plans, a.LastSeconds = n, last.Sub(began).Seconds()
	a.P50, a.P99 = percentile(took, 50).Seconds(), percentile(took, 99).Seconds()
	a.CPU = (after.CPU - before.CPU).Seconds() / float64(n)
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		a.Requests += float64(counts[what]) / float64(n)
	}
	return err
}

// approved returns how long after OLM's write each plan was approved, and when the last one was, by the audit log.
func (s *site) approved(since time.Time) (took []time.Duration, last time.Time, err error) {
	if err := s.log.read(); err != nil {
		return nil, last, err
	}
	required, approved := map[string]time.Time{}, map[string]time.Time{}
	for i := range s.log.requests {
		r := &s.log.requests[i]
		if r.Object.Resource != installPlans.Resource || r.Object.Name != secondPlan || r.Received.Before(since) {
			continue
		}
		switch {
		case r.Object.Subresource == "status":
			required[r.Object.Namespace] = r.Answered
		case r.byOpgate() && r.Verb == "patch" && r.Response.Code == http.StatusOK:
			approved[r.Object.Namespace] = r.Answered
		}
	}
	for namespace, at := range approved {
		if from, ok := required[namespace]; ok {
			took = append(took, max(0, at.Sub(from)))
			if at.After(last) {
				last = at
			}
		}
	}
	return took, last, nil
}
