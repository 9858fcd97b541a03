package compliance

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
)

// upgradeTime is how long an upgrade may take before what is not up counts.
const upgradeTime = 10 * time.Minute

// upgrade is a change from one version to another that OLM has begun and not finished.
type upgrade struct {
	from  string
	until time.Time
}

// upgrading returns the upgrade in which a ClusterServiceVersion replaces another one or is replaced; nil if there is
// none, if the new one has failed, takes too long or has to wait for the operator's own consent, or if the policy
// counts upgrades. Both exist until the new one has succeeded.
func (e *evaluation) upgrading(csv *olm.CSV) *upgrade {
	if csv == nil || !e.mayProgress() {
		return nil
	}
	var versions []*olm.CSV
	for _, c := range e.csvs() {
		if e.from(c) != e.from(csv) || c.Bundle.Package != e.wanted.name && c.Metadata.Name != csv.Metadata.Name {
			continue
		}
		if origin := e.Origins[c]; origin != nil {
			c = origin.CSV
		}
		versions = append(versions, c)
	}
	slices.SortStableFunc(versions, func(a, b *olm.CSV) int {
		return cmp.Or(cmp.Compare(replaced(b), replaced(a)),
			cmp.Compare(a.Metadata.CreationTimestamp, b.Metadata.CreationTimestamp))
	})
	if len(versions) < 2 {
		return nil
	}
	newest, before := versions[len(versions)-1], versions[len(versions)-2]
	if newest.Status.Phase == phaseFailed || newest.Status.Reason == "OperatorConditionNotUpgradeable" {
		return nil
	}
	created, err := time.Parse(time.RFC3339, newest.Metadata.CreationTimestamp)
	until := created.Add(upgradeTime)
	if err != nil || !e.Now.Before(until) || slices.ContainsFunc(newest.Status.Deployments,
		func(name string) bool { return e.Deployments[name].Stalled }) {
		return nil
	}
	return &upgrade{from: before.Metadata.Name, until: until}
}

// replaced returns 1 if OLM has written that another ClusterServiceVersion replaces this one, else 0.
func replaced(c *olm.CSV) int {
	if c.Status.Phase == phaseReplacing || c.Status.Phase == "Deleting" {
		return 1
	}
	return 0
}

// tolerates reports whether a fault of a condition type does not count while an upgrade is in progress. One that counts
// already, such as that of a new version that OLM tries again, counts until it is gone.
func (e *evaluation) tolerates(conditionType string) bool {
	if e.upgrade == nil {
		return false
	}
	previous := meta.FindStatusCondition(e.Policy.Status.Conditions, conditionType)
	return previous == nil || previous.Status != metav1.ConditionFalse
}

// tolerated says, to follow a sentence, until when a fault does not count.
func (u *upgrade) tolerated() string {
	return "; the upgrade from " + text.Name(u.from) + " is in progress, and this counts from " +
		u.until.UTC().Format(time.RFC3339) + " on"
}

// wake returns an outcome that is evaluated again when the upgrade in progress has taken too long.
func (e *evaluation) wake(out Outcome) Outcome {
	if e.upgrade != nil {
		out.again(e.upgrade.until.Sub(e.Now) + time.Second)
	}
	return out
}

// waitsForDeployments reports whether a ClusterServiceVersion has not succeeded because of Deployments whose health
// does not count for the policy. OLM tries to install such a one again and again, with these reasons.
func (e *evaluation) waitsForDeployments(csv *olm.CSV) bool {
	if e.config.DeploymentsUnavailable != policyv1beta2.ConfigCompliant || e.Grants.Missing(grant.Deployments) != "" {
		return false
	}
	switch csv.Status.Reason {
	case "ComponentUnhealthy", "NeedsReinstall", "AllRequirementsMet", "InstallSucceeded", "InstallWaiting",
		"InstallCheckFailed":
		return slices.ContainsFunc(csv.Status.Deployments,
			func(name string) bool { return !e.Deployments[name].Available })
	}
	return false
}
