package release

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/opgate/opgate/tools/image"
	"github.com/opgate/opgate/tools/release/archive"
	"github.com/opgate/opgate/tools/release/krew"
)

const (
	// tool is the program with the commands, and plugin its name as a plugin of kubectl.
	tool   = "opgate"
	plugin = "kubectl-" + tool
)

// Targets are the platforms that releases have binaries for.
func Targets() []string {
	return append(image.DefaultPlatforms(), "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64")
}

// ParseTargets parses names of Targets.
func ParseTargets(names []string) ([]v1.Platform, error) {
	var targets []v1.Platform
	for _, name := range names {
		if !slices.Contains(Targets(), name) {
			return nil, fmt.Errorf("target %q: use some of %q", name, Targets())
		}
		target, err := v1.ParsePlatform(name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, *target)
	}
	return targets, nil
}

// suffix is how names of files for a platform end, without an extension. They hold no version, so that a link to the
// latest release stays the same.
func suffix(p v1.Platform) string { return "_" + p.OS + "_" + p.Architecture }

// executable is the name of a program on a platform.
func executable(name string, p v1.Platform) string {
	if p.OS == "windows" {
		name += ".exe"
	}
	return name
}

// ArchiveName is the name of the plugin's archive for a platform.
func ArchiveName(p v1.Platform) string {
	if p.OS == "windows" {
		return plugin + suffix(p) + ".zip"
	}
	return plugin + suffix(p) + ".tar.gz"
}

// writeBinary writes a binary into dir, and packed as the plugin with the license.
func writeBinary(dir string, binary image.Binary, license []byte, created time.Time) error {
	data, err := os.ReadFile(binary.File)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, executable(tool+suffix(binary.Platform), binary.Platform)), data, 0o755); err != nil { //nolint:gosec // made to be run
		return err
	}
	pack := archive.TarGz
	if binary.Platform.OS == "windows" {
		pack = archive.Zip
	}
	packed, err := pack(created,
		archive.File{Name: executable(plugin, binary.Platform), Mode: 0o755, Data: data},
		archive.File{Name: "LICENSE", Mode: 0o644, Data: license})
	if err != nil {
		return err
	}
	return writeFile(dir, ArchiveName(binary.Platform), packed)
}

// krewManifest describes the archives in dir.
func krewManifest(dir, downloads string, version Version, targets []v1.Platform) ([]byte, error) {
	p := krew.Plugin{
		Name:             "opgate",
		Version:          version.Tag,
		Homepage:         source,
		ShortDescription: "Show why OLM's install plans wait, and judge manifests",
		Description: `Lists the install plans of the Operator Lifecycle Manager (OLM) that wait for approval, with the rule that holds each, who approved what,
and what would change the verdict. Judges Subscriptions, InstallPlans and OperatorPolicies in files before they reach a cluster.
Needs read access only.`,
	}
	for _, target := range targets {
		sum, err := sumFile(filepath.Join(dir, ArchiveName(target)))
		if err != nil {
			return nil, err
		}
		p.Platforms = append(p.Platforms, krew.Platform{
			OS: target.OS, Arch: target.Architecture, URI: downloads + "/" + ArchiveName(target), SHA256: sum,
			Bin: executable(plugin, target),
		})
	}
	return p.Manifest()
}

func writeFile(dir, name string, data []byte) error {
	return os.WriteFile(filepath.Join(dir, name), data, 0o644) //nolint:gosec // made to be published
}
