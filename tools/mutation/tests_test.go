package mutation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutant runs scripts in place of test binaries.
func TestMutant(t *testing.T) {
	const reach = `printf . >>"$` + reachedVariable + `"; `
	cases := map[string]struct {
		steps          []string
		result, failed string
	}{
		"killed": {
			steps:  []string{reach, reach + `printf -- '--- FAIL: TestA (0s)\n    --- FAIL: TestA/b (0s)\n'; exit 1`},
			result: "killed", failed: "script TestA/b",
		},
		"survived":      {steps: []string{reach, ""}, result: "survived"},
		"never reached": {steps: []string{""}, result: "untested"},
		"fails by itself": {steps: []string{`echo '--- FAIL: TestA (0s)'; exit 1`}, result: "error",
			failed: "script TestA"},
		"dies": {steps: []string{reach + `exit 3`}, result: "error"},
		"hangs": {
			steps:  []string{reach + `printf -- '--- FAIL: TestA\npanic: test timed out after 20m\n'; exit 2`},
			result: "error",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &suite{dir: t.TempDir()}
			for i, script := range c.steps {
				binary := filepath.Join(s.dir, strings.Repeat("i", i+1))
				if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				s.steps = append(s.steps, step{pkg: "script", dir: s.dir, binary: binary})
			}
			m := s.mutant(t.Context(), "bundle/version")
			if m.result() != c.result || m.failed != c.failed {
				t.Errorf("got %s by %q, %v; want %s by %q", m.result(), m.failed, m.err, c.result, c.failed)
			}
		})
	}
}
