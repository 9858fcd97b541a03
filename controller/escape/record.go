package escape

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	// maxRecords bounds the records in the Lease; further ones are counted and reported until the next restart.
	maxRecords = 100
	// maxMessage bounds a message, in bytes.
	maxMessage = 512
)

// record is one ClusterServiceVersion that admission would have refused.
type record struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Reasons   []reason  `json:"reasons"`
}

// reason is why one policy refuses it.
type reason struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Generation is that of the policy; 0 if its verdict depends on more than its spec, or if it only holds.
	Generation int64  `json:"generation,omitempty"`
	Message    string `json:"message"`
}

func (r *reason) guard() verdict.PolicyRef {
	return verdict.PolicyRef{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

func (r *record) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

func (r *record) by(kind string) bool {
	return slices.ContainsFunc(r.Reasons, func(why reason) bool { return why.Kind == kind })
}

// message joins the reasons.
func (r *record) message() string {
	text := r.Name + " was installed while Opgate was not running, and is not allowed: "
	for i, why := range r.Reasons {
		if i > 0 {
			text += "; "
		}
		text += why.Message
	}
	return text
}

// reasonsOf returns the records of reasons.
func reasonsOf(escapes []rules.Escape) []reason {
	var reasons []reason
	for _, e := range escapes {
		why := reason{Kind: e.Source.Kind, Namespace: e.Source.Namespace, Name: e.Source.Name,
			Message: text.Truncate(e.Message, maxMessage)}
		if e.Deny {
			why.Generation = e.Generation
		}
		reasons = append(reasons, why)
	}
	return reasons
}

// Records are the ClusterServiceVersions that admission would have refused, as known to the leader. They are stored in
// the Lease, and are safe for concurrent use.
type Records struct {
	lease *manager.Lease

	mu  sync.Mutex
	all map[types.NamespacedName]record
}

// NewRecords returns the records in a Lease, which are read when this replica has acquired it, so that no status is
// written without them. Metrics count them.
func NewRecords(lease *manager.Lease, metrics *Metrics, log logr.Logger) *Records {
	r := &Records{lease: lease}
	lease.OnAcquired(func(annotations map[string]string) {
		var records []record
		if text := annotations[metakey.UnreviewedInstalls]; text != "" {
			if err := json.Unmarshal([]byte(text), &records); err != nil {
				log.Error(err, "records of escapes cannot be read, starting without", "lease", manager.LeaseName,
					"annotation", metakey.UnreviewedInstalls)
				records = nil
			}
		}
		r.replace(records)
		metrics.set(records)
	})
	return r
}

// save writes records to the Lease.
func (r *Records) save(ctx context.Context, records []record) error {
	if len(records) == 0 {
		return r.lease.Annotate(ctx, metakey.UnreviewedInstalls, "")
	}
	text, err := json.Marshal(records)
	if err != nil {
		return err
	}
	return r.lease.Annotate(ctx, metakey.UnreviewedInstalls, string(text))
}

// ByConstraint returns the number of ClusterServiceVersions that a Constraint refuses.
func (r *Records) ByConstraint(name string) int {
	n := 0
	for _, one := range r.list() {
		if slices.ContainsFunc(one.Reasons, func(why reason) bool {
			return why.Kind == verdict.KindConstraint &&
				why.Name == name
		}) {
			n++
		}
	}
	return n
}

// ByPolicy returns one sentence for each that an OperatorPolicy refuses, sorted by name.
func (r *Records) ByPolicy(namespace, name string) []string {
	var messages []string
	for _, one := range r.list() {
		one.Reasons = slices.DeleteFunc(slices.Clone(one.Reasons), func(why reason) bool {
			return why.Kind != verdict.KindOperatorPolicy || why.Namespace != namespace || why.Name != name
		})
		if len(one.Reasons) > 0 {
			messages = append(messages, one.message())
		}
	}
	return messages
}

func (r *Records) list() []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []record
	for _, one := range r.all {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (r *Records) get(key types.NamespacedName) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.all[key]
	return one, ok
}

func (r *Records) replace(all []record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = map[types.NamespacedName]record{}
	for _, one := range all {
		r.all[one.key()] = one
	}
}
