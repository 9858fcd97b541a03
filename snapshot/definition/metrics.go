package definition

import "github.com/prometheus/client_golang/prometheus"

type collector struct {
	watcher *Watcher
	version *prometheus.Desc
}

// NewCollector returns the metric opgate_operatorpolicy_version_info, for a watcher that may be nil.
func NewCollector(w *Watcher) prometheus.Collector {
	return &collector{w, prometheus.NewDesc("opgate_operatorpolicy_version_info",
		"Whether OperatorPolicies are read in a version (1), by version; none while there is no definition.",
		[]string{"version"}, nil)}
}

func (c *collector) Describe(out chan<- *prometheus.Desc) { out <- c.version }

func (c *collector) Collect(out chan<- prometheus.Metric) {
	version := c.watcher.version()
	if version == "" {
		version = "none"
	}
	out <- prometheus.MustNewConstMetric(c.version, prometheus.GaugeValue, 1, version)
}
