package olm

import "github.com/opgate/opgate/internal/apijson"

// Subscription is operators.coreos.com/v1alpha1 Subscription.
type Subscription struct {
	Metadata ObjectMeta         `json:"metadata"`
	Spec     SubscriptionSpec   `json:"spec"`
	Status   SubscriptionStatus `json:"status"`
}

// SubscriptionSpec is comparable with ==.
type SubscriptionSpec struct {
	// Package is spec.name: the package subscribed to, not the name of the object.
	Package             string `json:"name"`
	Channel             string `json:"channel"`
	Source              string `json:"source"`
	SourceNamespace     string `json:"sourceNamespace"`
	StartingCSV         string `json:"startingCSV"`
	InstallPlanApproval string `json:"installPlanApproval"`

	Config SubscriptionConfig `json:"config"`
}

// Catalog returns the catalog that the Subscription takes its package from.
func (s *Subscription) Catalog() Catalog {
	return Catalog{Namespace: s.Spec.SourceNamespace, Name: s.Spec.Source}
}

// SubscriptionStatus is the status that OLM writes.
type SubscriptionStatus struct {
	// CurrentCSV is the version that the Subscription is moving to, InstalledCSV the installed one.
	CurrentCSV   string `json:"currentCSV"`
	InstalledCSV string `json:"installedCSV"`
	State        string `json:"state"`
	LastUpdated  string `json:"lastUpdated"`
	// InstallPlan is the plan that installs CurrentCSV.
	InstallPlan struct {
		Name string `json:"name"`
	} `json:"installPlanRef"`
	Conditions SubscriptionConditions `json:"conditions"`
}

// SubscriptionCondition is an item of status.conditions. LastTransitionTime may be empty.
type SubscriptionCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	LastTransitionTime string `json:"lastTransitionTime"`
}

// SubscriptionConditions are only reported on: there are none if they are too large to be read, or of another type.
type SubscriptionConditions []SubscriptionCondition

// UnmarshalJSON counts the values first.
func (c *SubscriptionConditions) UnmarshalJSON(raw []byte) error {
	*c = nil
	if tooLargeToReport(raw) || apijson.Unmarshal(raw, (*[]SubscriptionCondition)(c)) != nil {
		*c = nil
	}
	return nil
}

// Condition returns the condition of a type, nil if there is none or it is not True: OLM's conditions are True for what
// is wrong or in progress.
func (s *Subscription) Condition(conditionType string) *SubscriptionCondition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == conditionType && c.Status == "True" {
			return c
		}
	}
	return nil
}

// Follows reports whether a Subscription has installed, or moves to, a ClusterServiceVersion.
func (s *Subscription) Follows(csv string) bool {
	return csv != "" && (s.Status.InstalledCSV == csv || s.Status.CurrentCSV == csv)
}

// StateUpgradePending is status.state while a plan for the Subscription is not complete: there is no
// ClusterServiceVersion of the name in CurrentCSV, not even a copy.
const StateUpgradePending = "UpgradePending"

// The values of installPlanApproval. OLM treats everything that is not exactly Manual, empty included, as Automatic.
const (
	ApprovalAutomatic = "Automatic"
	ApprovalManual    = "Manual"
)

// Catalog names a CatalogSource.
type Catalog struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}
