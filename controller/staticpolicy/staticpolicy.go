// Package staticpolicy reports whether the API server has loaded the admission policies of `opgate compile --static`,
// which are in no API.
package staticpolicy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/rules/backstop"
)

// Interval is the time between two probes.
const Interval = 5 * time.Minute

// Probe returns which set of static policies is in force at the API server that answers, "" if none is: a cluster with
// several control plane nodes loads its files on each. The dry run that it sends stores nothing either way.
func Probe(ctx context.Context, c client.Client, namespace string) (set string, err error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: backstop.ProbeLease}}
	err = c.Create(ctx, lease, client.DryRunAll)
	if err == nil {
		return "", nil
	}
	if _, answer, ok := strings.Cut(err.Error(), backstop.ProbeAnswer); ok && apierrors.IsForbidden(err) {
		set, _, _ = strings.Cut(answer, " ")
		return set, nil
	}
	return "", fmt.Errorf("probe static policies by a dry run of Lease %s/%s: %w", namespace, backstop.ProbeLease, err)
}

// Prober probes, and exports the result.
type Prober struct {
	client    client.Client
	namespace string
	log       logr.Logger
	loaded    *prometheus.GaugeVec
}

// NewProber registers the metric.
func NewProber(c client.Client, namespace string, log logr.Logger, registry prometheus.Registerer) *Prober {
	p := &Prober{client: c, namespace: namespace, log: log, loaded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "opgate_static_policies_in_force",
		Help: "Whether the API server has loaded the static admission policies of Opgate (1) or not (0), by set.",
	}, []string{"set"})}
	registry.MustRegister(p.loaded)
	return p
}

// Start probes until the context ends.
func (p *Prober) Start(ctx context.Context) error {
	defer p.loaded.Reset()
	wait.UntilWithContext(ctx, p.probe, Interval)
	return nil
}

// probe keeps the last result if there is no answer.
func (p *Prober) probe(ctx context.Context) {
	set, err := Probe(ctx, p.client, p.namespace)
	if err != nil {
		p.log.Error(err, "It is not known whether static policies are in force")
		return
	}
	p.loaded.Reset()
	value := 1.0
	if set == "" {
		value = 0
		p.log.Info("The API server has no static policies of Opgate: any user who may delete webhook configurations opens the gate")
	}
	p.loaded.WithLabelValues(set).Set(value)
}
