package krew_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/release/archive"
	"github.com/opgate/opgate/tools/release/krew"
)

// buildKrew builds krew, and what krew-index validates manifests with.
func buildKrew(t *testing.T) (krew, validate string) {
	t.Helper()
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	dir, packages := t.TempDir(), "sigs.k8s.io/krew/cmd/"
	cmd := gotool.Command(t.Context(), filepath.Join(checkout.Root, "e2e", "tools", "krew"), t.TempDir(),
		"build", "-o", dir, packages+"krew", packages+"validate-krew-manifest")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build krew: %v\n%s", err, out)
	}
	return filepath.Join(dir, "krew"), filepath.Join(dir, "validate-krew-manifest")
}

// TestManifest has the manifest validated, and the plugin installed and run by the real krew.
func TestManifest(t *testing.T) {
	program, validate := buildKrew(t)
	packed, err := archive.TarGz(time.Unix(0, 0),
		archive.File{Name: "kubectl-opgate", Mode: 0o755, Data: []byte("#!/bin/sh\necho it runs\n")},
		archive.File{Name: "LICENSE", Mode: 0o644, Data: []byte("a license")})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(packed)
	plugin := krew.Plugin{
		Name: "opgate", Version: "v0.1.0", Homepage: "https://example.com", ShortDescription: "Short",
		Description: "Long",
	}
	for _, target := range []string{
		"linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x", "darwin/amd64", "darwin/arm64", "windows/amd64",
		"windows/arm64",
	} {
		goos, arch, _ := strings.Cut(target, "/")
		plugin.Platforms = append(plugin.Platforms, krew.Platform{
			OS: goos, Arch: arch, URI: "https://example.com/" + target, SHA256: hex.EncodeToString(sum[:]),
			Bin: "kubectl-opgate",
		})
	}
	dir := t.TempDir()
	manifest, packedFile := filepath.Join(dir, "opgate.yaml"), filepath.Join(dir, "opgate.tar.gz")
	write := func(file string, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := plugin.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	write(manifest, text)
	write(packedFile, packed)
	if out, err := exec.Command(validate, "-skip-install", "-manifest", manifest).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, text)
	}

	install := func() (string, error) {
		cmd := exec.Command(program, "install", "--manifest", manifest, "--archive", packedFile)
		cmd.Env = append(os.Environ(), "KREW_ROOT="+filepath.Join(dir, "krew"), "KREW_OS="+runtime.GOOS,
			"KREW_ARCH="+runtime.GOARCH)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := install(); err != nil {
		t.Fatalf("krew install: %v: %s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "krew", "bin", "kubectl-opgate")).Output()
	if err != nil || string(out) != "it runs\n" {
		t.Errorf("the plugin printed %q (%v)", out, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "krew")); err != nil {
		t.Fatal(err)
	}
	packed[len(packed)-1]++
	write(packedFile, packed)
	if out, err := install(); err == nil || !strings.Contains(out, "checksum") {
		t.Errorf("krew install of an archive that was changed: %v: %s", err, out)
	}

	plugin.Platforms[1].SHA256 = "unknown"
	if text, err = plugin.Manifest(); err != nil {
		t.Fatal(err)
	}
	write(manifest, text)
	if out, err := exec.Command(validate, "-skip-install", "-manifest", manifest).CombinedOutput(); err == nil {
		t.Errorf("a manifest without a checksum is valid: %s", out)
	}
}
