package apply

import (
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// Leading returns the snapshot while this replica leads, else nil.
type Leading func() *snapshot.Snapshot

// Gauge is a gauge whose series are computed when it is scraped.
type Gauge struct {
	Leading
	desc   *prometheus.Desc
	series func(s *snapshot.Snapshot, set func(value float64, labels ...string))
}

// Gauge returns a gauge for which series calls set with each value and the labels of that when it is scraped, perhaps by
// several scrapers at the same time. It has no series while another replica leads.
func (l Leading) Gauge(name, help string, labels []string,
	series func(s *snapshot.Snapshot, set func(value float64, labels ...string))) Gauge {
	return Gauge{l, prometheus.NewDesc(name, help, labels, nil), series}
}

// Describe implements prometheus.Collector.
func (g Gauge) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

// Collect implements prometheus.Collector.
func (g Gauge) Collect(out chan<- prometheus.Metric) {
	if current := g.Leading(); current != nil {
		g.series(current, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
		})
	}
}

// Metrics count the writes of controllers.
type Metrics struct {
	approvals *prometheus.CounterVec
	writes    *prometheus.CounterVec
	left      *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		approvals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "opgate_loop_approvals_total",
			Help: "Total number of InstallPlans that the background loop approved or tried to, by result (approved, conflict, refused)."},
			[]string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "opgate_loop_writes_total",
			Help: "Total number of writes of the background loop without approvals, by verb, kind and result (ok, failed)."},
			[]string{"verb", "kind", "result"}),
		left: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_table_left",
			Help: "Number of policies, and of other objects, for which a bounded table has no room, by table."},
			[]string{"table"}),
	}
	for _, result := range []string{"approved", "conflict", "refused"} { // from 0, so that the first one is an increase
		m.approvals.WithLabelValues(result)
	}
	for table := range consequences {
		m.left.WithLabelValues(table)
	}
	registry.MustRegister(m.approvals, m.writes, m.left)
	return m
}

// Wrote counts a write with its result.
func (m *Metrics) Wrote(verb, kind string, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.writes.WithLabelValues(verb, kind, result).Inc()
}

func (m *Metrics) approved(err error) {
	result := "approved"
	switch {
	case Outdated(err):
		result = "conflict"
	case err != nil:
		result = "refused"
	}
	m.approvals.WithLabelValues(result).Inc()
}

// maxLeft bounds the events on one change, and the names in the log.
const maxLeft = 20

// Shared is what controllers have in common. All fields are required unless they have a default.
type Shared struct {
	// Writer sends the writes. Its Store provides the snapshot that admission judges by, its Client is that of the leader,
	// which AddTo sets.
	Writer
	// Events records what a controller finds, on the objects. Default: nothing is recorded.
	Events *events.Recorder
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	// left are the parts of tables that have something left, by table and part.
	left map[[2]string][]fair.Origin
}

const held = "what depends on it is held"

// consequences are what it means that a table has no room.
var consequences = map[string]string{"catalogs": held, "packages": held, "versions": held, "records": held,
	"operators": held, "backstop": "the webhooks alone hold the rest",
	"deletion": "not all that it names is protected from deletion", "escapes": "the rest is forgotten at the next restart"}

// Full reports what a part of a table of a controller with one worker has no room for, in metric, events and log. A part
// has a limit of its own.
func (s *Shared) Full(table, part string, left []fair.Origin) {
	key := [2]string{table, part}
	before := s.left[key]
	if slices.Equal(before, left) {
		return
	}
	if s.left == nil {
		s.left = map[[2]string][]fair.Origin{}
	}
	if s.left[key] = left; len(left) == 0 {
		delete(s.left, key)
	}
	s.Metrics.left.WithLabelValues(table).Add(float64(len(left) - len(before)))
	names, consequence := []string(nil), consequences[table]
	for i, o := range left {
		names = append(names, o.String())
		if o.UID == "" || i >= maxLeft {
			continue
		}
		regarding := verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: o.Namespace, Name: o.Name}.Reference()
		regarding.UID = types.UID(o.UID)
		s.Events.Record(events.Event{Regarding: *regarding, Reason: events.TableFull, Action: events.Update, Warning: true,
			Note: "the table of " + table + " has no room for all that this policy needs, and " + consequence +
				": have fewer or shorter policies in namespace " + text.Name(o.Namespace)})
	}
	if len(names) > 0 {
		s.Log.Info("table full", "table", table, "part", part, "left", text.Names(names, maxLeft), "consequence", consequence)
	}
}
