package backstop

import (
	"strings"

	"github.com/opgate/opgate/olm"
)

// compileRange returns the intervals of a version range as "LOW,=,HIGH,=", for inRange. A bound is empty if there is
// none, and an equals sign follows one that belongs to the interval.
func compileRange(r *olm.VersionRange) []string {
	intervals := r.Intervals()
	columns := make([]string, len(intervals))
	for i, in := range intervals {
		columns[i] = strings.Join([]string{in.Low, inclusive(in.HasLow), in.High, inclusive(in.HasHigh)}, ",")
	}
	return columns
}

func inclusive(has bool) string {
	if has {
		return "="
	}
	return ""
}

// inRange is an expression that reports whether version s is in one of the intervals in row r.
const inRange = "r.filter(x, x.startsWith('" + prefixInterval +
	"')).map(x, x.substring(1).split(',')).exists(v, " +
	"(v[0] == '' || semver(s).compareTo(semver(v[0])) >= (v[1] == '=' ? 0 : 1)) && " +
	"(v[2] == '' || semver(s).compareTo(semver(v[2])) <= (v[3] == '=' ? 0 : -1)))"
