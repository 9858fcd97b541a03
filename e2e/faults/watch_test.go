package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/e2e/node"
)

const (
	// scrapeInterval is how often the metrics of the replicas are read.
	scrapeInterval = 250 * time.Millisecond
	// bothLead is how long two replicas may lead at the same time: until the one that was paused has read the Lease.
	bothLead = 3 * time.Second
)

var backstops = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
	Resource: "validatingadmissionpolicies"}

// watcher observes what happens while a schedule is played.
type watcher struct {
	running sync.WaitGroup
	cancel  context.CancelFunc
	// over is set when the fault has ended, and the gate judges.
	over atomic.Bool
	// peak are the highest values of the metrics of both replicas.
	peak map[string]float64

	mu sync.Mutex
	// strict is whether the attacker attacks the extra namespace as well.
	strict bool
	// versions are those of all plans, by namespace and name; installed are the ClusterServiceVersions that there have
	// been.
	versions  map[string][]string
	installed map[string]bool
}

func newWatcher() *watcher {
	return &watcher{peak: map[string]float64{}, versions: map[string][]string{}, installed: map[string]bool{}}
}

// startWatcher starts the watches.
func (p *play) startWatcher(ctx context.Context) {
	w := p.watcher
	ctx, w.cancel = context.WithCancel(ctx)
	w.running.Go(func() { p.watch(ctx, harness.InstallPlans, w.seePlan) })
	w.running.Go(func() { p.watch(ctx, harness.ClusterServiceVersions, w.seeCSV) })
	var seen bool
	w.running.Go(func() {
		p.watch(ctx, backstops, func(u *unstructured.Unstructured) { seen = p.seeBackstop(u, seen) })
	})
	w.running.Go(func() { p.scrapeAll(ctx) })
}

func (w *watcher) stopWatcher() {
	w.cancel()
	w.running.Wait()
}

// watch calls a function for every object, each time that it is written, until ctx ends.
func (p *play) watch(ctx context.Context, resource schema.GroupVersionResource, see func(*unstructured.Unstructured)) {
	for ctx.Err() == nil {
		events, err := p.Clients[cluster.Admin].Resource(resource).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			_ = pause(ctx, retryInterval)
			continue
		}
		for event := range events.ResultChan() {
			if u, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != "DELETED" {
				see(u)
			}
		}
	}
}

func (w *watcher) seePlan(plan *unstructured.Unstructured) {
	names, _, _ := unstructured.NestedStringSlice(plan.Object, "spec", "clusterServiceVersionNames")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.versions[plan.GetNamespace()+"/"+plan.GetName()] = names
}

func (w *watcher) seeCSV(csv *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.installed[csv.GetNamespace()+"/"+csv.GetName()] = true
}

// seeBackstop records a violation if the backstop knows no more of the policy that was written while the fault lasted.
// It returns whether it has known of it.
func (p *play) seeBackstop(u *unstructured.Unstructured, seen bool) bool {
	if u.GetName() != "opgate-backstop" {
		return seen
	}
	spec, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return seen
	}
	knows := strings.Contains(string(spec), p.own)
	if seen && !knows {
		p.violate("the backstop went back to earlier policies, in generation %d", u.GetGeneration())
	}
	return seen || knows
}

// scrapeAll reads the metrics of both replicas until ctx ends.
func (p *play) scrapeAll(ctx context.Context) {
	var tooLong <-chan struct{} // that both lead
	for ctx.Err() == nil {
		leading := 0
		for _, pod := range p.Node.Pods(cluster.OpgateNamespace) {
			values, err := scrape(ctx, pod)
			if err != nil {
				continue
			}
			for name, value := range values {
				p.peak[name] = max(p.peak[name], value)
			}
			if values["opgate_loop_leading"] == 1 {
				leading++
			}
		}
		switch {
		case leading < 2:
			tooLong = nil
		case tooLong == nil:
			tooLong = speed.After(bothLead)
		default:
			select {
			case <-tooLong:
				p.violate("two replicas have led for more than %s", bothLead)
				tooLong = nil
			default:
			}
		}
		_ = pause(ctx, scrapeInterval)
	}
}

// scraped are the metrics that are read.
var scraped = []string{"opgate_loop_leading", "opgate_panics_total", "go_goroutines", "process_resident_memory_bytes"}

// scrape reads metrics of a replica. Series of one metric are added up.
func scrape(ctx context.Context, pod node.Pod) (map[string]float64, error) {
	if pod.PID == 0 {
		return nil, fmt.Errorf("%s has no process", pod.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod.Addresses["metrics"]+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	values := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, text, found := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(series, "{")
		if !found || strings.HasPrefix(series, "#") {
			continue
		}
		for _, wanted := range scraped {
			if value, err := strconv.ParseFloat(text, 64); err == nil && name == wanted {
				values[name] += value
			}
		}
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s has no metrics: %s", pod.Name, response.Status)
	}
	return values, lines.Err()
}
