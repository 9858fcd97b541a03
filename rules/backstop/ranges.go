package backstop

import (
	"strings"

	"github.com/opgate/opgate/olm"
)

// compileRange returns a literal with the intervals of a version range, for inRange.
func compileRange(r *olm.VersionRange) string {
	intervals := r.Intervals()
	literals := make([]string, len(intervals))
	for i, in := range intervals {
		literals[i] = quoteList([]string{in.Low, inclusive(in.HasLow), in.High, inclusive(in.HasHigh)})
	}
	return "[" + strings.Join(literals, ",") + "]"
}

func inclusive(has bool) string {
	if has {
		return "="
	}
	return ""
}

// inRange is an expression that reports whether a version, an expression, is in one of the intervals of a range.
func inRange(version, intervals string) string {
	return "(isSemver(" + version + ") && " + intervals + ".exists(v, " +
		"(v[0] == '' || semver(" + version + ").compareTo(semver(v[0])) >= (v[1] == '=' ? 0 : 1)) && " +
		"(v[2] == '' || semver(" + version + ").compareTo(semver(v[2])) <= (v[3] == '=' ? 0 : -1))))"
}
