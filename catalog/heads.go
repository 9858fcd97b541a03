package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	kjson "sigs.k8s.io/json"

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
