package fair_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/fair"
)

// TestO77Shares fills tables at random: no more is kept than there is room for, a namespace that needs no more than an
// equal share keeps everything whatever the others do, and of one that needs more the newest fall out.
func TestO77Shares(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit, namespaces := 1+random.IntN(100), 1+random.IntN(5)
		var claims []fair.Claim[int]
		needs := map[string]int{}
		for i := range random.IntN(60) {
			c := fair.Claim[int]{Row: i, Weight: 1 + random.IntN(8), Origin: fair.Origin{Name: fmt.Sprint(i),
				Namespace: fmt.Sprint(random.IntN(namespaces)), Created: random.Int64N(20)}}
			claims = append(claims, c)
			needs[c.Namespace] += c.Weight
		}
		kept, left := fair.Within(claims, limit)
		if len(kept)+len(left) != len(claims) {
			t.Fatalf("seed %d: of %d claims %d are kept, and %d left", seed, len(claims), len(kept), len(left))
		}
		total, smallest := 0, map[string]int{}
		for _, c := range kept {
			total += c.Weight
		}
		for _, c := range claims {
			if slices.Contains(left, c.Origin) && needs[c.Namespace] <= limit/namespaces {
				t.Errorf("seed %d: %v falls out, although its namespace needs %d of %d", seed, c, needs[c.Namespace], limit)
			}
		}
		slices.SortStableFunc(claims, func(a, b fair.Claim[int]) int { return int(a.Created - b.Created) })
		for _, c := range claims {
			switch fits := smallest[c.Namespace]; {
			case slices.Contains(left, c.Origin) && (fits == 0 || c.Weight < fits):
				smallest[c.Namespace] = c.Weight
			case !slices.Contains(left, c.Origin) && fits != 0 && c.Weight >= fits &&
				!slices.ContainsFunc(claims, func(o fair.Claim[int]) bool {
					return o.Namespace == c.Namespace && o.Created == c.Created && o.Row != c.Row
				}):
				t.Errorf("seed %d: %v is kept, and an older one of its namespace that needs less is not", seed, c)
			}
		}
		if total > limit {
			t.Errorf("seed %d: %d are kept of %d", seed, total, limit)
		}
	}
}

// TestO77OneRow: a row that several ask for takes its room once, and stays if one of them has room.
func TestO77OneRow(t *testing.T) {
	var claims []fair.Claim[string]
	for i := range 30 {
		claims = append(claims, fair.Claim[string]{Row: "common", Weight: 1, Origin: fair.Origin{Namespace: fmt.Sprint("n", i)}})
	}
	for i := range 5 {
		claims = append(claims, fair.Claim[string]{Row: fmt.Sprint("own-", i), Weight: 1, Origin: fair.Origin{Namespace: "a",
			Name: fmt.Sprint(i)}})
	}
	kept, left := fair.Within(claims, 4)
	if got := fair.Rows(kept); !slices.Equal(got, []string{"own-0", "common", "own-1", "own-2"}) ||
		!slices.Equal(left, []fair.Origin{{Namespace: "a", Name: "3"}, {Namespace: "a", Name: "4"}}) {
		t.Errorf("kept are %v, left is %v", got, left)
	}
}

// cuts are the places in which lists are cut at a limit, with why no author and no tenant loses anything by that.
var cuts = map[string]string{
	"catalog/record.go":                               "examples of one poll, for a message",
	"catalog/heads.go":                                "versions of one package of one catalog, in a table that is shared",
	"certs/rotation.go":                               "certificates of Opgate",
	"cmd/opgate/plugin/plugin.go":                     "what a command shows",
	"controller/policy/watches/trim.go":               "one text",
	"controller/constraint/status.go":                 "faults of one Constraint, for its status",
	"controller/operatorpolicy/compliance/catalog.go": "the history of one policy",
	"controller/operatorpolicy/compliance/removal.go": "plans of one policy, for its status",
	"controller/operatorpolicy/compliance/message.go": "parts of one message",
	"internal/text/text.go":                           "parts of one message",
	"rules/backstop/rows.go":                          "accounts of one namespace, of OperatorGroups in it",
	"rules/dependency/pending.go":                     "dependencies of one Policy, for its status",
	"rules/dependency/read.go":                        "dependencies of one Policy, from its status",
	"rules/dependency/status.go":                      "the history of one Policy",
	"rules/operatorpolicy/parse.go":                   "faults of one policy, for a message",
	"rules/cluster.go":                                "examples in the status of a Constraint, beside their number",
	"rules/verdict/verdict.go":                        "faults of one object, for a message",
	"controller/report/results.go":                    "results of one namespace, beside their number",
	"admission/review.go":                             "reasons and warnings of one answer",
}

// TestO77Cuts: no list that authors of policies or tenants fill is cut at a limit but by Within.
func TestO77Cuts(t *testing.T) {
	cut := regexp.MustCompile(`(\w+)\[:(?:min\(len\(\w[\w.]*\), *[\w.]+\)|[mM](?:ax|ost)\w+)\]`)
	root, found := filepath.Join("..", ".."), map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch first, _, _ := strings.Cut(name, string(filepath.Separator)); {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"e2e", "tools", "bench"}, first) || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, at := range cut.FindAllStringSubmatch(string(text), -1) {
			if slices.Contains([]string{"name", "Name", "text", "instance", "data"}, at[1]) {
				continue // a text
			}
			if found[filepath.ToSlash(name)] = true; cuts[filepath.ToSlash(name)] == "" {
				t.Errorf("%s cuts a list: %s: use Within, or say in this test why nothing is lost", name, at[0])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range cuts {
		if !found[name] {
			t.Errorf("%s cuts nothing any more", name)
		}
	}
}
