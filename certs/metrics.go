package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics report when certificates expire and whether the API server trusts them.
type Metrics struct {
	registry     prometheus.Registerer
	registration *prometheus.GaugeVec
}

// NewMetrics registers the metrics of certificates.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{registry: registry, registration: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "opgate_webhook_registration",
		Help: "Whether an object through which the API server calls Opgate exists and trusts its certificate (1) or not (0).",
	}, []string{"object"})}
	registry.MustRegister(m.registration)
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

// registered reports whether an object through which the API server calls us trusts our certificate.
func (m *Metrics) registered(object string, trusting bool) {
	value := 0.
	if trusting {
		value = 1
	}
	m.registration.WithLabelValues(object).Set(value)
}

// unused removes an object through which the API server does not call us.
func (m *Metrics) unused(object string) { m.registration.DeleteLabelValues(object) }

// stopped removes the samples, which the next leader reports.
func (m *Metrics) stopped() { m.registration.Reset() }
