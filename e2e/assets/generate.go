package assets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/opgate/opgate/e2e/assets/gotool"
)

// generatedMod is what a generated tool module is known by: the go command adds to its go.mod and writes its go.sum.
const generatedMod = "generated.mod"

// FindKubernetesVersion is Find for any version, such as v1.32.13: its kube-apiserver, built earlier, or now, from a
// tool module that is generated. etcd and kubectl are those that Find returns.
func FindKubernetesVersion(ctx context.Context, version string, opts Options) (Assets, error) {
	checkout, err := opts.complete()
	if err != nil {
		return Assets{}, err
	}
	pinned, err := moduleVersion(checkout.KubernetesTools(), kubernetesModule)
	if err != nil {
		return Assets{}, err
	}
	base, err := Find(ctx, opts)
	if err != nil || version == pinned {
		return base, err
	}
	module, err := generate(ctx, opts, kubernetesModule, version)
	if err != nil {
		return Assets{}, err
	}
	src := kubernetes(module, version, opts)
	src.name, src.programs = "kube-apiserver", src.programs[:1]
	src.generated()
	dir, err := fromSource(ctx, src)
	if err != nil {
		return Assets{}, err
	}
	found := Assets{Dir: filepath.Join(dir, "assets"), Origin: "built from source, Kubernetes " + version}
	return found, link(found.Dir, map[string]string{
		"kube-apiserver": filepath.Join(dir, "kube-apiserver"), "etcd": base.Etcd(), "kubectl": base.Kubectl(),
	})
}

// FindOLMVersion returns a directory for OLMVariable with OLM of any version, such as v0.28.0, and the resource
// definitions of that version. opm is that of FindOLM.
func FindOLMVersion(ctx context.Context, version string, opts Options) (string, error) {
	checkout, err := opts.complete()
	if err != nil {
		return "", err
	}
	pinned := opts.tools(checkout, "olm", "OLM")
	module, err := generate(ctx, opts, olmModule, version)
	if err != nil {
		return "", err
	}
	src := olmSource(pinned)
	src.module, src.version, src.name = module, version, "olm-version"
	for _, name := range src.own {
		if err := copyFile(filepath.Join(module, name), filepath.Join(pinned.module, name)); err != nil {
			return "", err
		}
	}
	src.generated()
	operators, err := fromSource(ctx, src)
	if err != nil {
		return "", err
	}
	registry, err := findRegistry(ctx, opts, checkout)
	if err != nil {
		return "", err
	}
	api, err := moduleDir(ctx, module, "github.com/operator-framework/api")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(operators, "assets")
	return dir, link(dir, map[string]string{
		"catalog": filepath.Join(operators, "catalog"), "olm": filepath.Join(operators, "olm"),
		"package-server": filepath.Join(operators, "package-server"), "opm": filepath.Join(registry, "opm"),
		"crds": filepath.Join(api, "crds"),
	})
}

// generated makes the go command complete a generated module as it builds. Checksums are those of the checksum
// database.
func (src *source) generated() {
	src.pins = []string{generatedMod}
	src.flags = append(src.flags, "-mod=mod")
}

// generate returns the directory of a tool module that requires a version of another one, with the replacements that
// this one has for itself: they count only in the module that is built. Directories inside it are the modules that are
// published from them.
func generate(ctx context.Context, opts Options, path, version string) (string, error) {
	dir := filepath.Join(opts.CacheDir, "modules", filepath.Base(path)+"-"+version)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	upstream, err := requirements(ctx, dir, path, version)
	if err != nil {
		return "", fmt.Errorf("fetch %s %s: %w", path, version, err)
	}
	file := &modfile.File{}
	if err := file.AddModuleStmt("opgate.io/e2e/generated"); err != nil {
		return "", err
	}
	if err := file.AddGoStmt(strings.TrimPrefix(runtime.Version(), "go")); err != nil {
		return "", err
	}
	for _, setting := range upstream.Godebug { // of the release, not of the compiler's version
		if err := file.AddGodebug(setting.Key, setting.Value); err != nil {
			return "", err
		}
	}
	if err := file.AddRequire(path, version); err != nil {
		return "", err
	}
	for _, replace := range upstream.Replace {
		replacement, as := replace.New.Path, replace.New.Version
		if strings.HasPrefix(replacement, "./staging/") {
			replacement, as = replace.Old.Path, "v0"+strings.TrimPrefix(version, semver.Major(version))
		}
		if err := file.AddReplace(replace.Old.Path, replace.Old.Version, replacement, as); err != nil {
			return "", err
		}
	}
	file.Cleanup()
	data, err := file.Format()
	if err != nil {
		return "", err
	}
	known, err := os.ReadFile(filepath.Join(dir, generatedMod))
	if err == nil && string(known) == string(data) {
		return dir, nil // with what the go command added
	}
	for _, name := range []string{"go.mod", generatedMod} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// requirements is the go.mod of a published module.
func requirements(ctx context.Context, dir, path, version string) (*modfile.File, error) {
	out, err := gotool.Command(ctx, dir, os.TempDir(), "mod", "download", "-json", path+"@"+version).Output()
	var module struct{ GoMod, Error string }
	if parseErr := json.Unmarshal(out, &module); parseErr != nil {
		return nil, errors.Join(err, parseErr)
	}
	if module.Error != "" {
		return nil, errors.New(firstLine(module.Error))
	}
	data, err := os.ReadFile(module.GoMod)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(module.GoMod, data, nil)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// link makes dir a directory of links, by their names.
func link(dir string, targets map[string]string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for name, target := range targets {
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file into a directory that may not be there yet.
func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
