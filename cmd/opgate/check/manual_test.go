package check

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestManual: objects in every form that OLM's manual prints are let through. The only warnings are those for a package
// by name, which OLM itself does not read (R-CO-9).
func TestManual(t *testing.T) {
	paths, err := filepath.Glob("testdata/manual/*.yaml")
	if err != nil || len(paths) != 3 {
		t.Fatalf("%d files: %v", len(paths), err)
	}
	names := 0
	for _, path := range paths {
		items, code := judged(t, "-f", path)
		if code != 0 || len(items) == 0 {
			t.Errorf("%s: exit code %d: %+v", path, code, items)
		}
		for _, item := range items {
			for _, warning := range item.Warnings {
				if !strings.Contains(warning, ".package.name (\"etcd\") is read as packageName") {
					t.Errorf("%s: %s", path, warning)
				}
				names++
			}
		}
	}
	if names != 4 {
		t.Errorf("%d packages are read by name, want 4", names)
	}
}
