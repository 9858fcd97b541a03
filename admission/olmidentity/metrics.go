package olmidentity

import "github.com/prometheus/client_golang/prometheus"

// collector shows an identity as one sample.
type collector struct {
	identity *Identity
	trusted  *prometheus.Desc
}

// NewCollector returns the metric opgate_olm_identity_trusted. There is one sample at a time, with the reason that counts.
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
