// Package ceilings keeps the repository from growing: ceilings.txt has how many lines each part of it may have. `make
// lint` runs it.
package ceilings

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root = "../.."
	// ofFile is the ceiling of a file of code that has no row.
	ofFile = 400
	advice = "lower it by deleting; a ceiling is raised only together with lowering another one by as much"
)

var update = flag.Bool("update", false, "lower the ceilings in ceilings.txt to what there is, and raise none")

//go:embed ceilings.txt
var table string

// row is a line of the table.
type row struct {
	// at is the index of its line.
	at               int
	kind             string
	ceiling, planned int
	// folders has an empty path where the row has none.
	folders []string
	// lines is what there is.
	lines int
}

func (r *row) String() string {
	return strings.TrimSpace(r.kind + " " + strings.Join(r.folders, " "))
}

// wanted is the ceiling that the row could have: what there is, but not less than what is planned.
func (r *row) wanted() int { return min(r.ceiling, max(r.lines, r.planned)) }

// parse reads a table.
func parse(table string) (rows []*row, err error) {
	seen := map[string]bool{}
	for i, line := range strings.Split(table, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		fields := append(strings.Split(line, " | "), "", "")
		r := &row{at: i, kind: fields[0], folders: strings.Split(fields[3], " ")}
		if r.ceiling, err = strconv.Atoi(fields[1]); err == nil {
			r.planned, err = strconv.Atoi(fields[2])
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		for _, folder := range r.folders {
			if seen[r.kind+" "+folder] {
				return nil, fmt.Errorf("%q: another row of kind %s has folder %q: leave it in one", line, r.kind, folder)
			}
			seen[r.kind+" "+folder] = true
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// kindOf returns the kind of a file, as the table calls it, or nothing for one that is not counted.
func kindOf(file string) string {
	top, _, _ := strings.Cut(file, "/")
	switch {
	case file == "docs/reference.md": // generated
		return ""
	case strings.HasSuffix(file, ".md"):
		return "documents"
	case !strings.HasSuffix(file, ".go") || strings.Contains(file, "zz_generated"):
		return ""
	case top == "e2e" || top == "tools" || top == "bench":
		return "clusters"
	case strings.HasSuffix(file, "_test.go"):
		return "tests"
	}
	return "code"
}

// rowOf returns the row of a kind with the longest folder that a file is in, or nil.
func rowOf(rows []*row, kind, file string) (found *row) {
	longest := -1
	for _, r := range rows {
		for _, folder := range r.folders {
			in := folder == "" || folder == file || strings.HasPrefix(file, folder+"/")
			if r.kind == kind && in && len(folder) > longest {
				found, longest = r, len(folder)
			}
		}
	}
	return found
}

// check counts files, of which it has the numbers of lines, in their rows, and returns what is wrong.
func check(rows []*row, files map[string]int) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, file := range slices.Sorted(maps.Keys(files)) {
		kind := kindOf(file)
		if kind == "" {
			continue
		}
		r := rowOf(rows, kind, file)
		if r == nil {
			problem("%s is in no row: add its folder to one of kind %s", file, kind)
			continue
		}
		r.lines += files[file]
		if own := rowOf(rows, "file", file); own == nil && kind == "code" && files[file] > ofFile {
			problem("%s has %d lines, %d above the ceiling of %d for a file: it has two subjects, or code to delete",
				file, files[file], files[file]-ofFile, ofFile)
		}
	}
	total := 0
	for _, r := range rows {
		switch r.kind {
		case "code":
			total += r.lines
		case "sum":
			r.lines = total
		case "file":
			if r.lines = files[r.folders[0]]; r.lines <= ofFile {
				problem("%s has %d lines and needs no row any more: remove it", r, r.lines)
			}
		}
		if r.lines > r.ceiling {
			problem("%s: there are %d lines, %d above the ceiling of %d: %s",
				r, r.lines, r.lines-r.ceiling, r.ceiling, advice)
		}
	}
	return problems
}

// lower returns a table with its ceilings lowered to what check has counted, and without files that need no row.
func lower(table string, rows []*row) string {
	lines := strings.Split(table, "\n")
	for _, r := range slices.Backward(rows) {
		if r.kind == "file" && r.lines <= ofFile {
			lines = slices.Delete(lines, r.at, r.at+1)
			continue
		}
		lines[r.at] = strings.Replace(lines[r.at], fmt.Sprint(r.ceiling), fmt.Sprint(r.wanted()), 1)
	}
	return strings.Join(lines, "\n")
}

// count returns the number of lines of each file of the repository by its path.
func count(t *testing.T) map[string]int {
	t.Helper()
	files := map[string]int{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		file := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (name == "bin" || name == "testdata" || name[0] == '.'):
			return filepath.SkipDir
		case entry.IsDir() || kindOf(file) == "":
			return nil
		}
		data, err := os.ReadFile(path)
		files[file] = bytes.Count(data, []byte{'\n'})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCeilings(t *testing.T) {
	rows, err := parse(table)
	if err != nil {
		t.Fatal("ceilings.txt: ", err)
	}
	problems := check(rows, count(t))
	if *update {
		if err := os.WriteFile("ceilings.txt", []byte(lower(table, rows)), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	for _, r := range rows {
		if r.ceiling-r.wanted() > r.ceiling*3/100 {
			t.Logf("%s: there are %d lines, and the ceiling is %d: lower it to %d, or all by -args -update",
				r, r.lines, r.ceiling, r.wanted())
		}
	}
}
