package verdict

// Disposition is the result for one ClusterServiceVersion of a plan.
type Disposition int

const (
	// Ungoverned CSVs belong to a package that no enforcing policy allows or forbids: a user may approve them.
	Ungoverned Disposition = iota
	// Required CSVs are ungoverned, but an allowed one needs them (OLM added them).
	Required
	// Allowed CSVs are allowed by every enforcing policy of their package.
	Allowed
	// Held CSVs wait for something; that includes those of an unknown package.
	Held
	// Denied CSVs are refused.
	Denied
)

// String returns the word used in explanations.
func (s Disposition) String() string {
	return [...]string{"ungoverned", "required", "allowed", "held", "denied"}[s]
}

// CSV is the verdict on one ClusterServiceVersion of a plan.
type CSV struct {
	CSV string
	// Package and Version are empty if not known.
	Package, Version string
	// Release tells bundles of one version apart; empty if there is none.
	Release     string
	Disposition Disposition
	// By names the policies that allow it, or the CSV that requires it.
	By []string
	// Because has the messages of the reasons for which it is Held or Denied, in no particular order.
	Because []string
}
