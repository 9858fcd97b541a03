package facts

import (
	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// TooOldFor returns how the cluster conflicts with spec.minKubeVersion of a ClusterServiceVersion, and what would be
// accepted; "" if it does not, or if its version is not known.
func (c *Cluster) TooOldFor(minKube string) (what, accepted string) {
	has, err := semver.ParseTolerant(c.Version)
	if minKube == "" || err != nil {
		return "", "" // an unparsable version of the API server is not the bundle's fault
	}
	needs, err := semver.ParseTolerant(minKube)
	switch {
	case err != nil:
		return "has minKubeVersion " + text.Quote(minKube) + ", which is not a version,",
			"OLM would install it, but it would stay Pending"
	case has.LT(needs):
		return "needs Kubernetes " + minKube + " or newer", "this cluster has " + c.Version +
			"; OLM would install it, but it would stay Pending"
	}
	return "", ""
}

// TooNewFor returns how the cluster conflicts with the newest OpenShift that a bundle is for, and what would be
// accepted; "" if it does not, or if it is no OpenShift.
func (c *Cluster) TooNewFor(maxOpenShift string) (what, accepted string) {
	has, err := semver.ParseTolerant(c.OpenShift)
	if err != nil {
		return "", ""
	}
	most, err := semver.ParseTolerant(maxOpenShift)
	if err != nil || !olm.NewerOpenShift(has, most) {
		return "", ""
	}
	return "is for OpenShift " + maxOpenShift + " at most", "this cluster has " + c.OpenShift
}
