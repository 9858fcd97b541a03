// Package scenariotest has what the tests that play all of e2e/scenarios share.
package scenariotest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/admission/scenario"
)

// Load reads all scenarios of a directory, sorted by name, for a cluster. They must stand for themselves: none refers
// to files beside it.
func Load(t testing.TB, dir string, versions scenario.Versions) (all []*scenario.Scenario) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(dir, "*"+scenario.Extension)) // the error is that of a pattern
	for _, path := range paths {
		data, err := os.ReadFile(path) //nolint:gosec // a file that the caller names
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenario.Parse(path, data, versions)
		if err != nil {
			t.Fatalf("%s:%v", path, err)
		}
		if s.With != nil {
			t.Fatalf("%s:%d: with is for opgate test alone", path, s.Line("with"))
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		t.Fatal("no scenarios in " + dir)
	}
	return all
}

// HeldByBackstop and HeldByDeletion end refusals that are the API server's own.
const (
	HeldByBackstop = "held by the API server (ValidatingAdmissionPolicy opgate-backstop)"
	HeldByDeletion = "held by the API server (ValidatingAdmissionPolicy opgate-deletion)"
)

// UIDPlaceholder is in Backstop in place of the UID of the object.
const UIDPlaceholder = "${UID}"

// Way returns how the scenario writes, as far as the API server needs it to ask the right webhook: the verb, the kind in
// lower case, and "olm" for OLM, whose steps have webhooks of their own.
func Way(s *scenario.Scenario) string {
	kind, user := s.Kind, ""
	if s.Write != nil {
		kind = strings.ToLower(s.Write.GetKind())
	}
	if s.User == "olm" {
		user = s.User
	}
	return strings.TrimSpace(s.Verb + " " + kind + " " + user)
}

// Shared are the namespaces that scenarios have in common.
var Shared = []string{"olm", "opgate-system"}

// Apart returns a scenario with a suffix to the name of each of its namespaces, in what is written and in what is
// answered.
func Apart(t testing.TB, s *scenario.Scenario, suffix string) *scenario.Scenario {
	t.Helper()
	names := []string{s.Namespace}
	text := string(s.Text)
	for _, match := range namespaceField.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch {
		case name == "" || slices.Contains(Shared, name):
		case name == policyNamespace: // a word of messages as well
			text = policyNamespaces.ReplaceAllStringFunc(text, func(found string) string {
				return strings.Replace(found, name, name+suffix, 1)
			})
		default:
			text = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(text, name+suffix)
		}
	}
	apart, err := scenario.Parse(s.Name, []byte(text), scenario.Versions{})
	if err != nil {
		t.Fatal(err)
	}
	return apart
}

// policyNamespace is the namespace of OperatorPolicies.
const policyNamespace = "policies"

var (
	namespaceField   = regexp.MustCompile(`[\s{]namespace: ([a-z0-9-]+)`)
	policyNamespaces = regexp.MustCompile(`(namespace:? |")` + policyNamespace + `\b|\b` + policyNamespace + `/`)
)
