package docs

import (
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/site"
)

// TestSite renders the documents, and follows every link and picture of every page. No page loads anything from
// another host.
func TestSite(t *testing.T) {
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	output := t.TempDir()
	const source = "https://example.com/source/"
	pages, err := site.Write(site.Options{Root: checkout.Root, Output: output, Source: source})
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]site.Page{}
	for _, page := range pages {
		byPath[page.Path] = page
	}
	if len(pages) < 35 || byPath["index.html"].Title != "Opgate" {
		t.Fatalf("there are %d pages, the first is %q", len(pages), byPath["index.html"].Title)
	}
	links := 0
	for _, page := range pages {
		for _, link := range page.Links {
			u, err := url.Parse(link)
			if err != nil {
				t.Fatal(err)
			}
			if u.IsAbs() {
				continue
			}
			links++
			to := page.Path
			if u.Path != "" {
				to = path.Join(path.Dir(page.Path), u.Path)
			}
			if _, err := os.Stat(filepath.Join(output, filepath.FromSlash(to))); err != nil {
				t.Errorf("%s links %s, which is not there", page.Document, link)
			}
			if u.Fragment != "" && !byPath[to].Anchors[u.Fragment] {
				t.Errorf("%s links %s, and that page has no such heading", page.Document, link)
			}
		}
	}
	if links < 300 {
		t.Errorf("only %d links were followed", links)
	}
	foreign := regexp.MustCompile(`<(?:script|img|link|iframe|source)[^>]*(?:src|href)="(?:https?:)?//|url\(|@import`)
	err = filepath.WalkDir(output, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(file, ".svg") || strings.HasSuffix(file, "index.js") {
			return err
		}
		data, err := os.ReadFile(file)
		if found := foreign.Find(data); found != nil {
			t.Errorf("%s loads %s", file, found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, section := range site.Menu() {
		for _, document := range section.Documents {
			if _, err := os.Stat(filepath.Join(checkout.Root, filepath.FromSlash(document))); err != nil {
				t.Errorf("the menu has %s: %v", document, err)
			}
		}
	}
	t.Run("search", func(t *testing.T) { findsFirst(t, output) })
	t.Run("a link to nothing is refused", func(t *testing.T) {
		root := t.TempDir()
		for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "GOVERNANCE.md", "ROADMAP.md",
			"SECURITY.md",
			"manifests/chart/opgate/README.md", "docs/a.md"} {
			file := filepath.Join(root, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("# A\n\n[b](nowhere.md)\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := site.Write(site.Options{Root: root, Output: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "nowhere.md") {
			t.Errorf("got %v", err)
		}
	})
}

// questions of newcomers, and the section that answers each: one of the first three that the search finds.
var questions = map[string]string{
	"pin one operator to a version": "docs/first-hour.html#pin-one-operator-to-a-version",
	"upgrade waits":                 "docs/first-hour.html#an-upgrade-waits",
	"remove an operator":            "docs/first-hour.html#remove-an-operator-or-one-version",
	"helm install":                  "docs/install.html#with-helm",
	"argo cd":                       "docs/migration/argo-cd.html#with-argo-cd",
	"failurePolicy":                 "docs/backstop.html#which-failurepolicy",
	"break-glass":                   "docs/rules.html#break-glass",
	"maintenance window":            "docs/windows.html#recipe-a-maintenance-window",
	"memory limit":                  "docs/performance.html#sizing",
	"all fields":                    "docs/reference.html#reference-of-fields",
}

// findsFirst runs the search of the site on its index. Where node is not installed, it only looks for the sections.
func findsFirst(t *testing.T, output string) {
	index, err := os.ReadFile(filepath.Join(output, "index.js"))
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"docs/requirements", "docs/threats", "docs/decisions", "-scenarios."} {
		if strings.Contains(string(index), `"p":"`+left) {
			t.Errorf("the search has sections of %s", left)
		}
	}
	for question, section := range questions {
		if !strings.Contains(string(index), `"p":"`+section+`"`) {
			t.Errorf("the search has no section %s, for %q", section, question)
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed, so that the search does not run")
	}
	script, err := os.ReadFile(filepath.Join(output, "search.js"))
	if err != nil {
		t.Fatal(err)
	}
	_, find, _ := strings.Cut(string(script), "\nfunction find(")
	find, _, _ = strings.Cut(find, "\n}\n")
	for question, want := range questions {
		program := string(index) + ";\nfunction find(" + find + "\n}\n" +
			"for (const {section} of find(process.argv[2]).slice(0, 3)) console.log(section.p)"
		cmd := exec.CommandContext(t.Context(), node, "-", question)
		cmd.Stdin = strings.NewReader(program)
		got, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains("\n"+string(got), "\n"+want) {
			t.Errorf("%q finds\n%sand not %s", question, got, want)
		}
	}
}
