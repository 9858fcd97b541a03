package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOneJudge: no other command asks the rules for a verdict, so that all of them answer alike.
func TestOneJudge(t *testing.T) {
	judges := regexp.MustCompile(`\brules\.(Judge\w*|Inspect)\(`)
	read, judging := 0, 0
	err := filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		found := judges.FindAll(text, -1)
		if strings.HasPrefix(path, "inspect/") {
			judging += len(found)
		} else if len(found) > 0 {
			t.Errorf("%s asks %s: ask package inspect", path, found[0])
		}
		return nil
	})
	if err != nil || read < 50 || judging < 10 {
		t.Errorf("%d files are read, %d judges are asked in inspect: %v", read, judging, err)
	}
}
