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
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/grant"
)

// csvNamed returns a ClusterServiceVersion that is installed in the namespace, nil if it does not exist.
func (e *evaluation) csvNamed(name string) *olm.CSV {
	for _, c := range e.Namespace.CSVs() {
		if name != "" && c.Metadata.Name == name && c.Metadata.Labels.CopiedFrom == "" {
			return c
		}
	}
	return nil
}

// installed returns the ClusterServiceVersion that the Subscription has installed. Without one, it returns one of the
// package that the Subscription does not refer to, as unlinked: it runs, so its state is reported.
func (e *evaluation) installed() (csv *olm.CSV, unlinked bool) {
	if e.subscription != nil {
		if csv := e.csvNamed(e.subscription.Status.InstalledCSV); csv != nil {
			return csv, false
		}
	}
	for _, c := range e.Namespace.CSVs() {
		if c.Metadata.Labels.CopiedFrom == "" && c.Bundle.Package != "" && c.Bundle.Package == e.wanted.name &&
			(csv == nil || c.Status.Phase == phaseSucceeded) {
			csv = c
		}
	}
	// OLM sets installedCSV after it has written the CSV
	return csv, csv != nil && (e.subscription == nil || e.subscription.Status.CurrentCSV != csv.Metadata.Name)
}

// installedVersion returns the name for the status, "" if nothing is installed: the version that runs. That is the
// earlier one while OLM parks its replacement, which the Subscription already names as installed.
func (e *evaluation) installedVersion() string {
	if e.csv == nil {
		return ""
	}
	if e.csv.Status.Phase == phasePending {
		for _, c := range e.Namespace.CSVs() {
			if c.Status.Phase == phaseReplacing && c.Metadata.Labels.CopiedFrom == "" && c.Bundle.Package != "" &&
				c.Bundle.Package == e.csv.Bundle.Package {
				return c.Metadata.Name
			}
		}
	}
	return e.csv.Metadata.Name
}

// The phases of a ClusterServiceVersion that count. One in phase Replacing runs until its replacement, Pending at
// first, has succeeded.
const (
	phaseSucceeded = "Succeeded"
	phasePending   = "Pending"
	phaseFailed    = "Failed"
	phaseReplacing = "Replacing"
)

// installedCSV reports whether the installed version is allowed and healthy.
func (e *evaluation) installedCSV() Condition {
	if e.csv == nil {
		missing := olm.ObjectMeta{Namespace: e.wanted.namespace, Name: e.wanted.name}
		message := "the required ClusterServiceVersion was not found"
		if sub := e.subscription; sub != nil {
			missing.Name = sub.Metadata.Name
			message += ": the Subscription " + named(&sub.Metadata) + " has not installed one"
			if sub.Status.InstalledCSV != "" {
				message = "the required ClusterServiceVersion " + text.Name(sub.Status.InstalledCSV) + " was not found"
			}
		}
		message += e.elsewhere()
		return condition(TypeClusterServiceVersion, metav1.ConditionFalse, "ClusterServiceVersionMissing", message,
			e.related(kindClusterServiceVersion, missing, policyv1beta2.NonCompliant, relatedMissing))
	}
	f := e.describeCSV(e.csv)
	f.Message += e.besides()
	if e.unlinked && f.Reason != reasonUnapproved && f.Reason != reasonChanged {
		f.Status, f.Reason = metav1.ConditionFalse, "ClusterServiceVersionMissing"
		f.Message = "no Subscription refers to ClusterServiceVersion " + text.Name(e.csv.Metadata.Name) +
			", which is installed in namespace " + e.wanted.namespace
	}
	return f
}

const (
	reasonUnapproved = "UnapprovedVersion"
	reasonChanged    = "ContentsChanged"
)

// describeCSV describes the state of a ClusterServiceVersion. A version that is not allowed is reported, but
// never removed: the policy restricts what may be installed, not what must be removed.
func (e *evaluation) describeCSV(csv *olm.CSV) Condition {
	name := "ClusterServiceVersion (" + text.Name(csv.Metadata.Name) + ")"
	if ok, accepted := bundle.Covers(e.Rules, csv.Metadata.Name, csv.Bundle.Version, e.Now); !ok {
		reason := name + " is not an approved version"
		return condition(TypeClusterServiceVersion, metav1.ConditionFalse, reasonUnapproved, reason+": "+accepted,
			e.related(kindClusterServiceVersion, csv.Metadata, policyv1beta2.NonCompliant, reason))
	}
	if e.Namespace.Drifted(csv.Metadata.Name) {
		reason := name + " differs from what its InstallPlan installed"
		message := reason + ": its spec was changed after OLM installed it, or by another account before; write back the spec that is recorded of it, " +
			"or delete it together with its Subscription so that OLM reinstalls it"
		if e.enforced {
			message += "; until then the policy approves no upgrade of it"
		}
		return condition(TypeClusterServiceVersion, metav1.ConditionFalse, reasonChanged, message,
			e.related(kindClusterServiceVersion, csv.Metadata, policyv1beta2.NonCompliant, reason))
	}
	healthy := csv.Status.Phase == phaseSucceeded
	reason := reasonOr(csv.Status.Reason, csv.Status.Phase)
	message := cmp.Or(text.Truncate(csv.Status.Message, foreignText), "its phase is "+
		cmp.Or(text.Truncate(csv.Status.Phase, 100), "not known"))
	if len(csv.Status.Unmet) > 0 {
		message += ": " + sentences(csv.Status.Unmet)
	}
	switch {
	case healthy:
	case e.waitsForDeployments(csv):
		healthy, message = true, message+notImpacted
	case e.tolerates(TypeClusterServiceVersion):
		healthy, message = true, message+e.upgrade.tolerated()
	}
	if r := e.Namespace.Recorded(csv.Metadata.Name); r != nil && r.Adopted {
		message += "; its contents are accepted: they were installed before Opgate recorded what is installed"
	}
	return condition(TypeClusterServiceVersion, statusIf(healthy), reason, name+" - "+message,
		e.related(kindClusterServiceVersion, csv.Metadata, compliantIf(healthy), reason))
}

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

const (
	reasonNoCRDs        = "RelevantCRDNotFound"
	reasonNoDeployments = "NoRelevantDeployments"
)

// crds lists the CustomResourceDefinitions of the operator. An operator without any is compliant.
func (e *evaluation) crds() Condition {
	f := Condition{Type: TypeCustomResourceDefinition, Status: metav1.ConditionTrue}
	if len(e.CRDs) == 0 {
		f.Reason, f.Message = reasonNoCRDs, "no CustomResourceDefinitions were found for the operator"
		f.Related = e.nothing(kindCustomResourceDefinition, relatedNoCRDs)
		return f
	}
	f.Reason, f.Message = "RelevantCRDFound", "there are CustomResourceDefinitions present for the operator"
	for _, crd := range e.CRDs {
		f.Related = append(f.Related, e.related(kindCustomResourceDefinition, crd.ObjectMeta, policyv1beta2.Compliant,
			relatedFound))
	}
	return f
}

// deployments reports whether the Deployments of the ClusterServiceVersion are available. A missing one counts
// as unavailable.
func (e *evaluation) deployments() Condition {
	f := Condition{Type: TypeDeployment, Status: metav1.ConditionTrue, Reason: reasonNoDeployments}
	switch {
	case e.Grants.Missing(grant.Deployments) != "":
		f.Message = "the health of Deployments is not known: " + e.Grants.Missing(grant.Deployments)
	case e.csv == nil:
		f.Message = "there are no relevant Deployments because the ClusterServiceVersion is missing"
	case len(e.csv.Status.Deployments) == 0:
		f.Message = "there are no relevant Deployments because the ClusterServiceVersion " +
			text.Name(e.csv.Metadata.Name) + " has none"
	default:
		return e.health(slices.Compact(slices.Sorted(slices.Values(e.csv.Status.Deployments))))
	}
	f.Related = e.nothing(kindDeployment, relatedNoDeployments)
	return f
}

func (e *evaluation) health(names []string) Condition {
	tolerated, until := e.config.DeploymentsUnavailable == policyv1beta2.ConfigCompliant, ""
	down := relatedDeploymentDown
	if tolerated {
		down += notImpacted
	} else if tolerated = e.tolerates(TypeDeployment); tolerated {
		until = e.upgrade.tolerated()
	}
	f := Condition{Type: TypeDeployment, Status: statusIf(tolerated)}
	var unavailable, missing, stalled []string
	for _, name := range names {
		d, ok := e.Deployments[name]
		switch {
		case !ok:
			missing = append(missing, name)
			f.Related = append(f.Related, e.related(kindDeployment,
				olm.ObjectMeta{Namespace: e.wanted.namespace, Name: name}, compliantIf(tolerated), relatedMissing))
		case !d.Available:
			unavailable = append(unavailable, name)
			if d.Stalled {
				stalled = append(stalled, name)
			}
			f.Related = append(f.Related, e.related(kindDeployment, d.ObjectMeta, compliantIf(tolerated), down))
		default:
			f.Related = append(f.Related, e.related(kindDeployment, d.ObjectMeta, policyv1beta2.Compliant,
				relatedDeploymentUp))
		}
	}
	switch {
	case len(missing) == len(names):
		f.Reason, f.Message = "NoExistingDeployments", "none of the operator's Deployments exist: "+
			text.Names(missing, maxListed)+until
	case len(missing)+len(unavailable) > 0:
		f.Reason, f.Message = "DeploymentsUnavailable", "the operator's Deployments are not all available"
		if len(unavailable) > 0 {
			f.Message += "; without their minimum availability: " + text.Names(unavailable, maxListed)
		}
		if len(missing) > 0 {
			f.Message += "; missing: " + text.Names(missing, maxListed)
		}
		if len(stalled) > 0 {
			f.Message += "; beyond their progress deadline: " + text.Names(stalled, maxListed)
		}
		f.Message += until
	default:
		f.Status, f.Reason = metav1.ConditionTrue, "DeploymentsAvailable"
		f.Message = "All operator Deployments have their minimum availability"
	}
	return f
}
