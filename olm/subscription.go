package olm

// Subscription is operators.coreos.com/v1alpha1 Subscription.
type Subscription struct {
	Metadata ObjectMeta         `json:"metadata"`
	Spec     SubscriptionSpec   `json:"spec"`
	Status   SubscriptionStatus `json:"status"`
}

// SubscriptionSpec holds plain strings only, so that it is comparable with ==.
type SubscriptionSpec struct {
	// Package is spec.name: the package subscribed to, not the name of the object.
	Package             string `json:"name"`
	Channel             string `json:"channel"`
	Source              string `json:"source"`
	SourceNamespace     string `json:"sourceNamespace"`
	StartingCSV         string `json:"startingCSV"`
	InstallPlanApproval string `json:"installPlanApproval"`
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
	// InstallPlan is the plan that installs CurrentCSV.
	InstallPlan struct {
		Name string `json:"name"`
	} `json:"installPlanRef"`
}

// StateUpgradePending is status.state while a plan for the Subscription is not complete: there is no ClusterServiceVersion of the name in
// CurrentCSV, not even a copy.
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
