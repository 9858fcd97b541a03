package check

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// Sizes in bytes of what is printed for a comment. GitHub takes comments of 65,536 characters; the limits leave room
// for what a pipeline adds.
const (
	maxComment = 63 << 10
	// maxNotesText is the share of notes, maxMarkdownRow that of one row or note: one of a hostile file hides no other.
	maxNotesText   = 12 << 10
	maxMarkdownRow = 4 << 10
)

// markdown is a table for a comment on a pull request, with what is said above and below it.
type markdown struct {
	title, header string
	rows          []markdownRow
	notes         []manifests.Note
}

// markdownRow is one row, as text. Refusals are printed before others if there is no room for all.
type markdownRow struct {
	text    string
	refused bool
}

// cell keeps a text in one cell of a Markdown table, with nothing in it that Markdown or HTML would take for markup.
var cell = strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]",
	`\]`)

// row adds a row of cells, of which the last one has the lines.
func (m *markdown) row(refused bool, cells []string, columns ...[]string) {
	left := maxMarkdownRow
	var b strings.Builder
	add := func(s string) {
		// What a text becomes is at most six times as long.
		s = cell.Replace(text.Truncate(s, max(40, left/6)))
		left -= len(s)
		b.WriteString(s)
	}
	for _, s := range cells {
		b.WriteString("| ")
		add(s)
		b.WriteString(" ")
	}
	for _, lines := range columns {
		b.WriteString("| ")
		for i, line := range lines {
			if i > 0 {
				b.WriteString("<br>")
			}
			if left < maxMarkdownRow/4 && i < len(lines)-1 {
				fmt.Fprintf(&b, "%d more", len(lines)-i)
				break
			}
			add(line)
		}
		b.WriteString(" ")
	}
	m.rows = append(m.rows, markdownRow{b.String() + "|\n", refused})
}

// print writes what has room, in its order, and how much is left out.
func (m *markdown) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	var notes []string
	size := 0
	for i, note := range m.notes {
		s := "\n" + cell.Replace(text.Truncate(note.String(), maxMarkdownRow)) + "\n"
		if size += len(s); size > maxNotesText {
			notes = append(notes, fmt.Sprintf(
				"\n%d more lines are left out, for the limit of comments: -o text prints all\n", len(m.notes)-i))
			break
		}
		notes = append(notes, s)
	}
	room := maxComment - len(m.title) - len(m.header) - 1<<10
	for _, s := range notes {
		room -= len(s)
	}
	printed := make([]bool, len(m.rows))
	for _, refused := range []bool{true, false} {
		for i, row := range m.rows {
			if row.refused == refused && len(row.text) <= room {
				printed[i], room = true, room-len(row.text)
			}
		}
	}
	fmt.Fprintf(out, "%s\n", m.title)
	if len(m.rows) > 0 {
		fmt.Fprint(out, "\n"+m.header)
	}
	left, refusals := 0, 0
	for i, row := range m.rows {
		switch {
		case printed[i]:
			fmt.Fprint(out, row.text)
		case row.refused:
			refusals++
			fallthrough
		default:
			left++
		}
	}
	if left > 0 {
		fmt.Fprintf(out, "\n%d of %d rows are left out, for the limit of comments, %d of them refused or held: -o text prints all\n",
			left, len(m.rows), refusals)
	}
	for _, s := range notes {
		fmt.Fprint(out, s)
	}
	return out.Flush()
}

// printMarkdown writes a table for a comment on a pull request.
func printMarkdown(w io.Writer, r *report) error {
	m := &markdown{title: "**opgate check:** " + r.counts(), header: "| | Object | File | |\n|---|---|---|---|\n",
		notes: r.notes}
	for i := range r.judged {
		j := &r.judged[i]
		m.row(j.Decision != verdict.Allow, []string{j.Decision.String(), j.title(), j.where()}, lines(j))
	}
	return m.print(w)
}

// printComparisonMarkdown is printMarkdown for what differs.
func printComparisonMarkdown(w io.Writer, c *comparison) error {
	m := &markdown{title: "**opgate check --diff:** " + c.counts(), notes: c.notes,
		header: "| | Object | File | Before | After |\n|---|---|---|---|---|\n"}
	for i := range c.differences {
		d := &c.differences[i]
		before, now := d.sentences()
		m.row(d.effect == newlyRefused, []string{headings[d.effect], d.after.title(), d.after.where()},
			slices.Insert(before, 0, sideOf(d.before).Decision), slices.Insert(now, 0, sideOf(d.after).Decision))
	}
	return m.print(w)
}
