package demo

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestStepsUseManifestsThatExist(t *testing.T) {
	for _, step := range append(steps(), olmSteps()...) {
		for _, command := range step.commands {
			files := slices.Clone(command.args)
			if command.show != "" {
				files = append(files, command.show)
			}
			for _, file := range files {
				file = strings.TrimPrefix(file, "--patch-file=")
				if !strings.HasSuffix(file, ".yaml") {
					continue
				}
				if _, err := fs.Stat(manifests, file); err != nil {
					t.Errorf("%s: %v", step.title, err)
				}
			}
		}
	}
}
