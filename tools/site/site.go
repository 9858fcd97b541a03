// Package site renders the documents of the repository as static pages, by goldmark: a page for each, with a menu, the
// headings of the page, and a search that needs no server. Nothing is loaded from another host.
package site

import (
	"bytes"
	_ "embed" // for the template, the style and the script
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

var (
	//go:embed page.html
	pageText string
	//go:embed site.css
	style []byte
	//go:embed search.js
	script []byte

	pageTemplate = template.Must(template.New("page").Parse(pageText))
	markdown     = goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithUnsafe()))
)

// Section is a part of the menu.
type Section struct {
	Title string
	// Documents are paths from the root of the repository, in order.
	Documents []string
}

// inRepositoryOnly are documents that are no pages: those that tests and reviewers read, beside the code.
func inRepositoryOnly(document string) bool {
	return strings.HasPrefix(document, "docs/decisions/") || slices.Contains([]string{"docs/requirements.md",
		"docs/threats.md", "docs/operatorpolicy-scenarios.md", "docs/ordering-scenarios.md"}, document)
}

// Menu returns the sections of the site. A document that it does not name is in the last one.
func Menu() []Section {
	return []Section{
		{"Begin", []string{"README.md", "docs/first-hour.md", "docs/concepts.md"}},
		{"Policies", []string{"docs/operatorpolicy.md", "docs/reference.md", "docs/constraints.md", "docs/consent.md", "docs/windows.md",
			"docs/deletion.md", "docs/sources.md", "docs/ordering.md", "docs/rules.md"}},
		{"Commands", []string{"docs/check.md", "docs/test.md", "docs/plugin.md", "docs/diff.md"}},
		{"Run", []string{"docs/install.md", "docs/openshift.md", "docs/fleet.md", "docs/disconnected.md",
			"docs/upgrade.md", "docs/backup.md", "docs/metrics.md", "docs/runbooks.md", "docs/backstop.md",
			"docs/emergency.md", "docs/certificates.md"}},
		{"More", nil},
	}
}

// Page is a document as a page.
type Page struct {
	// Document is the path of the Markdown file, Path that of the page, both from their roots.
	Document, Path string
	Title          string
	// Headings are those that the page lists.
	Headings []Heading
	// Anchors are all that links may name.
	Anchors map[string]bool
	// Links are the targets of the page's links as they are written into it.
	Links []string

	body []byte
	// sections are what the search finds.
	sections []*section
}

// Heading is a heading of the second level.
type Heading struct{ ID, Title string }

// section is a heading of a page and what is below it, up to the next one: text and code, without markup.
type section struct {
	Heading
	words strings.Builder
}

// Options are where documents are and where pages go.
type Options struct {
	// Root is the repository. Output is a directory, which is replaced.
	Root, Output string
	// Source is the URL of the repository at one commit, for links to files that are no pages; it ends with a slash.
	Source string
}

// Write renders the site. Links to documents become links to pages, links to other files of the repository links to
// Source. It fails for a link to a file that does not exist.
func Write(o Options) ([]Page, error) {
	documents, err := find(o.Root)
	if err != nil {
		return nil, err
	}
	var pages []Page
	for _, document := range documents {
		page, err := render(o, document, documents)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", document, err)
		}
		pages = append(pages, page)
	}
	if err := os.RemoveAll(o.Output); err != nil {
		return nil, err
	}
	for i := range pages {
		if err := writePage(o, pages, &pages[i]); err != nil {
			return nil, err
		}
	}
	return pages, errors.Join(writeIndex(o, pages), copyPictures(o),
		os.WriteFile(filepath.Join(o.Output, "site.css"), style, 0o600),
		os.WriteFile(filepath.Join(o.Output, "search.js"), script, 0o600))
}

// find returns the documents that become pages: the README, those in docs that users read, and a few others.
func find(root string) ([]string, error) {
	documents := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "GOVERNANCE.md", "ROADMAP.md", "SECURITY.md",
		"manifests/chart/opgate/README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".md" {
			return err
		}
		name, err := filepath.Rel(root, file)
		if name = filepath.ToSlash(name); !inRepositoryOnly(name) {
			documents = append(documents, name)
		}
		return err
	})
	slices.Sort(documents)
	return documents, err
}

// pathOf returns the path of the page of a document.
func pathOf(document string) string {
	switch {
	case document == "README.md":
		return "index.html"
	case path.Base(document) == "README.md":
		return path.Join(path.Dir(document), "index.html")
	}
	return strings.TrimSuffix(document, ".md") + ".html"
}

func render(o Options, document string, documents []string) (Page, error) {
	source, err := os.ReadFile(filepath.Join(o.Root, filepath.FromSlash(document)))
	if err != nil {
		return Page{}, err
	}
	page := Page{Document: document, Path: pathOf(document), Title: document, Anchors: map[string]bool{}}
	tree := markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(ids{}))))
	in := &section{}
	err = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			title, anchor := textOf(n, source), string(id.([]byte))
			page.Anchors[anchor] = true
			if n.Level == 1 && page.Title == document {
				page.Title = title
			}
			if n.Level == 2 {
				page.Headings = append(page.Headings, Heading{anchor, title})
			}
			in = &section{Heading: Heading{anchor, title}}
			page.sections = append(page.sections, in)
		case *ast.Link:
			target, err := o.link(document, string(n.Destination), documents)
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(target)
			page.Links = append(page.Links, target)
		case *ast.Image:
			page.Links = append(page.Links, string(n.Destination))
		case *ast.Text:
			in.words.Write(n.Segment.Value(source))
			in.words.WriteByte(' ')
		case *ast.FencedCodeBlock:
			in.words.Write(n.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return Page{}, err
	}
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, source, tree); err != nil {
		return Page{}, err
	}
	page.body = out.Bytes()
	return page, nil
}

// link returns the target of a link in a document as the page has it.
func (o Options) link(document, target string, documents []string) (string, error) {
	u, err := url.Parse(target)
	if err != nil {
		return "", err
	}
	if u.IsAbs() || u.Path == "" {
		return target, nil
	}
	to := path.Join(path.Dir(document), u.Path)
	info, err := os.Stat(filepath.Join(o.Root, filepath.FromSlash(to)))
	if err != nil {
		return "", fmt.Errorf("link to %s: %w", target, err)
	}
	if info.IsDir() && slices.Contains(documents, path.Join(to, "README.md")) {
		to = path.Join(to, "README.md")
	}
	if !slices.Contains(documents, to) {
		return o.Source + to, nil
	}
	relative, err := filepath.Rel(path.Dir(pathOf(document)), pathOf(to))
	if u.Fragment != "" {
		relative += "#" + u.Fragment
	}
	return filepath.ToSlash(relative), err
}

// textOf returns the text of a node without markup.
func textOf(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// entry is a page in the menu.
type entry struct {
	Title, Link string
	Current     bool
}

// menu returns the entries of each section, as seen from a page.
func menu(pages []Page, from *Page) (sections []struct {
	Title   string
	Entries []entry
}) {
	left := slices.Clone(pages)
	for _, section := range Menu() {
		var entries []entry
		take := func(p Page) {
			link, _ := filepath.Rel(path.Dir(from.Path), p.Path)
			entries = append(entries, entry{p.Title, filepath.ToSlash(link), p.Path == from.Path})
		}
		if section.Documents == nil {
			for _, p := range left {
				take(p)
			}
		}
		for _, document := range section.Documents {
			if i := slices.IndexFunc(left, func(p Page) bool { return p.Document == document }); i >= 0 {
				take(left[i])
				left = slices.Delete(left, i, i+1)
			}
		}
		sections = append(sections, struct {
			Title   string
			Entries []entry
		}{section.Title, entries})
	}
	return sections
}

func writePage(o Options, pages []Page, page *Page) error {
	file := filepath.Join(o.Output, filepath.FromSlash(page.Path))
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	root, err := filepath.Rel(path.Dir(page.Path), ".")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	err = pageTemplate.Execute(&out, map[string]any{
		"Page": page, "Menu": menu(pages, page), "Root": filepath.ToSlash(root), "Source": o.Source + page.Document,
		"Body": template.HTML(page.body), //nolint:gosec // of our own documents
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o600)
}

// writeIndex writes what the search reads, an item for each section: a script, since pages that are opened as files may
// load no JSON.
func writeIndex(o Options, pages []Page) error {
	type item struct {
		Title   string `json:"t"`
		Heading string `json:"h"`
		Path    string `json:"p"`
		Words   string `json:"w"`
	}
	var items []item
	for _, page := range pages {
		for _, s := range page.sections {
			words := strings.Join(strings.Fields(s.words.String()), " ")
			items = append(items, item{page.Title, s.Title, page.Path + "#" + s.ID, words})
		}
	}
	data, err := json.Marshal(items)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Output, "index.js"), append([]byte("const sections = "), data...), 0o600)
}

// copyPictures copies the pictures that documents show.
func copyPictures(o Options) error {
	root, err := os.OpenRoot(o.Root)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written
	return fs.WalkDir(root.FS(), "docs", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".svg" {
			return err
		}
		data, err := fs.ReadFile(root.FS(), name)
		if err != nil {
			return err
		}
		target := filepath.Join(o.Output, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	})
}
