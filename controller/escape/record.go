package escape

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// maxRecords bounds the records in the Lease; further ones are counted and reported until the next restart.
const maxRecords = 100

// record is one ClusterServiceVersion that admission would have refused.
type record struct {
	UID       types.UID      `json:"uid"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Reasons   []rules.Escape `json:"reasons"`
}

func (r *record) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// message joins the reasons.
func (r *record) message() string {
	var reasons []string
	for _, why := range r.Reasons {
		reasons = append(reasons, why.Message)
	}
	return r.Name + " was installed while Opgate was not running, and is not allowed: " + strings.Join(reasons, "; ")
}

// Records are the ClusterServiceVersions that admission would have refused, as known to the leader. They are stored in
// the Lease, exported while this replica leads, and safe for concurrent use.
type Records struct {
	lease *manager.Lease
	gauge *prometheus.GaugeVec
	all   atomic.Pointer[[]record]
}

// NewRecords returns the records in a Lease, which are read when this replica has acquired it, so that no status is
// written without them, and registers their metric.
func NewRecords(lease *manager.Lease, registry prometheus.Registerer, log logr.Logger) *Records {
	r := &Records{lease: lease, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_escapes",
		Help: "Number of ClusterServiceVersions that were installed while Opgate was not running and are not allowed, by kind of what refuses them (policy, constraint)."},
		[]string{"kind"})}
	registry.MustRegister(r.gauge)
	r.all.Store(&[]record{})
	lease.OnAcquired(func(annotations map[string]string) {
		var records []record
		if text := annotations[metakey.UnreviewedInstalls]; text != "" {
			if err := json.Unmarshal([]byte(text), &records); err != nil {
				log.Error(err, "records of escapes cannot be read, starting without", "lease", manager.LeaseName,
					"annotation", metakey.UnreviewedInstalls)
				records = nil
			}
		}
		r.all.Store(&records)
		r.export()
	})
	return r
}

// ByConstraint returns the number of ClusterServiceVersions that a Constraint refuses.
func (r *Records) ByConstraint(name string) int {
	return len(r.refused(func(by verdict.PolicyRef) bool { return by.Kind == verdict.KindConstraint && by.Name == name }))
}

// ByPolicy returns one sentence for each that an OperatorPolicy refuses, sorted by name.
func (r *Records) ByPolicy(namespace, name string) (messages []string) {
	policy := verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: namespace, Name: name}
	for _, one := range r.refused(func(by verdict.PolicyRef) bool { return by == policy }) {
		messages = append(messages, one.message())
	}
	slices.Sort(messages)
	return messages
}

// refused returns the records with only the reasons of some policies and Constraints.
func (r *Records) refused(by func(verdict.PolicyRef) bool) (some []record) {
	for _, one := range *r.all.Load() {
		one.Reasons = slices.DeleteFunc(slices.Clone(one.Reasons), func(why rules.Escape) bool { return !by(why.PolicyRef) })
		if len(one.Reasons) > 0 {
			some = append(some, one)
		}
	}
	return some
}

func (r *Records) get(key types.NamespacedName) (one record, ok bool) {
	all := *r.all.Load()
	if i := slices.IndexFunc(all, func(one record) bool { return one.key() == key }); i >= 0 {
		return all[i], true
	}
	return record{}, false
}

// export sets the metric.
func (r *Records) export() {
	for label, kind := range map[string]string{"policy": verdict.KindOperatorPolicy, "constraint": verdict.KindConstraint} {
		r.gauge.WithLabelValues(label).Set(float64(len(r.refused(func(by verdict.PolicyRef) bool { return by.Kind == kind }))))
	}
}

// replace stores a record in place of the one of its ClusterServiceVersion, or none if it has no reasons, and returns for
// how many the Lease has no room. There is one worker.
func (r *Records) replace(ctx context.Context, one record) (left int, err error) {
	all := slices.DeleteFunc(slices.Clone(*r.all.Load()), func(other record) bool { return other.key() == one.key() })
	if len(one.Reasons) > 0 {
		all = append(all, one)
	}
	claims := make([]fair.Claim[int], len(all))
	for i := range all {
		claims[i] = fair.Claim[int]{Origin: fair.Origin{Namespace: all[i].Namespace, Name: all[i].Name}, Row: i, Weight: 1}
	}
	kept, out := fair.Within(claims, maxRecords)
	text, stored := []byte(nil), []record(nil)
	for _, i := range fair.Rows(kept) {
		stored = append(stored, all[i])
	}
	if len(stored) > 0 {
		if text, err = json.Marshal(stored); err != nil {
			return 0, err
		}
	}
	if err := r.lease.Annotate(ctx, metakey.UnreviewedInstalls, string(text)); err != nil {
		return len(out), err
	}
	r.all.Store(&all)
	r.export()
	return len(out), nil
}
