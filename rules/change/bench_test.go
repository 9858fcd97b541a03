package change

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// largePlan returns the manifests of a plan of 20 bundles with 1.2 MiB: some 60 KiB for each, half of it the schema of
// one CustomResourceDefinition, with a change in each bundle since the version before.
func largePlan(tb testing.TB, version string) [][]json.RawMessage {
	tb.Helper()
	bundles := make([][]json.RawMessage, 20)
	size := 0
	for i := range bundles {
		name := fmt.Sprintf("operator%d", i)
		csv := strings.NewReplacer("NAME", name, "VERSION", version).Replace(largeCSV(version))
		crd := strings.NewReplacer("NAME", name, "VERSION", version).Replace(largeDefinition(version))
		bundles[i] = []json.RawMessage{json.RawMessage(csv), json.RawMessage(crd)}
		size += len(csv) + len(crd)
	}
	if size < 1200<<10 || size > 1400<<10 {
		tb.Fatalf("the plan has %d bytes", size)
	}
	return bundles
}

func largeCSV(version string) string {
	var rules, containers []string
	for i := range 60 {
		rules = append(rules, fmt.Sprintf(
			`{"apiGroups":["group%d.example.com"],"resources":["things","things/status","others"],"verbs":["get","list","watch"]}`, i))
	}
	rules = append(rules, `{"apiGroups":[""],"resources":["v`+version[:1]+`"],"verbs":["get","list"]}`)
	for i := range 4 {
		containers = append(containers,
			fmt.Sprintf(`{"name":"c%d","image":"quay.io/example/c%d:v1","args":["--a","--b"],"resources":{}}`, i, i))
	}
	return `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"NAME.vVERSION",
		"annotations":{"alm-examples":` + fmt.Sprintf("%q", strings.Repeat(`{"spec":{"size":3}} `, 400)) + `}},
		"spec":{"displayName":"NAME","version":"VERSION","description":"` + strings.Repeat("Some words on what it does. ", 350) + `",
		"install":{"strategy":"deployment","spec":{"clusterPermissions":[{"serviceAccountName":"a","rules":[` + strings.Join(rules, ",") + `]}],
		"deployments":[{"name":"d","spec":{"selector":{},"template":{"spec":{"containers":[` + strings.Join(containers, ",") + `]}}}}]}}}}`
}

func largeDefinition(version string) string {
	var fields []string
	for i := range 19 {
		var inner []string
		for j := range 8 {
			inner = append(inner, fmt.Sprintf(
				`"inner%d":{"type":"string","maxLength":63,"description":"What this field is for, in one line of some length."}`, j))
		}
		fields = append(fields, fmt.Sprintf(
			`"field%d":{"type":"object","description":"A group of fields.","properties":{%s}}`, i,
			strings.Join(inner, ",")))
	}
	fields = append(fields, `"last":{"type":"integer","maximum":`+version[:1]+`}`)
	schema := `{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{` +
		strings.Join(fields, ",") + `}}}}}`
	versions := `{"name":"v1","served":true,"storage":true,"schema":` + schema +
		`},{"name":"v1alpha1","served":true,"storage":false,"schema":` + schema + `}`
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.NAME.example.com"},
		"spec":{"group":"NAME.example.com","scope":"Namespaced","names":{"kind":"Thing","plural":"things"},"versions":[` + versions + `]}}`
}

// BenchmarkRead reads the facts of all bundles of a plan, which is done once for a plan.
func BenchmarkRead(b *testing.B) {
	after := largePlan(b, "1.0.0")
	for b.Loop() {
		for i := range after {
			if c := ReadContents(fmt.Sprintf("operator%d.v1.0.0", i), "", after[i]); c.Fault != "" {
				b.Fatal(c.Fault)
			}
		}
	}
}

// BenchmarkPlan reads all of a plan, and all that is installed, of which every definition differs, and compares them.
func BenchmarkPlan(b *testing.B) {
	before, after := largePlan(b, "2.0.0"), largePlan(b, "1.0.0")
	b.ReportAllocs()
	for b.Loop() {
		for i := range after {
			to := ReadContents(fmt.Sprintf("operator%d.v1.0.0", i), "", after[i])
			from := ReadContents(fmt.Sprintf("operator%d.v2.0.0", i), "", before[i])
			if set := Compare(from, to); set.Fault != "" || len(set.Differences) != 3 {
				b.Fatalf("fault %q, differences %q", set.Fault, texts(set))
			}
		}
	}
}

// BenchmarkFirstPlan is BenchmarkPlan with nothing installed.
func BenchmarkFirstPlan(b *testing.B) {
	after := largePlan(b, "1.0.0")
	for b.Loop() {
		for i := range after {
			if set := Compare(ReadContents("", "", nil),
				ReadContents(fmt.Sprintf("operator%d.v1.0.0", i), "", after[i])); set.Digest() == "" {
				b.Fatalf("fault %q", set.Fault)
			}
		}
	}
}
