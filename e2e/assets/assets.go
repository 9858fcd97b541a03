// Package assets finds the binaries of a Kubernetes control plane and of OLM, and downloads or builds them where there
// are none.
package assets

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// names are the binaries that make a set of assets.
var names = [...]string{"kube-apiserver", "etcd", "kubectl"}

// Assets is a directory with the binaries of a control plane, in the layout that KUBEBUILDER_ASSETS points to.
type Assets struct {
	// Dir holds kube-apiserver, etcd and kubectl.
	Dir string
	// Origin states where the binaries come from, for people.
	Origin string
}

// KubeAPIServer is the path of the kube-apiserver binary.
func (a Assets) KubeAPIServer() string { return filepath.Join(a.Dir, "kube-apiserver") }

// Etcd is the path of the etcd binary.
func (a Assets) Etcd() string { return filepath.Join(a.Dir, "etcd") }

// Kubectl is the path of the kubectl binary.
func (a Assets) Kubectl() string { return filepath.Join(a.Dir, "kubectl") }

// Options configure how Find works. The zero value is useful.
type Options struct {
	// Log receives lines for people: what is used, and the progress of a build. Default: nowhere.
	Log io.Writer
	// CacheDir is where binaries are kept. Default: "opgate" in os.UserCacheDir().
	CacheDir string
	// AnyPatch lets Find return prebuilt binaries of another patch release. Default: the pinned version alone, which
	// tests run on.
	AnyPatch bool
	// Index is the URL of the list of prebuilt binaries. Default: that of setup-envtest.
	Index string
}

// Find returns the first set of binaries that it can get:
//
//  1. those in the directory named by KUBEBUILDER_ASSETS; when the variable is set but the directory is incomplete that is
//     an error, so that tests never run against another version than intended;
//  2. those built earlier;
//  3. prebuilt ones, downloaded earlier, or now if they are in reach;
//  4. those that it builds now, from the Go modules pinned in e2e/tools/kubernetes, which takes minutes.
//
// The version of 2 to 4 is the one that e2e/tools/kubernetes/go.mod requires.
func Find(ctx context.Context, opts Options) (Assets, error) {
	if dir, ok := os.LookupEnv("KUBEBUILDER_ASSETS"); ok && dir != "" {
		found := Assets{Dir: dir, Origin: "KUBEBUILDER_ASSETS"}
		if err := found.check(); err != nil {
			return Assets{}, fmt.Errorf("KUBEBUILDER_ASSETS=%s: %w", dir, err)
		}
		return found, nil
	}

	checkout, err := opts.complete()
	if err != nil {
		return Assets{}, err
	}
	version, err := moduleVersion(checkout.KubernetesTools(), kubernetesModule)
	if err != nil {
		return Assets{}, err
	}
	src := kubernetes(checkout.KubernetesTools(), version, opts)
	dir, err := src.result(ctx)
	if err != nil {
		return Assets{}, err
	}
	if src.check(dir) != nil {
		found, err := prebuilt(ctx, checkout, version, opts)
		switch {
		case err == nil:
			return found, nil
		case ctx.Err() != nil:
			return Assets{}, ctx.Err()
		}
		fmt.Fprintf(opts.Log, "no prebuilt binaries of Kubernetes %s (%v): building them\n", version, err)
	}
	dir, err = fromSource(ctx, src)
	return Assets{Dir: dir, Origin: "built from source, Kubernetes " + version}, err
}

// complete sets the defaults and finds the checkout that states what to build.
func (o *Options) complete() (repo.Checkout, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return repo.Checkout{}, fmt.Errorf("find a cache for binaries built from source: %w", err)
		}
		o.CacheDir = filepath.Join(dir, "opgate")
	}
	if o.Index == "" {
		o.Index = prebuiltIndex
	}
	return repo.Find()
}

// check returns an error that names every binary that is missing or cannot be executed.
func (a Assets) check() error { return checkExecutables(a.Dir, names[:]) }

// checkExecutables returns an error that names all of the files in dir that are missing or cannot be executed.
func checkExecutables(dir string, names []string) error {
	var missing []string
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no executable %s there", strings.Join(missing, ", "))
	}
	return nil
}
