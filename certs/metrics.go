package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics report when certificates expire and whether the API server trusts them.
type Metrics struct {
	registry     prometheus.Registerer
	registration *prometheus.GaugeVec
	selector     *prometheus.GaugeVec
}

// NewMetrics registers the metrics of certificates.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{registry: registry, registration: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "opgate_webhook_registration",
		Help: "Whether an object through which the API server calls Opgate exists, has its rules and trusts its certificate (1) or not (0).",
	}, []string{"object"}), selector: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "opgate_webhook_selector_changed",
		Help: "Whether a namespaceSelector of a webhook configuration goes by other labels than the name of the namespace (1), which exempts namespaces, or not (0).",
	}, []string{"object"})}
	registry.MustRegister(m.registration, m.selector)
	return m
}

// Serving reports when the serving certificate of a source expires.
func (m *Metrics) Serving(source Source) {
	m.expiration("serving", func() time.Time { return expiry(source) })
}

// expiration reports when a certificate expires, evaluated at each scrape.
func (m *Metrics) expiration(certificate string, end func() time.Time) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "opgate_certificate_expiration_timestamp_seconds",
		Help:        "Seconds since 1970 at which the certificate expires; 0 while there is none.",
		ConstLabels: prometheus.Labels{"certificate": certificate},
	}, func() float64 {
		if t := end(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	}))
}

// number is the value of a metric that is 1 or 0.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
