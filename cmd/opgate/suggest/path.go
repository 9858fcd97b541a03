package suggest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/cmd/opgate/plan"
)

// The values of --to: how far a path is opened.
const (
	toNext   = "next"
	toPatch  = "patch"
	toNewest = "newest"
)

var targets = []string{toNext, toPatch, toNewest}

// readPath returns the step that opens a path as far as --to; nil for a path that is at its end.
func readPath(name string, stdin io.Reader, to string) (*step, error) {
	var raw []byte
	var err error
	if name == cli.StandardInput {
		raw, err = io.ReadAll(io.LimitReader(stdin, manifests.MaxInput))
	} else {
		raw, err = os.ReadFile(name) //nolint:gosec // a file that the user names
	}
	if err != nil {
		return nil, err
	}
	var p plan.Result
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("%s is no JSON of \"opgate plan\": %w", name, err)
	}
	if p.Package == "" || p.Namespace == "" {
		return nil, fmt.Errorf("%s is no JSON of \"opgate plan\": it names no package and namespace", name)
	}
	s := &step{namespace: p.Namespace, pkg: p.Package, from: p.Installed, source: "the path of " + p.Package}
	for _, hop := range p.Steps {
		if to == toPatch && !samePatches(p.InstalledVersion, hop.Version) || to == toNext && len(s.versions) > 0 {
			break
		}
		s.versions = append(s.versions, version{csv: hop.CSV, version: hop.Version})
		for _, r := range hop.Reasons {
			s.note(r.Rule, r.Source, r.Message, hop.Digest)
		}
	}
	if len(s.versions) == 0 {
		return nil, nil
	}
	return s, nil
}

// samePatches reports whether two versions have the same major and minor numbers.
func samePatches(a, b string) bool {
	from, err := semver.Parse(a)
	if err != nil {
		return false
	}
	to, err := semver.Parse(b)
	return err == nil && from.Major == to.Major && from.Minor == to.Minor
}
