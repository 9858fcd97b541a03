package operatorpolicy

import (
	"slices"
	"time"
)

// Age is spec.minimumAge with spec.urgent, prepared for judging. The zero value holds nothing.
type Age struct {
	// Least is how long a catalog has to have offered a version; 0 for any time.
	Least time.Duration
	// Text is the duration as the policy has it.
	Text string
	// urgent are the names that it does not hold.
	urgent []string
}

// Holds reports whether any plan may be held.
func (a *Age) Holds() bool { return a.Least > 0 }

// Skips reports whether spec.urgent names a ClusterServiceVersion, or it with the digest of its bundle image, which is
// "" if that is not known.
func (a *Age) Skips(csv, digest string) bool {
	return slices.Contains(a.urgent, csv) || digest != "" && slices.Contains(a.urgent, csv+"@"+digest)
}
