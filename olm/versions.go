package olm

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// VersionRange is a range of semantic versions with its source text.
type VersionRange struct {
	text string
	// alternatives are what "||" separates.
	alternatives []semver.Range
}

// maxComparisons bounds the comparisons of one alternative, so that the time to parse a range grows no faster than its
// length.
const maxComparisons = 100

// ParseVersionRange parses a range in the syntax that OLM uses for olm.package.required (blang/semver): ">=1.2.0
// <2.0.0", "1.2.x", "!1.2.3", "||" for or. A range that no version can satisfy is an error: as an allow-list it would
// block everything, which is surely not intended.
func ParseVersionRange(text string) (*VersionRange, error) {
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		return nil, fmt.Errorf("has a character that is not printable ASCII at byte %d", i)
	}
	if m := wildcardInSuffix.FindString(text); m != "" {
		return nil, fmt.Errorf("has %q, of which the parser takes the x or * for a wildcard: write another bound, such as <4.17.0-0", m)
	}
	// The parser silently drops terms of one character, and would parse ">=1.0.0 2" as ">=1.0.0". Only an operator
	// before a version may stand alone.
	terms := strings.Fields(text)
	for i, term := range terms {
		if len(term) == 1 && (i == len(terms)-1 || !slices.Contains([]string{"<", ">", "=", "!"}, term)) {
			return nil, fmt.Errorf("has %q, which is not a full version", term)
		}
	}
	r := &VersionRange{text: text}
	satisfiable := false
	for _, alternative := range alternatives(terms) {
		if len(alternative) > maxComparisons {
			return nil, fmt.Errorf("has an alternative of %d comparisons, at most %d are read", len(alternative),
				maxComparisons)
		}
		joined := strings.Join(alternative, " ")
		contains, err := semver.ParseRange(joined)
		if err != nil {
			return nil, errors.New("is not a version range") // the library's error repeats this three times
		}
		r.alternatives = append(r.alternatives, contains)
		// What a range accepts is a union of intervals, and each non-empty one contains its own lowest version: the smallest
		// of all versions, a version in the text, or the one right after it. Trying those is therefore enough.
		satisfiable = satisfiable || slices.ContainsFunc(bounds(joined),
			func(v semver.Version) bool { return contains(v) || contains(next(v)) })
	}
	if !satisfiable {
		return nil, errors.New("matches no version at all")
	}
	return r, nil
}

// alternatives splits the terms of a range at "||".
func alternatives(terms []string) (all [][]string) {
	for {
		i := slices.Index(terms, "||")
		if i < 0 {
			return append(all, terms)
		}
		all, terms = append(all, terms[:i]), terms[i+1:]
	}
}

// String returns the range as written.
func (r *VersionRange) String() string { return r.text }

// Contains reports whether a version, as written in an olm.package property, is in the range. Versions are
// compared number by number (1.10 is after 1.9); a text that is not a full semantic version is an error.
func (r *VersionRange) Contains(version string) (bool, error) {
	v, err := semver.Parse(version)
	if err != nil {
		return false, fmt.Errorf("version %q is not a semantic version", version)
	}
	return r.contains(v), nil
}

func (r *VersionRange) contains(v semver.Version) bool {
	return slices.ContainsFunc(r.alternatives, func(contains semver.Range) bool { return contains(v) })
}

// wildcardInSuffix matches a version with a suffix that has what the parser takes for a wildcard.
var wildcardInSuffix = regexp.MustCompile(`\d[0-9.]*-[0-9A-Za-z.-]*[xX*][0-9A-Za-z.*-]*`)

var (
	exactBound    = regexp.MustCompile(`(<|>=)\s*(\d+\.\d+\.\d+)(\s|\||$)`)
	wildcardBound = regexp.MustCompile(`(^|\s)(\d+)\.(?:(\d+)\.)?[xX*](?:\.[xX*])?(\s|\||$)`)
)

// WithSuffixes returns the range that was probably meant where the suffix of a version, such as 4.17.0-rhodf, decides whether it
// is in the range: a version with a suffix is before the same one without. It is empty where the suffix makes no
// difference, or where no bound explains it.
func (r *VersionRange) WithSuffixes(version string) string {
	v, err := semver.Parse(version)
	if err != nil || len(v.Pre) == 0 {
		return ""
	}
	wanted := r.contains(semver.Version{Major: v.Major, Minor: v.Minor, Patch: v.Patch})
	if r.contains(v) == wanted {
		return ""
	}
	text := exactBound.ReplaceAllString(r.text, "$1$2-0$3")
	text = wildcardBound.ReplaceAllStringFunc(text, func(s string) string {
		m := wildcardBound.FindStringSubmatch(s)
		low, high := m[2]+".0.0", fmt.Sprintf("%d.0.0", number(m[2])+1)
		if m[3] != "" {
			low, high = m[2]+"."+m[3]+".0", fmt.Sprintf("%s.%d.0", m[2], number(m[3])+1)
		}
		return m[1] + ">=" + low + "-0 <" + high + "-0" + m[4]
	})
	if wider, err := ParseVersionRange(text); err == nil && wider.contains(v) == wanted {
		return text
	}
	return ""
}

// versionInRange matches the versions, complete or with wildcards, in a range text.
var versionInRange = regexp.MustCompile(`(\d+)(?:\.(\d+|[xX*]))?(?:\.(\d+|[xX*]))?(?:-([0-9A-Za-z.-]+))?`)

// bounds returns all versions at which a range may begin or end, and the smallest of all versions.
func bounds(text string) []semver.Version {
	bounds := []semver.Version{lowest(0, 0, 0)}
	for _, m := range versionInRange.FindAllStringSubmatch(text, -1) {
		major, minor, patch := number(m[1]), number(m[2]), number(m[3])
		v := semver.Version{Major: major, Minor: minor, Patch: patch}
		if pre := m[4]; pre != "" {
			if full, err := semver.Parse(fmt.Sprintf("%d.%d.%d-%s", major, minor, patch, pre)); err == nil {
				bounds = append(bounds, full)
			}
			continue
		}
		// A wildcard 1.x means >=1.0.0 <2.0.0, so the version after its last one counts too.
		bounds = append(bounds, v, semver.Version{Major: major, Minor: minor + 1}, semver.Version{Major: major + 1})
	}
	return bounds
}

// next returns the version right after another one.
func next(v semver.Version) semver.Version {
	if len(v.Pre) == 0 {
		return lowest(v.Major, v.Minor, v.Patch+1)
	}
	v.Build, v.Pre = nil, append(slices.Clone(v.Pre), semver.PRVersion{IsNum: true})
	return v
}

// Interval is a part of a VersionRange without gaps. Low and High are versions, "" for no bound; they belong to it if
// so noted.
type Interval struct {
	Low, High       string
	HasLow, HasHigh bool
}

// Intervals returns the intervals of the range in ascending order. Together they contain the same versions.
func (r *VersionRange) Intervals() []Interval {
	bounds := bounds(r.text)
	slices.SortFunc(bounds, semver.Version.Compare)
	bounds = slices.CompactFunc(bounds, semver.Version.EQ)
	var found []Interval
	inside := false
	for i, bound := range bounds {
		after := next(bound)
		contains := []bool{r.contains(bound), r.contains(after) && after.GT(bound)} // no number is larger than the largest
		if i+1 < len(bounds) && after.EQ(bounds[i+1]) {
			contains = contains[:1] // nothing is between the two
		}
		for behind, is := range contains {
			switch {
			case is && !inside:
				found = append(found, Interval{Low: bound.String(), HasLow: behind == 0})
			case inside && !is:
				found[len(found)-1].High, found[len(found)-1].HasHigh = bound.String(), behind == 1
			}
			inside = is
		}
	}
	return found
}

// lowest returns the smallest of all versions with these numbers: its first pre-release.
func lowest(major, minor, patch uint64) semver.Version {
	return semver.Version{Major: major, Minor: minor, Patch: patch, Pre: []semver.PRVersion{{IsNum: true}}}
}

// number parses digits; a wildcard or an empty text is 0.
func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// NewerOpenShift reports whether a version of OpenShift is of a later minor version than another. 4.23 and 5.0 are the
// same release (normalizeOCPVersion of OLM's controller for OpenShift).
func NewerOpenShift(version, than semver.Version) bool {
	release := func(v semver.Version) semver.Version {
		if v.Major == 4 && v.Minor == 23 {
			return semver.Version{Major: 5}
		}
		return semver.Version{Major: v.Major, Minor: v.Minor}
	}
	return release(version).GT(release(than))
}

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

// statedRelease is the release in a spec, "" if there is none; fault is why it cannot be read.
type statedRelease struct{ text, fault string }

// UnmarshalJSON never fails: a release that cannot be read holds the bundle, the rest of which is read nevertheless.
func (r *statedRelease) UnmarshalJSON(raw []byte) error {
	*r = statedRelease{}
	release, err := readRelease(raw)
	if r.text = release; err != nil {
		r.fault = err.Error()
	}
	return nil
}

// Release returns the release of a bundle: stated, which its property olm.package has, else spec.release. Catalogs that
// were rendered by an older program have it only there, and an older API server has dropped it there. A problem is why
// there is none that both agree on, as a clause.
func (s *CSVSpec) Release(stated string) (release, problem string) {
	switch {
	case s == nil || s.Stated == (statedRelease{}):
		return stated, ""
	case s.Stated.fault != "":
		return "", "in spec of its ClusterServiceVersion, " + s.Stated.fault
	case stated != "" && stated != s.Stated.text:
		return "", "its property " + TypePackage + " says release " + stated +
			" and spec.release of its ClusterServiceVersion says " + s.Stated.text
	}
	return s.Stated.text, ""
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
	a, errA := semver.ParseTolerant(version)
	b, errB := semver.ParseTolerant(than)
	if errA != nil || errB != nil || !a.EQ(b) {
		return errA == nil && errB == nil && a.LT(b)
	}
	was, errA := parseRelease(strings.Join(a.Build, "."))
	is, errB := parseRelease(strings.Join(b.Build, "."))
	return errA == nil && errB == nil && olderRelease(was, is)
}

// olderRelease compares releases of one version as OLM's catalogs do (Release.Compare in operator-registry
// alpha/model).
func olderRelease(release, than []semver.PRVersion) bool {
	if len(release) == 0 || len(than) == 0 {
		return len(than) > len(release)
	}
	return slices.CompareFunc(release, than, semver.PRVersion.Compare) < 0
}

const digestPrefix = "sha256:"

// ImageDigest returns the digest at the end of an image reference, such as quay.io/example/etcd@sha256:…; "" if it has
// none.
func ImageDigest(image string) string {
	if name, digest, _ := strings.Cut(image, "@"); name != "" && ValidDigest(digest) {
		return digest
	}
	return ""
}

// ValidDigest reports whether a text is the digest of an image: "sha256:" and 64 hexadecimal digits in lower case.
func ValidDigest(s string) bool {
	return len(s) == len(digestPrefix)+64 && strings.HasPrefix(s, digestPrefix) &&
		strings.Trim(s[len(digestPrefix):], "0123456789abcdef") == ""
}
