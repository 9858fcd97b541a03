package scale

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// writers is how many objects are written at the same time.
const writers = 16

// reportTimeout bounds the time until every policy has a status.
const reportTimeout = 30 * time.Minute

// setUp creates the catalog, and the namespaces with what OLM and its users have written in each. Opgate does not run
// yet, so that no review slows this down.
func (s *site) setUp(ctx context.Context) error {
	if _, err := s.create(ctx, s.admin, definitions, "CustomResourceDefinition", ""); err != nil {
		return err
	}
	catalog, err := s.create(ctx, s.admin, catalogSources, "CatalogSource", "")
	if err != nil {
		return err
	}
	if err := s.status(ctx, catalogSources, catalog, "CatalogSource", "", "", ""); err != nil {
		return err
	}
	for { // until the new kind is served
		_, err := s.create(ctx, s.admin, packageManifests, "PackageManifest", "")
		if err == nil {
			break
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		if err := s.pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return s.createNamespaces(ctx)
}

// startLeader starts the first replica.
func (s *site) startLeader(ctx context.Context) error {
	began := s.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.row.StartSeconds = s.Now().Sub(began).Seconds()
	return s.waitQuiet(ctx)
}

// createPolicies creates a policy for each namespace, and waits until each has a status.
func (s *site) createPolicies(ctx context.Context) error {
	before, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	reports, stop, err := s.follow(ctx)
	if err != nil {
		return err
	}
	defer stop()
	began := s.Now()
	var mu sync.Mutex
	created := map[string]time.Time{}
	err = s.each(ctx, len(s.names), writers, func(ctx context.Context, i int) error {
		if _, err := s.create(ctx, s.admin, policies, "OperatorPolicy", s.names[i]); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		created[s.names[i]] = s.Now()
		return nil
	})
	if err != nil {
		return err
	}
	p := &s.row.Policies
	p.WrittenSeconds = s.Now().Sub(began).Seconds()
	if err := reports.wait(ctx, s, len(s.names)); err != nil {
		return err
	}
	var took []time.Duration
	var last time.Time
	for name, at := range reports.at {
		took = append(took, max(0, at.Sub(created[name])))
		if at.After(last) {
			last = at
		}
	}
	p.ReportedSeconds = last.Sub(began).Seconds()
	p.PerSecond = float64(len(s.names)) / p.ReportedSeconds
	p.P50, p.P99 = percentile(took, 50).Seconds(), percentile(took, 99).Seconds()
	if err := s.waitQuiet(ctx); err != nil {
		return err
	}
	p.IdleSeconds = (s.Now().Sub(began) - s.Quiet).Seconds()
	after, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	p.CPU = (after.CPU - before.CPU).Seconds() / float64(len(s.names))
	s.row.Requests, _, err = s.log.since(began)
	for _, count := range s.row.Requests {
		p.Requests += float64(count) / float64(len(s.names))
	}
	return err
}

// reports are the instants at which policies had a status for the first time, by name.
type reports struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (r *reports) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.at)
}

// wait waits until a number of policies has a status.
func (r *reports) wait(ctx context.Context, s *site, n int) error {
	for began := s.Now(); r.count() < n; {
		if err := s.pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		if s.Now().Sub(began) > reportTimeout {
			return fmt.Errorf("%d of %d policies have a status after %s", r.count(), n, reportTimeout)
		}
	}
	return nil
}

// follow watches the status of policies.
func (s *site) follow(ctx context.Context) (_ *reports, stop func(), err error) {
	ctx, stop = context.WithCancel(ctx)
	r := &reports{at: map[string]time.Time{}}
	informer := dynamicinformer.NewFilteredDynamicInformer(s.admin, policies, policyNamespace, 0, cache.Indexers{},
		nil).Informer()
	note := func(obj any) {
		u := obj.(*unstructured.Unstructured)
		observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		state, _, _ := unstructured.NestedString(u.Object, "status", "compliant")
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, known := r.at[u.GetName()]; !known && observed == u.GetGeneration() && state != "" {
			r.at[u.GetName()] = s.Now()
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note,
		UpdateFunc: func(_, obj any) { note(obj) }})
	if err != nil {
		stop()
		return nil, nil, err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, nil, ctx.Err()
	}
	return r, stop, nil
}

// rest measures the first replica while nothing happens, once it has stored what the policies compile to.
func (s *site) rest(ctx context.Context) error {
	for began := s.Now(); s.row.Backstop == "" || s.row.Backstop == "pending"; {
		if s.Now().Sub(began) > reportTimeout {
			return fmt.Errorf("the backstop is %q after %s", s.row.Backstop, reportTimeout)
		}
		if err := s.waitQuiet(ctx); err != nil {
			return err
		}
		metrics, err := s.scrape(ctx)
		if err != nil {
			return err
		}
		for name := range metrics {
			if state := backstopState.FindStringSubmatch(name); state != nil {
				s.row.Backstop = state[1] // there is a sample of the present state alone
			}
		}
	}
	before, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	if err := s.pause(ctx, s.Rest); err != nil {
		return err
	}
	after, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	s.row.RestCPU = (after.CPU - before.CPU).Seconds() / s.Rest.Seconds()
	m := &s.row.Leader
	m.Resident, m.Peak = after.Resident, after.Peak
	metrics, err := s.scrape(ctx)
	m.Heap = int64(metrics["go_memstats_heap_inuse_bytes"])
	return err
}

// backstopState matches the metric of the state of the admission policies.
var backstopState = regexp.MustCompile(`^opgate_backstop_active\{state="([a-z-]+)"\}$`)

// scrape returns the metrics of the first replica, by name and labels.
func (s *site) scrape(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.replicas[0].MetricsURL(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the metrics: %s (%w)", response.Status, err)
	}
	metrics := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+(?:\{[^}]*\})?) (\S+)$`).FindAllStringSubmatch(string(body),
		-1) {
		if metrics[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
			return nil, fmt.Errorf("read the metrics: %w", err)
		}
	}
	return metrics, nil
}

// events writes the status of Subscriptions, as OLM does when it has read its catalogs again, and measures what the
// first replica does.
func (s *site) events(ctx context.Context) error {
	before, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	began := s.Now()
	err = s.each(ctx, s.Events, writers, func(ctx context.Context, i int) error {
		patch := fmt.Appendf(nil, `{"status":{"lastUpdated":%q}}`,
			s.Now().UTC().Add(time.Duration(i)*time.Second).Format(time.RFC3339))
		_, err := again(ctx, s, func() (*unstructured.Unstructured, error) {
			return s.olm.Resource(subscriptions).Namespace(s.names[i%len(s.names)]).Patch(ctx, subscription,
				types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		})
		return err
	})
	if err != nil {
		return err
	}
	took := s.Now().Sub(began)
	if err := s.waitQuiet(ctx); err != nil {
		return err
	}
	after, err := s.replicas[0].Usage()
	if err != nil {
		return err
	}
	atRest := s.row.RestCPU * (s.Now().Sub(began) - took).Seconds()
	s.row.EventCPU = max(0, (after.CPU-before.CPU).Seconds()-atRest) / float64(s.Events)
	return nil
}

// startSecond starts another replica while all policies are there. This changes the CustomResourceDefinition, since
// each replica of the harness has an authority and an address of its own: the API server ends all watches of policies,
// and reads them again in each version.
func (s *site) startSecond(ctx context.Context) error {
	began := s.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.row.SecondSeconds = s.Now().Sub(began).Seconds()
	return s.waitQuiet(ctx)
}

// memory measures both replicas at the end.
func (s *site) memory(context.Context) error {
	for i, to := range []*Memory{&s.row.LeaderAtEnd, &s.row.Second} {
		u, err := s.replicas[i].Usage()
		if err != nil {
			return err
		}
		to.Resident, to.Peak = u.Resident, u.Peak
	}
	return nil
}
