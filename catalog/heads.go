package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// Limits of Heads. Catalogs in use have a few hundred packages.
const (
	// MaxPackages bounds the packages of one catalog.
	MaxPackages = 10_000
	// maxHeads bounds the channels of one package.
	maxHeads = 200
	// maxExamples bounds what a Poll lists of one sort.
	maxExamples = 5
	// maxExample bounds the text of an example, in bytes.
	maxExample = 120
)

// Head is the newest version of a channel.
type Head struct {
	// Name is the name of the ClusterServiceVersion, Version its version; "" if the catalog does not state it.
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// MinKube is the oldest version of Kubernetes that it runs on, MaxOpenShift the newest of OpenShift; "" for any.
	MinKube      string `json:"minKube,omitempty"`
	MaxOpenShift string `json:"maxOpenShift,omitempty"`
}

// PackageHeads are the newest versions of a package.
type PackageHeads struct {
	// Channels are the heads by the names of channels.
	Channels map[string]Head `json:"channels,omitempty"`
	// Architectures are those that the package supports, sorted; empty if it states none.
	Architectures []string `json:"architectures,omitempty"`
}

// Heads are the newest versions of all packages of a catalog, by package.
type Heads map[string]PackageHeads

// DecodeHeads returns the name and the newest versions of a package from the JSON of its PackageManifest. The name is
// "" if it is not of the catalog. What is too long or of another type is left out.
func DecodeHeads(raw []byte, of olm.Catalog) (name string, heads PackageHeads) {
	var manifest struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Status struct {
			Package   string `json:"packageName"`
			Name      string `json:"catalogSource"`
			Namespace string `json:"catalogSourceNamespace"`
			Channels  []struct {
				Name string `json:"name"`
				CSV  string `json:"currentCSV"`
				Desc struct {
					Version     string            `json:"version"`
					MinKube     string            `json:"minKubeVersion"`
					Annotations map[string]string `json:"annotations"`
				} `json:"currentCSVDesc"`
			} `json:"channels"`
		} `json:"status"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &manifest) != nil {
		return "", heads
	}
	status := &manifest.Status
	if status.Package == "" || len(status.Package) > MaxName || status.Namespace != of.Namespace ||
		status.Name != of.Name {
		return "", heads
	}
	heads.Channels = map[string]Head{}
	for _, c := range status.Channels {
		if len(heads.Channels) == maxHeads {
			break
		}
		if c.Name == "" || max(len(c.Name), len(c.CSV), len(c.Desc.Version), len(c.Desc.MinKube)) > MaxName {
			continue
		}
		heads.Channels[c.Name] = Head{Name: c.CSV, Version: c.Desc.Version, MinKube: c.Desc.MinKube,
			MaxOpenShift: maxOpenShift(c.Desc.Annotations)}
	}
	for label, value := range manifest.Metadata.Labels {
		if architecture, ok := strings.CutPrefix(label, metakey.ArchitecturePrefix); ok && value == "supported" &&
			len(heads.Architectures) < maxHeads {
			heads.Architectures = append(heads.Architectures, architecture)
		}
	}
	slices.Sort(heads.Architectures)
	return status.Package, heads
}

// maxOpenShift returns the property olm.maxOpenShiftVersion in annotation olm.properties of a ClusterServiceVersion.
func maxOpenShift(annotations map[string]string) string {
	written := annotations[metakey.AuthorProperties]
	if len(written) > maxText {
		return ""
	}
	var properties []struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal([]byte(written), &properties) != nil {
		return ""
	}
	for _, p := range properties {
		var version any
		if p.Type != "olm.maxOpenShiftVersion" || json.Unmarshal(p.Value, &version) != nil {
			continue
		}
		if s := fmt.Sprint(version); len(s) <= MaxName {
			return s
		}
	}
	return ""
}

// Platform is the cluster that a catalog is for. An empty version is not compared.
type Platform struct{ Kubernetes, OpenShift string }

// Poll is what one image of a catalog offers differently than the image before.
type Poll struct {
	// Image is the digest of the image, From that of the image before; "" for the first one that was read, which
	// changes nothing.
	Image string `json:"image"`
	From  string `json:"from,omitempty"`
	// Packages is the number of packages before, Changed how many of them differ, are new or gone.
	Packages int `json:"packages"`
	Changed  int `json:"changed,omitempty"`
	// Backwards is the number of channels whose newest version is older than before, Foreign that of new ones for
	// another platform.
	Backwards int `json:"backwards,omitempty"`
	Foreign   int `json:"foreign,omitempty"`
	// The examples are the first of each, sorted: "etcd alpha: 0.9.4 -> 0.9.2".
	ChangedExamples   []string `json:"changedExamples,omitempty"`
	BackwardsExamples []string `json:"backwardsExamples,omitempty"`
	ForeignExamples   []string `json:"foreignExamples,omitempty"`
}

// Compare returns what changed from before to now.
func Compare(before, now Heads, on Platform) Poll {
	p := Poll{Packages: len(before)}
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range now {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p.add(name, before, now, on)
	}
	return p
}

// add adds what changed of one package.
func (p *Poll) add(name string, before, now Heads, on Platform) {
	old, was := before[name]
	is, stays := now[name]
	switch {
	case !was:
		p.change(name + " is new")
	case !stays:
		p.change(name + " is gone")
	case !equal(old, is):
		p.change(name + firstChange(old, is))
	default:
		return
	}
	for _, channel := range slices.Sorted(maps.Keys(is.Channels)) {
		head, last := is.Channels[channel], old.Channels[channel]
		if head == last {
			continue
		}
		change := name + " " + channel + ": " + versionText(last) + " -> " + versionText(head)
		if olm.OlderVersion(head.Version, last.Version) {
			p.Backwards++
			p.BackwardsExamples = example(p.BackwardsExamples, change)
		}
		if why := head.foreign(on); why != "" && last.foreign(on) == "" {
			p.Foreign++
			p.ForeignExamples = example(p.ForeignExamples, change+", "+why)
		}
	}
	for _, architecture := range old.Architectures {
		if stays && len(is.Architectures) > 0 && !slices.Contains(is.Architectures, architecture) {
			p.Foreign++
			p.ForeignExamples = example(p.ForeignExamples, name+" is no longer for "+architecture)
		}
	}
}

func (p *Poll) change(what string) {
	p.Changed++
	p.ChangedExamples = example(p.ChangedExamples, what)
}

func example(list []string, one string) []string {
	if len(list) < maxExamples {
		list = append(list, text.Truncate(one, maxExample))
	}
	return list
}

func equal(a, b PackageHeads) bool {
	return maps.Equal(a.Channels, b.Channels) && slices.Equal(a.Architectures, b.Architectures)
}

// firstChange returns the first channel that differs, in the words of an example.
func firstChange(old, is PackageHeads) string {
	for _, channel := range slices.Sorted(maps.Keys(is.Channels)) {
		if head, last := is.Channels[channel], old.Channels[channel]; head != last {
			return " " + channel + ": " + versionText(last) + " -> " + versionText(head)
		}
	}
	for _, channel := range slices.Sorted(maps.Keys(old.Channels)) {
		if _, stays := is.Channels[channel]; !stays {
			return " " + channel + " is gone"
		}
	}
	return " has other architectures"
}

func versionText(h Head) string {
	switch {
	case h.Version != "":
		return h.Version
	case h.Name != "":
		return h.Name
	}
	return "none"
}

// foreign returns why a version is for another platform, or "".
func (h Head) foreign(on Platform) string {
	minimum, err := semver.ParseTolerant(h.MinKube)
	if cluster, ok := release(on.Kubernetes); ok && err == nil && h.MinKube != "" && cluster.LT(minimum) {
		return "which needs Kubernetes " + h.MinKube
	}
	maximum, err := semver.ParseTolerant(h.MaxOpenShift)
	if cluster, ok := release(on.OpenShift); ok && err == nil && h.MaxOpenShift != "" &&
		olm.NewerOpenShift(cluster, maximum) {
		return "which runs on OpenShift up to " + h.MaxOpenShift
	}
	return ""
}

// release returns the version of a cluster without pre-release, as OLM compares it; ok is false if it is not known.
func release(version string) (v semver.Version, ok bool) {
	v, err := semver.ParseTolerant(version)
	v.Pre, v.Build = nil, nil
	return v, err == nil && version != ""
}

// MaxSeenPackages bounds the packages of one catalog for which it is recorded when versions were first seen. What
// exceeds the bounds is not recorded, and held.
const MaxSeenPackages = 100

// maxSeenVersions bounds the versions of one package.
const maxSeenVersions = 1000

// Seen is when ClusterServiceVersions were first offered by a catalog, in seconds since 1970, by package and name. It
// is immutable.
type Seen map[string]map[string]int64

// seenVersion is one version in a Seen.
type seenVersion struct{ pkg, name string }

// size returns an upper limit of the JSON of a version, in bytes.
func (v seenVersion) size() int {
	const time = len(`"":{"":1234567890},`)
	text, err := json.Marshal(v.pkg + v.name)
	if err != nil {
		panic(err) // it is a string
	}
	return time + len(text)
}

// With returns the record with what a catalog offers, in some bytes of JSON, and for whom something of that is left
// out. What is not offered at the time, or what no policy asks about any more, keeps its time in the room that is left:
// a package server that answers in part makes nothing new.
func (s Seen) With(offered Offered, room int) (next Seen, left []fair.Origin) {
	next = Seen{}
	add := func(claims []fair.Claim[seenVersion]) (left []fair.Origin) {
		kept, left := fair.Within(claims, room)
		for _, v := range fair.Rows(kept) {
			if next[v.pkg] == nil {
				next[v.pkg] = map[string]int64{}
			}
			next[v.pkg][v.name] = cmp.Or(s[v.pkg][v.name], offered.At.Unix())
			room -= v.size()
		}
		return left
	}
	claim := func(pkg, name string) fair.Claim[seenVersion] {
		v := seenVersion{pkg, name}
		return fair.Claim[seenVersion]{Origin: offered.For[pkg], Row: v, Weight: v.size()}
	}
	var now, before []fair.Claim[seenVersion]
	for _, pkg := range slices.Sorted(maps.Keys(offered.Names)) {
		names := slices.Clone(offered.Names[pkg])
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(min(s[pkg][b], 1), min(s[pkg][a], 1)) })
		for _, name := range names[:min(len(names), maxSeenVersions)] { // those that are recorded come first
			now = append(now, claim(pkg, name))
		}
	}
	left = add(now)
	for _, pkg := range slices.Sorted(maps.Keys(s)) {
		for _, name := range slices.Sorted(maps.Keys(s[pkg])) {
			if next[pkg][name] == 0 {
				before = append(before, claim(pkg, name))
			}
		}
	}
	add(before)
	return next, left
}

// equal reports whether two records are the same.
func (s Seen) equal(other Seen) bool {
	return maps.EqualFunc(s, other, func(a, b map[string]int64) bool { return maps.Equal(a, b) })
}

// FirstSeen returns when a version of a package was first offered; zero if that is not recorded.
func (h *History) FirstSeen(pkg, csv string) time.Time {
	if h == nil || h.Seen[pkg][csv] <= 0 {
		return time.Time{}
	}
	return time.Unix(h.Seen[pkg][csv], 0).UTC()
}

// DecodeNames returns the package of a PackageManifest of a catalog, and the names of all ClusterServiceVersions that
// it offers. The package is "" if it is not of the catalog.
func DecodeNames(raw []byte, of olm.Catalog) (pkg string, names []string) {
	var object map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return "", nil
	}
	p := Decode(object)
	if p == nil || p.Catalog != of {
		return "", nil
	}
	for i := range p.Channels {
		for _, e := range p.Channels[i].Entries {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return p.Name, slices.Compact(names)
}
