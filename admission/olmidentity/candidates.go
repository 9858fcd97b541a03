package olmidentity

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// maxCandidates bounds the users in the metric; others is the label of all further ones.
	maxCandidates = 4
	others        = "other"
	// maxAnswers bounds the remembered answers, answerLifetime is how long one counts.
	maxAnswers     = 64
	answerLifetime = time.Minute
)

// Candidates are users that write what OLM writes, in its form, but are not configured as OLM: on hosted control planes
// OLM authenticates as an administrator. The form is a hint for people, and never a reason to trust: anyone can imitate
// it. It is safe for concurrent use.
type Candidates struct {
	account Account
	writes  *prometheus.CounterVec
	log     logr.Logger
	// entitled is whether a user may escalate ClusterRoles.
	entitled *cache.LRUExpireCache

	mu    sync.Mutex
	users []string // in the metric
}

// NewCandidates returns the candidates besides a configured account, and registers their metric.
func NewCandidates(account Account, registry prometheus.Registerer, log logr.Logger) *Candidates {
	c := &Candidates{account: account, log: log, entitled: cache.NewLRUExpireCache(maxAnswers),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "opgate_olm_identity_candidate_writes_total",
			Help: "Total number of writes in the form of OLM's by users that could be OLM and are not configured as it, by identity and kind of object.",
		}, []string{"identity", "kind"})}
	c.writes.WithLabelValues(others, "installplan") // from 0, so that the first one is an increase
	registry.MustRegister(c.writes)
	return c
}

// Possible reports whether a user could be configured as OLM, as far as its name shows.
func (c *Candidates) Possible(username string) bool {
	_, err := Parse(username)
	return err == nil && username != c.account.Username()
}

// Entitled reports whether a user may escalate ClusterRoles, as OLM may: users who may not, such as tenants, are no
// candidates. An answer of ask is remembered for a while; after an error the user is none.
func (c *Candidates) Entitled(user *authenticationv1.UserInfo, ask func() (bool, error)) bool {
	groups := slices.Sorted(slices.Values(user.Groups))
	key := fmt.Sprintf("%q %q %q", user.Username, user.UID, groups)
	if known, ok := c.entitled.Get(key); ok {
		return known.(bool)
	}
	may, err := ask()
	if err != nil {
		c.log.V(1).Info("rights of a user not known", "user", user.Username, "error", err.Error())
		return false
	}
	c.entitled.Add(key, may, answerLifetime)
	return may
}

// Wrote counts a write by a candidate, and logs the first one of each user who has a label of the metric.
func (c *Candidates) Wrote(username, kind, object string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	label, known := username, slices.Contains(c.users, username)
	switch {
	case known:
	case len(c.users) < maxCandidates:
		c.users = append(c.users, username)
		c.log.Info("user writes as OLM does, but is not configured as OLM", "user", username,
			"identity", c.account.Username(), "kind", kind, "object", object, "fix", c.Fix(username))
	default:
		label = others
	}
	c.writes.WithLabelValues(label, kind).Inc()
}

// Fix returns what makes a user count as OLM, and what that means.
func (c *Candidates) Fix(username string) string {
	return fmt.Sprintf("if OLM authenticates as %s, as on hosted control planes, set --olm-identity=%s (olm.identity=%s of the chart); "+
		"any user with these credentials then passes as OLM", username, username, username)
}

// Note returns the users that wrote as OLM does, for readiness; "" for none.
func (c *Candidates) Note() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.users) == 0 {
		return ""
	}
	return strings.Join(c.users, ", ") + " wrote as OLM does, but OLM is configured as " + c.account.Username()
}
