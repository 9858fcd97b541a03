package olmidentity

import "github.com/prometheus/client_golang/prometheus"

// collector shows an identity as one sample.
type collector struct {
	identity *Identity
	trusted  *prometheus.Desc
}

// NewCollector returns the metric opgate_olm_identity_trusted. There is one sample at a time, with the reason that
// counts.
func NewCollector(identity *Identity) prometheus.Collector {
	return &collector{identity: identity, trusted: prometheus.NewDesc("opgate_olm_identity_trusted",
		"Whether the configured account of OLM is trusted (1) or not (0), by reason.", []string{"reason"}, nil)}
}

func (c *collector) Describe(out chan<- *prometheus.Desc) { out <- c.trusted }

func (c *collector) Collect(out chan<- prometheus.Metric) {
	reason, value := c.identity.State().Reason, 0.0
	if reason == Trusted {
		value = 1
	}
	out <- prometheus.MustNewConstMetric(c.trusted, prometheus.GaugeValue, value, string(reason))
}

// NewLastSeen returns the metric opgate_olm_identity_last_seen_timestamp_seconds: one sample, with the account as a
// label.
func NewLastSeen(identity *Identity) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_olm_identity_last_seen_timestamp_seconds",
		Help:        "Seconds since 1970 at which a review of a write by OLM was last answered by this replica; 0 before the first.",
		ConstLabels: prometheus.Labels{"identity": identity.Account().Username()},
	}, func() float64 { return float64(identity.seen.Load()) })
}
