package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/admission/webhooks"
)

// numerals are the words for numbers in documents, by their number.
var numerals = []string{
	"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
	"thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
}

// counts are the numbers of things of the repository that documents name. The first group of the expression is the
// number, as a word or in digits.
var counts = []struct {
	document, says string
	count          func(t *testing.T) int
}{
	{
		document: "docs/performance.md", says: `Every write of the (\w+) kinds that the webhooks match`,
		count: gatedKinds,
	},
	{document: "docs/threats.md", says: `its webhooks match (\w+) kinds`, count: gatedKinds},
	{document: "docs/concepts.md", says: `in front of (\w+) kinds`, count: gatedKinds},
	{document: "docs/threats.md", says: "`failurePolicy: Ignore` stands in (\\w+) entries", count: ignoredEntries},
	{
		document: "docs/README.md", says: `(\w+) commands for emergencies`,
		count: matches("docs/emergency.md", `(?m)^.* # \d+\. `),
	},
	{
		document: "docs/operatorpolicy-scenarios.md", says: `has (\w+) end-to-end scenarios`,
		count: matches("docs/operatorpolicy-scenarios.md", `(?m)^\| \d+\.\d+ \|`),
	},
	{
		document: "docs/operatorpolicy-scenarios.md", says: `scenarios in (\w+) groups`,
		count: matches("docs/operatorpolicy-scenarios.md", `(?m)^\| \d+\.1 \|`),
	},
	{document: "docs/release.md", says: `platforms of the binaries \| (\w+) \|`, count: releaseTargets},
	{
		document: "docs/requirements.md", says: `Of (\d+) requirements`,
		count: matches("docs/requirements.md", `(?m)^\| [A-Z]-\d+ \|`),
	},
	{document: "manifests/samples/README.md", says: `and (\w+) recipes`, count: recipes},
	{document: "README.md", says: `Kubernetes 1\.(\d+) to 1\.\d+ and OLM`, count: tested("kubernetes", slices.Min[[]int])},
	{document: "README.md", says: `Kubernetes 1\.\d+ to 1\.(\d+) and OLM`, count: tested("kubernetes", slices.Max[[]int])},
	{document: "README.md", says: `OLM v0\.(\d+) to v0\.\d+ are`, count: tested("olm", slices.Min[[]int])},
	{document: "README.md", says: `OLM v0\.\d+ to v0\.(\d+) are`, count: tested("olm", slices.Max[[]int])},
	{
		document: "CONTRIBUTING.md", says: `the campaign: (\w+) rows`,
		count: matches("e2e/faults/schedules_test.go", `\bshort: true`),
	},
}

// countPhrase matches a number of what this repository has and a change may add to.
var countPhrase = regexp.MustCompile(`(?i)\b(\d+|` + strings.Join(numerals[2:], "|") +
	`)( [a-z-]+)? (scenarios|alerts|metrics|recipes|attacks|runbooks|requirements)\b`)

// otherCounts are phrases of that form that count nothing of this repository: metrics that are named beside their number.
var otherCounts = []string{"two metrics"}

// TestCounts compares the numbers in documents with what they count, and wants a row for each number of scenarios,
// alerts, metrics, recipes, attacks and the like.
func TestCounts(t *testing.T) {
	all := pages(t)
	compared := map[string]bool{}
	for _, c := range counts {
		found := regexp.MustCompile(c.says).FindStringSubmatch(all[c.document])
		if found == nil {
			t.Errorf("%s has nothing like %q any more: remove its row", c.document, c.says)
			continue
		}
		compared[c.document+": "+found[0]] = true
		stated, err := strconv.Atoi(found[1])
		if err != nil {
			stated = slices.Index(numerals, strings.ToLower(found[1]))
		}
		if got := c.count(t); got != stated {
			t.Errorf("%s: %q, but there are %d", c.document, found[0], got)
		}
	}
	used := map[string]bool{}
	for name, text := range all {
		for _, phrase := range countPhrase.FindAllString(text, -1) {
			used[phrase] = true
			known := slices.Contains(otherCounts, phrase)
			for says := range compared {
				known = known || strings.HasPrefix(says, name+": ") && strings.Contains(says, phrase)
			}
			if !known {
				t.Errorf("%s: %q is compared with nothing: add a row to counts, or leave the number out", name, phrase)
			}
		}
	}
	for _, phrase := range otherCounts {
		if !used[phrase] {
			t.Errorf("no document has %q: remove it from otherCounts", phrase)
		}
	}
}

// matches counts the matches of an expression in a file.
func matches(file, expression string) func(t *testing.T) int {
	return func(t *testing.T) int {
		t.Helper()
		return len(regexp.MustCompile(expression).FindAllString(strings.Join(lines(t, "../"+file), "\n"), -1))
	}
}

// webhookEntries are those of the webhook configurations.
func webhookEntries(t *testing.T) []webhooks.Entry {
	t.Helper()
	all, err := webhooks.New(webhooks.Settings{FailurePolicy: admissionregistrationv1.Fail})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(all.Mutating, all.Validating)
}

// gatedKinds is the number of kinds that webhooks match.
func gatedKinds(t *testing.T) int {
	t.Helper()
	kinds := map[string]bool{}
	for _, entry := range webhookEntries(t) {
		resource, _, _ := strings.Cut(entry.Rules[0].Resources[0], "/")
		kinds[entry.Rules[0].APIGroups[0]+"/"+resource] = true
	}
	return len(kinds)
}

// ignoredEntries is the number of entries that let a write pass while no pod answers.
func ignoredEntries(t *testing.T) (found int) {
	t.Helper()
	for _, entry := range webhookEntries(t) {
		if *entry.FailurePolicy == admissionregistrationv1.Ignore {
			found++
		}
	}
	return found
}

// releaseTargets is the number of platforms that releases have binaries for, which `opgate_linux_amd64` is one of.
func releaseTargets(t *testing.T) int {
	t.Helper()
	quoted := regexp.MustCompile(`"(linux|darwin|windows)/\w+"`)
	source := strings.Join(lines(t, "../tools/release/binaries.go"), "\n")
	platforms := strings.Join(lines(t, "../tools/image/binary.go"), "\n")
	list := regexp.MustCompile(`(?s)func DefaultPlatforms\(\).*?\n}`).FindString(platforms) +
		regexp.MustCompile(`(?s)func Targets\(\).*?\n}`).FindString(source)
	return len(quoted.FindAllString(list, -1))
}

// recipes is the number of samples that are recipes.
func recipes(t *testing.T) (found int) {
	t.Helper()
	files, err := filepath.Glob("../manifests/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if lines(t, file)[0] == "# recipe" {
			found++
		}
	}
	return found
}

// tested returns the oldest or the newest minor version of those that passed.
func tested(of string, which func([]int) int) func(t *testing.T) int {
	return func(t *testing.T) int {
		t.Helper()
		var rows []map[string]any
		if err := yaml.Unmarshal([]byte(strings.Join(lines(t, "compatibility.json"), "\n")), &rows); err != nil {
			t.Fatal(err)
		}
		var minors []int
		for _, row := range rows {
			if version, _ := row[of].(string); row["status"] == "passed" {
				minor, err := strconv.Atoi(strings.Split(version, ".")[1])
				if err != nil {
					t.Fatal(err)
				}
				minors = append(minors, minor)
			}
		}
		return which(minors)
	}
}
