package compliance

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
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
