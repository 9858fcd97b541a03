package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented are the documents that requirements.md covers, by the letter of their IDs, and how many requirements each
// has.
var documented = []struct {
	letter string
	n      int
}{
	{letter: "D", n: 113},
	{letter: "E", n: 27},
	{letter: "M", n: 99},
	{letter: "P", n: 43},
	{letter: "C", n: 37},
}

// TestRequirementsAreCovered compares the tables of requirements.md with the tests: every requirement has a row, in
// order, with tests that exist or with a reason, and the summary counts them.
func TestRequirementsAreCovered(t *testing.T) {
	document := document(t, "requirements.md")
	rows := regexp.MustCompile(`(?m)^\| ([DEMPC]-\d+) \| [^|]+ \|([^|]*)\|([^|]*)\|$`).FindAllStringSubmatch(document,
		-1)
	var have, want []string
	for _, d := range documented {
		for n := range d.n {
			want = append(want, fmt.Sprintf("%s-%d", d.letter, n+1))
		}
	}
	exists := tests(t)
	counts := map[string]int{}
	for _, row := range rows {
		id, named, status := row[1], row[2], strings.TrimSpace(row[3])
		have = append(have, id)
		kind := regexp.MustCompile(`^(Differs|Open|Out of scope)[:,] \S`).FindStringSubmatch(status)
		found := regexp.MustCompile("`(Test[^`]+)`").FindAllStringSubmatch(named, -1)
		switch {
		case kind != nil:
			counts[kind[1]]++
		case status != "":
			t.Errorf("%s says %q: begin with what it is: Differs, Open or Out of scope", id, status)
		case len(found) == 0:
			t.Errorf("%s has neither a test nor a reason", id)
		default:
			counts["shown"]++
		}
		for _, m := range found {
			if !exists(m[1]) {
				t.Errorf("%s names %s, which is no test", id, m[1])
			}
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("the rows are\n%v, want\n%v", have, want)
	}
	summary := fmt.Sprintf("Of %d requirements %d are shown by tests, %d differ on purpose, %d are out of scope and %d are open.",
		len(want), counts["shown"], counts["Differs"], counts["Out of scope"], counts["Open"])
	if !strings.Contains(document, summary) {
		t.Errorf("the summary is not %q", summary)
	}
}
