package olm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// maxRelease is the longest release in bytes, as in the schema of ClusterServiceVersions.
const maxRelease = 20

// parseRelease parses a release, which is built like a pre-release: identifiers of letters, digits and hyphens with
// dots between them, and numbers without leading zeros (NewRelease in operator-registry alpha/model). An empty text is
// no release.
func parseRelease(written string) (release []semver.PRVersion, err error) {
	if written == "" {
		return nil, nil
	}
	if len(written) > maxRelease {
		return nil, fmt.Errorf("has %d bytes, at most %d are a release", len(written), maxRelease)
	}
	for identifier := range strings.SplitSeq(written, ".") {
		parsed, err := semver.NewPRVersion(identifier)
		if err != nil {
			return nil, errors.New("is not a release such as 2 or alpha.1")
		}
		release = append(release, parsed)
	}
	return release, nil
}

// readRelease reads the JSON of a release. It is "" if there is none.
func readRelease(raw []byte) (release string, err error) {
	if len(raw) > 0 {
		if err := apijson.Unmarshal(raw, &release); err != nil {
			return "", errors.New("the release is not text")
		}
	}
	if _, err := parseRelease(release); err != nil {
		return "", fmt.Errorf("release %s %w", text.Quote(release), err)
	}
	return release, nil
}

// Release returns the release of a bundle: stated, which its property olm.package has, else spec.release. Catalogs that
// were rendered by an older program have it only there, and an older API server has dropped it there. A problem is why
// there is none that both agree on, as a clause.
func (s *CSVSpec) Release(stated string) (release, problem string) {
	switch {
	case s == nil || s.release == "" && s.releaseFault == "":
		return stated, ""
	case s.releaseFault != "":
		return "", "in spec of its ClusterServiceVersion, " + s.releaseFault
	case stated != "" && stated != s.release:
		return "", "its property " + TypePackage + " says release " + stated +
			" and spec.release of its ClusterServiceVersion says " + s.release
	}
	return s.release, ""
}

// VersionText returns a version with its release, as messages show it: "1.2.3 release 2". A hyphen between them would
// read as a pre-release, which comes before the version and not after it.
func VersionText(version, release string) string {
	if release == "" {
		return version
	}
	return strings.TrimSpace(version + " release " + release)
}

// OlderVersion reports whether a version is older than another; false for what is no version. Of one version,
// releases are compared that are written as build metadata (1.2.3+2), in the older form: one without is the oldest.
// What is no release does not count.
func OlderVersion(version, than string) bool {
	a, err := semver.ParseTolerant(version)
	if err != nil {
		return false
	}
	b, err := semver.ParseTolerant(than)
	if err != nil {
		return false
	}
	if !a.EQ(b) {
		return a.LT(b)
	}
	was, err := parseRelease(strings.Join(a.Build, "."))
	if err != nil {
		return false
	}
	is, err := parseRelease(strings.Join(b.Build, "."))
	return err == nil && olderRelease(was, is)
}

// olderRelease compares releases of one version as OLM's catalogs do (Release.Compare in operator-registry
// alpha/model).
func olderRelease(release, than []semver.PRVersion) bool {
	if len(release) == 0 || len(than) == 0 {
		return len(than) > len(release)
	}
	return slices.CompareFunc(release, than, semver.PRVersion.Compare) < 0
}
