package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics show when certificates end and whether the API server trusts them.
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

// Serving shows when the serving certificate of a source ends.
func (m *Metrics) Serving(source Source) {
	m.expiration("serving", func() time.Time { return expiry(source) })
}

// expiration shows when a certificate ends, as of when it is scraped.
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

// registered shows one object by which the API server calls us.
func (m *Metrics) registered(object string, trusting bool) {
	value := 0.
	if trusting {
		value = 1
	}
	m.registration.WithLabelValues(object).Set(value)
}

// unused takes back an object that does not make the API server call us at all.
func (m *Metrics) unused(object string) { m.registration.DeleteLabelValues(object) }

// stopped forgets what the replica that leads now shows.
func (m *Metrics) stopped() { m.registration.Reset() }
