package assets_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
)

// fakeGo puts a go command on PATH that writes the binary it is asked for, unless its name is that of the one that is
// broken.
func fakeGo(t *testing.T, broken string) {
	t.Helper()
	script := `#!/bin/sh
case $1 in env|list) exit 0 ;; esac
while [ "$1" != -o ]; do shift; done
case "$2" in */` + broken + `) echo 'main.go:1: something is wrong' >&2; exit 1 ;; esac
echo '#!/bin/sh' >"$2"
chmod +x "$2"
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestFindOLMBuildsOnce(t *testing.T) {
	cache := t.TempDir()
	fakeGo(t, "none")
	var log strings.Builder
	built, err := assets.FindOLM(t.Context(), assets.Options{Log: &log, CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{built.Catalog, built.Operator, built.PackageServer, built.OPM} {
		if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s cannot be executed (%v)", path, err)
		}
	}
	for _, want := range []string{
		"building catalog 1/3 from source", "building olm 2/3 from source", "building package-server 3/3 from source",
		"building opm 1/1 from source",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log is %q, want it to say %q", log.String(), want)
		}
	}

	log.Reset()
	again, err := assets.FindOLM(t.Context(), assets.Options{Log: &log, CacheDir: cache})
	if err != nil || again != built || log.Len() > 0 {
		t.Errorf("the second time: got %+v, %v and log %q, want %+v and nothing built", again, err, log.String(), built)
	}
}

func TestFindOLMReportsTheCompiler(t *testing.T) {
	cache := t.TempDir()
	fakeGo(t, "olm")
	_, err := assets.FindOLM(t.Context(), assets.Options{CacheDir: cache})
	if err == nil || !strings.Contains(err.Error(), "build olm: exit status 1") ||
		!strings.Contains(err.Error(), "main.go:1: something is wrong") {
		t.Errorf("got error %v, want it to name the binary and quote the compiler", err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0], ".lock") {
		t.Errorf("left behind: %v (%v), want the lock alone", left, err)
	}
}
