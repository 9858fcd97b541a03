package constraint

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// MaxOpenShift returns the highest OpenShift version that the bundle supports, as MAJOR.MINOR; empty if it specifies
// none. The problem is why it cannot be parsed. It is as tolerant as OLM's maxOpenShiftVersion
// (operator-lifecycle-manager pkg/controller/operators/openshift/helpers.go): it accepts a number or additional quotes,
// but not two such properties or a patch version.
func (b *Bundle) MaxOpenShift() (version string, problem string) {
	found := false
	for _, p := range b.Properties {
		if p.Type != olm.TypeMaxOpenShift {
			continue
		}
		if found {
			return "", olm.TypeMaxOpenShift + " is set more than once; one is accepted"
		}
		found = true
		version, problem = minorVersion(strings.Trim(string(p.Raw), `"`))
	}
	if problem != "" {
		return "", fmt.Sprintf("%s %s", olm.TypeMaxOpenShift, problem)
	}
	return version, ""
}

// minorVersion parses MAJOR.MINOR.
func minorVersion(written string) (version string, problem string) {
	if written == "" {
		return "", "is empty; MAJOR.MINOR such as 4.19 is required"
	}
	v, err := semver.ParseTolerant(written)
	if err != nil {
		return "", fmt.Sprintf("%q is not a version; MAJOR.MINOR such as 4.19 is required",
			text.Truncate(written, valueShown))
	}
	if !v.EQ(semver.Version{Major: v.Major, Minor: v.Minor}) {
		return "", fmt.Sprintf("%q is more than MAJOR.MINOR such as 4.19", text.Truncate(written, valueShown))
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor), ""
}
