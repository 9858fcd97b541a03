package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/snapshot"
)

// snapshotOf returns a snapshot with the objects of YAML documents, which seen is called with as when a cluster is
// read.
func snapshotOf(t *testing.T, documents string, seen func(*snapshot.Kind, []byte)) *snapshot.Snapshot {
	t.Helper()
	var objects []*snapshot.Object
	var read snapshot.Reader
	for document := range strings.SplitSeq("\n"+documents, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		var head struct{ APIVersion, Kind string }
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		for _, kind := range snapshot.Kinds() {
			if kind.GroupVersion().String() == head.APIVersion && kind.Kind == head.Kind {
				seen(kind, raw)
				objects = append(objects, read.Read(kind, raw))
			}
		}
	}
	var b snapshot.Builder
	return b.Put(time.Unix(0, 0), objects...)
}

func drawn(t *testing.T, documents, namespace string) string {
	t.Helper()
	var out bytes.Buffer
	if err := treeOf(snapshotOf(t, documents, func(*snapshot.Kind, []byte) {}), namespace).print(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// policies returns Policies that wait for others, from lines such as "a: b c".
func policies(lines ...string) string {
	var all []string
	for _, line := range lines {
		name, after, _ := strings.Cut(line, ":")
		document := fmt.Sprintf(`
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: %[1]s, namespace: p}
spec:
  policy-templates:
  - objectDefinition: {apiVersion: v1, kind: ConfigMap, metadata: {name: %[1]s}}
  dependencies:
`, name)
		for other := range strings.FieldsSeq(after) {
			document += fmt.Sprintf(
				"  - {apiVersion: policy.open-cluster-management.io/v1, kind: Policy, name: %s, compliance: Compliant}\n", other)
		}
		all = append(all, document)
	}
	return strings.Join(all, "\n---\n")
}

// TestTreeOfSample draws a sample as docs/plugin.md shows it.
func TestTreeOfSample(t *testing.T) {
	sample, err := os.ReadFile("../../../manifests/samples/policyset-in-order.yaml")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../../docs/plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	if got := drawn(t, string(sample), ""); got == "" || !strings.Contains(string(document),
		"\n$ kubectl opgate tree\n"+got+"```\n") {
		t.Errorf("docs/plugin.md shows another tree than\n%s", got)
	}
	if got := drawn(t, string(sample), "other"); got != "" {
		t.Errorf("another namespace: %s", got)
	}
}

func TestTreeOfCycle(t *testing.T) {
	got := drawn(t, policies("a: b", "b: c", "c: a"), "")
	want := `Policy p/a
├── waits for itself: Policy p/a -> Policy p/b -> Policy p/c -> Policy p/a
├── applies ConfigMap p/a
└── after Policy p/b: want Compliant
    ├── waits for itself: Policy p/b -> Policy p/c -> Policy p/a -> Policy p/b
    ├── applies ConfigMap p/b
    └── after Policy p/c: want Compliant
        ├── waits for itself: Policy p/c -> Policy p/a -> Policy p/b -> Policy p/c
        ├── applies ConfigMap p/c
        └── after Policy p/a (above): want Compliant
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTreeOfLongCycle: each of its Policies names a few of the others.
func TestTreeOfLongCycle(t *testing.T) {
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("p%d: p%d", i, (i+1)%100))
	}
	const want = "waits for itself: Policy p/p0 -> Policy p/p1 -> Policy p/p2 -> Policy p/p3 -> Policy p/p4 -> Policy p/p5 -> (89 more) -> " +
		"Policy p/p95 -> Policy p/p96 -> Policy p/p97 -> Policy p/p98 -> Policy p/p99 -> Policy p/p0\n"
	if got := drawn(t, policies(lines...), ""); !strings.Contains(got, want) {
		t.Errorf("got\n%.2000s", got)
	}
}

// TestTreeIsBounded draws a long chain, and a ladder on which a walk without memory would take 2^60 steps.
func TestTreeIsBounded(t *testing.T) {
	var chain, ladder []string
	for i := range 300 {
		chain = append(chain, fmt.Sprintf("p%d: p%d", i, i+1))
	}
	for i := range 60 {
		ladder = append(ladder, fmt.Sprintf("a%d: a%d b%d", i, i+1, i+1), fmt.Sprintf("b%d: a%d b%d", i, i+1, i+1))
	}
	for name, lines := range map[string][]string{"chain": chain, "ladder": ladder} {
		got := drawn(t, policies(lines...), "")
		for i := range lines {
			policy, _, _ := strings.Cut(lines[i], ":")
			if n := strings.Count(got, "applies ConfigMap p/"+policy+"\n"); n != 1 {
				t.Errorf("%s: %s is expanded %d times", name, policy, n)
			}
		}
		for line := range strings.Lines(got) {
			if len([]rune(line)) > 4*maxDepth+100 {
				t.Fatalf("%s: a line of %d characters", name, len(line))
			}
		}
	}
}

// TestTreeQuotes draws names that terminals obey.
func TestTreeQuotes(t *testing.T) {
	const hostile = `
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: a, namespace: p}
spec:
  policy-templates:
  - objectDefinition: {apiVersion: v1, kind: "Config\"]\nclick<b>#\\\e[2J\u009b", metadata: {name: "x\"; y -> z; \\"}}
  dependencies:
  - {apiVersion: policy.open-cluster-management.io/v1, kind: "P\"]|\e[31m", name: "n\"-->m", compliance: "C\"|\u202e"}
`
	got := drawn(t, hostile, "")
	if strings.ContainsAny(got, "\x1b\u009b\u202e") || !strings.Contains(got, "click") ||
		len(strings.Split(got, "\n")) > 12 {
		t.Errorf("got\n%q", got)
	}
}
