package check

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/cputime"
)

// wanted is all that is said about the repository, in the order of the bytes: refusals with place and rule, warnings,
// and what is not judged.
//
//go:embed testdata/company.txt
var wanted string

// company writes a repository as companies have them, goes there, and returns the number of its files.
func company(t testing.TB) (files int) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/company.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	put := func(name, text string) {
		files++
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
			os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range archive.Files {
		put(file.Name, string(file.Data))
	}
	for team := range 10 {
		at := fmt.Sprintf("teams/%02d/", team)
		put(at+"namespace.yaml", fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-%02d}\n", team))
		put(at+"quota.yaml", fmt.Sprintf(
			"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: quota, namespace: team-%02d}\n", team))
		put(at+"deployment.yaml",
			fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: team-%02d}\n", team))
	}
	put("crds/kustomization.yaml", "resources: [0.yaml, 1.yaml, 2.yaml, 3.yaml]\n")
	for i := range 4 { // as large as those of real operators
		put(fmt.Sprintf("crds/%d.yaml", i),
			fmt.Sprintf("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: large-%d}\nspec:\n  x:\n", i)+
				strings.Repeat("  - description: a field of a definition\n", 10_000))
	}
	forbidden := "apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: vault, namespace: shop}\n" +
		"spec: {name: vault, source: community, sourceNamespace: olm, installPlanApproval: Manual}\n"
	put("config/windows.yaml", strings.ReplaceAll(forbidden, "\n", "\r\n"))
	put("config/mark.yaml", "\ufeffapiVersion: v1\nkind: ConfigMap\nmetadata: {name: mark}\n")
	put("config/latin.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: latin}\ndata: {a: gr\xfc\xdfe}\n")
	wide := utf16.Encode([]rune("\ufeffapiVersion: v1\nkind: ConfigMap\nmetadata: {name: wide}\n"))
	octets := make([]byte, 0, 2*len(wide))
	for _, unit := range wide {
		octets = append(octets, byte(unit), byte(unit>>8))
	}
	put("config/wide.yaml", string(octets))
	for name, target := range map[string]string{"config/gone.yaml": "nowhere.yaml", "current": "clusters/dev",
		"teams/round": "..", "config/link.yaml": "comment.yaml"} {
		files++
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestCompany judges such a repository in one run: each planted violation is found once, and what is not read or not
// judged is named with the reason, and nothing else.
func TestCompany(t *testing.T) {
	source, err := filepath.Abs("testdata/company.txt")
	if err != nil {
		t.Fatal(err)
	}
	if files := company(t); files < 90 {
		t.Fatalf("%d files", files)
	}
	var got []string // each planted violation is a line that begins with Deny
	judgedOf(t, func(r *report) {
		for i := range r.judged {
			j := &r.judged[i]
			for _, why := range j.reasons() {
				got = append(got, fmt.Sprintf("%s %s (%s) %s", j.outcome(), j.title(), j.Short(), why.Rule))
			}
			for _, w := range findings(j) {
				got = append(got, "warning of "+j.title()+": "+w.Message)
			}
		}
		for _, p := range r.problems {
			got = append(got, "problem: "+p.String())
		}
		for _, n := range r.notes {
			got = append(got, n.String())
		}
	})
	slices.Sort(got)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(source, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Split(strings.TrimSpace(wanted), "\n")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// judgedOf passes on the report on the working directory.
func judgedOf(t testing.TB, see func(*report)) {
	t.Helper()
	formats["seen"] = func(_ io.Writer, r *report) error {
		see(r)
		return nil
	}
	defer delete(formats, "seen")
	cmd := Command(time.Now)
	cmd.SetArgs([]string{".", "-o", "seen"})
	cmd.SetOut(io.Discard)
	var stderr bytes.Buffer
	cmd.SetErr(&stderr)
	if err, ok := errors.AsType[*cli.ExitError](cmd.Execute()); !ok || err.Code != exitUnusable {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
}

// BenchmarkCompany judges such a repository. The result is CPU time as a ratio to building its kustomizations alone.
func BenchmarkCompany(b *testing.B) {
	company(b)
	var dirs []string
	if err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == "kustomization.yaml" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return err
	}); err != nil {
		b.Fatal(err)
	}
	var building, judging time.Duration
	for b.Loop() {
		start := cputime.Used()
		for _, dir := range dirs { // some need the network or plugins, and fail before that
			if dir != "clusters/edge" {
				_, _ = krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
			}
		}
		building += cputime.Used() - start
		start = cputime.Used()
		judgedOf(b, func(*report) {})
		judging += cputime.Used() - start
	}
	b.ReportMetric(judging.Seconds()/cmp.Or(building.Seconds(), 1), "times-building")
	b.ReportMetric(judging.Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(0, "ns/op")
}
