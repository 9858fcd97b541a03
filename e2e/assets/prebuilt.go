package assets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
)

const (
	// prebuiltIndex lists what setup-envtest downloads, with the SHA-512 of each archive.
	prebuiltIndex = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
	// reachTimeout bounds the question whether the index is in reach. It is short, since machines of CI often reach the
	// Go module proxy alone, and building from source must not wait for long.
	reachTimeout = 3 * time.Second
	// downloadTimeout bounds a download of about 100 MB.
	downloadTimeout = 3 * time.Minute
	// prebuiltName begins the names of directories with prebuilt binaries.
	prebuiltName = "prebuilt-"
)

// prebuilt returns the binaries that the Kubernetes project publishes for tests, downloaded earlier, or now: of a
// version, or, with AnyPatch, of the latest patch release of its minor version. setup-envtest, of the version in
// .envtest.mod, compares the archive with the checksum in the index.
func prebuilt(ctx context.Context, checkout repo.Checkout, version string, opts Options) (Assets, error) {
	if found, ok := downloaded(version, opts); ok {
		return found, nil
	}
	if err := reach(ctx, opts.Index); err != nil {
		return Assets{}, err
	}
	if err := os.MkdirAll(opts.CacheDir, 0o750); err != nil {
		return Assets{}, err
	}
	temp, err := os.MkdirTemp(opts.CacheDir, ".download-*")
	if err != nil {
		return Assets{}, err
	}
	defer func() { _ = os.RemoveAll(temp) }()

	wanted := strings.TrimPrefix(version, "v")
	if opts.AnyPatch {
		wanted = strings.TrimPrefix(semver.MajorMinor(version), "v") + ".x"
	}
	fmt.Fprintf(opts.Log, "downloading binaries of Kubernetes %s\n", wanted)
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	cmd := gotool.Command(ctx, checkout.Root, temp, "tool", "-modfile=.envtest.mod", "setup-envtest", "use", wanted,
		"--index", opts.Index, "--bin-dir", temp, "--print", "path")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return Assets{}, fmt.Errorf("%w: %s", errors.Join(ctx.Err(), err), lastLine(stderr.String()))
	}
	from := Assets{Dir: strings.TrimSpace(stdout.String())}
	if err := from.check(); err != nil {
		return Assets{}, fmt.Errorf("%q: %w", from.Dir, err)
	}
	patch, _, _ := strings.Cut(filepath.Base(from.Dir), "-")
	found := prebuiltIn(opts, "v"+patch)
	if err := os.Rename(from.Dir, found.Dir); err != nil && found.check() != nil { // else another process was first
		return Assets{}, err
	}
	return found, nil
}

// prebuiltIn are the binaries of a version in the cache.
func prebuiltIn(opts Options, version string) Assets {
	return Assets{Dir: filepath.Join(opts.CacheDir, prebuiltName+version+"-"+runtime.GOOS+"-"+runtime.GOARCH),
		Origin: "prebuilt, Kubernetes " + version}
}

// downloaded returns what an earlier call has downloaded, the latest first.
func downloaded(version string, opts Options) (Assets, bool) {
	versions := []string{version}
	if opts.AnyPatch {
		dirs, _ := filepath.Glob(prebuiltIn(opts, semver.MajorMinor(version)+".*").Dir) // the pattern is well-formed
		for _, dir := range dirs {
			patch, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prebuiltName), "-")
			versions = append(versions, patch)
		}
		slices.SortFunc(versions, func(a, b string) int { return semver.Compare(b, a) })
	}
	for _, version := range versions {
		if found := prebuiltIn(opts, version); found.check() == nil {
			return found, true
		}
	}
	return Assets{}, false
}

// reach returns an error if the index does not answer soon.
func reach(ctx context.Context, index string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, index, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", index, response.Status)
	}
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
