package rules

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules/verdict"
)

// TestRulesAreSpelledOnce: a rule's code is found by the ID in a refusal, so the file that has the rule is the only one
// of the product that spells it.
func TestRulesAreSpelledOnce(t *testing.T) {
	spelled := map[string][]string{}
	for _, r := range slices.Concat(GateRules(), Rules()) {
		if _, twice := spelled[string(r.ID)]; twice {
			t.Errorf("%s is listed twice", r.ID)
		}
		spelled[string(r.ID)] = nil
	}
	named := regexp.MustCompile(`^[a-z]+/[a-z-]+$|\([a-z]+/[a-z-]+\)`)
	help := filepath.Join("..", "cmd")
	each(t, "..", ".go", func(path string, source []byte) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, filepath.Join("..", "tools")) {
			return
		}
		var s scanner.Scanner
		s.Init(token.NewFileSet().AddFile(path, -1, len(source)), source, nil, 0)
		for _, kind, literal := s.Scan(); kind != token.EOF; _, kind, literal = s.Scan() {
			if kind != token.STRING {
				continue
			}
			value, err := strconv.Unquote(literal)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range named.FindAllString(value, -1) {
				if bare := strings.Trim(id, "()"); isRule(bare) && (bare == id || !strings.HasPrefix(path, help)) {
					spelled[bare] = append(spelled[bare], path)
				}
			}
		}
	})
	for id, paths := range spelled {
		if len(paths) != 1 {
			t.Errorf("%s is spelled in %v", id, paths)
		}
	}
}

// TestManifestsNameRules: what manifests quote is the ID of a rule.
func TestManifestsNameRules(t *testing.T) {
	found := 0
	each(t, "../manifests", ".yaml", func(path string, source []byte) {
		for _, match := range regexp.MustCompile(`\(([a-z]+/[a-z-]+)\)`).FindAllStringSubmatch(string(source), -1) {
			if found++; !isRule(match[1]) {
				t.Errorf("%s: there is no rule %s", path, match[1])
			}
		}
	})
	if found == 0 {
		t.Error("no manifest names a rule")
	}
}

func isRule(id string) bool { return RuleOf(verdict.RuleID(id)).ID != "" }

// each reads the files of a folder with an extension, without those of other modules.
func each(t *testing.T, folder, extension string, read func(path string, source []byte)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "e2e", "bench"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != extension:
			return nil
		}
		source, err := os.ReadFile(path)
		if err == nil {
			read(path, source)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
