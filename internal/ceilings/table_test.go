package ceilings

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// sample is a table of two folders, one in the other, and of what is in neither.
const sample = `# a comment
code | 100 | 80 | a b
code | 50 | 50 | a/deep
code | 450 | 400 | a/long.go
sum | 590 | 530
code | 10 | 10 | a/later
tests | 70 | 60
file | 450 | 400 | a/long.go`

// files are the numbers of lines of files.
type files = map[string]int

// TestCheck has repositories that break the table in each way, and what is said of them.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		has  files
		want string // what a problem has, or nothing
	}{
		"as much as there may be": {has: files{"a/x.go": 60, "b/x.go": 40, "a/deep/x.go": 50, "x_test.go": 70}},
		"what is not counted":     {has: files{"a/zz_generated.go": 500, "c/x.yaml": 500}},
		"one line too many":       {has: files{"a/x.go": 60, "b/x.go": 41}, want: "code a b: there are 101 lines, 1 "},
		"in the longest folder":   {has: files{"a/deep/x.go": 51}, want: "code a/deep: there are 51 lines, 1 above"},
		"not part of a name":      {has: files{"a/deeper.go": 90}},
		"the sum":                 {has: files{"b/x.go": 100, "a/deep/x.go": 50, "a/long.go": 441}, want: "sum: there"},
		"not in the sum":          {has: files{"b/x.go": 100, "a/deep/x.go": 49, "a/long.go": 441, "a/later/x.go": 10}},
		"in no row":               {has: files{"c/x.go": 1}, want: "c/x.go is in no row"},
		"no row of its kind":      {has: files{"a/x.md": 1}, want: "a/x.md is in no row"},
		"a tool is no code":       {has: files{"tools/a/x.go": 1}, want: "of kind clusters"},
		"a test is no code":       {has: files{"a/x_test.go": 71}, want: "tests: there are 71 lines"},
		"a long file":             {has: files{"a/x.go": 401}, want: "a/x.go has 401 lines, 1 above"},
		"a long test":             {has: files{"a/x_test.go": 401}, want: "tests: there are 401 lines"},
		"a longer file":           {has: files{"a/long.go": 451}, want: "file a/long.go: there are 451 lines"},
		"no long file any more":   {has: files{"a/long.go": 400}, want: "needs no row any more"},
	} {
		rows, err := parse(sample)
		if err != nil {
			t.Fatal(err)
		}
		test.has["a/long.go"] = cmp.Or(test.has["a/long.go"], 401)
		problems := check(rows, test.has)
		said := slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, test.want) })
		if said == (test.want == "") {
			t.Errorf("%s: the problems are %q, want %q", name, problems, test.want)
		}
	}
	if _, err := parse(sample + "\ncode | 1 | 1 | b"); err == nil || !strings.Contains(err.Error(), `folder "b"`) {
		t.Errorf("a folder in two rows: %v", err)
	}
	if _, err := parse(sample + "\ntests | 1 | 1"); err == nil {
		t.Error("two rows have all tests")
	}
}

// TestLower lowers a table to what there is and to no less than what is planned, and raises nothing.
func TestLower(t *testing.T) {
	rows, err := parse(sample)
	if err != nil {
		t.Fatal(err)
	}
	check(rows, files{"a/x.go": 90, "a/deep/x.go": 70, "c/x_test.go": 20})
	want := `# a comment
code | 90 | 80 | a b
code | 50 | 50 | a/deep
code | 400 | 400 | a/long.go
sum | 530 | 530
code | 10 | 10 | a/later
tests | 60 | 60`
	if got := lower(sample, rows); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}
