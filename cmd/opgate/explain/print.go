package explain

import (
	"bufio"
	"fmt"
	"go/doc/comment"
	"io"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// formats print rules in full, or, if listed, as an overview, in lines of at most width columns.
var formats = map[string]func(out io.Writer, list []rule, listed bool, width int) error{
	"text": printText, "json": printJSON, "markdown": printMarkdown,
}

func printText(w io.Writer, list []rule, listed bool, width int) error {
	out := bufio.NewWriter(w)
	if listed {
		overview(out, list, width)
		return out.Flush()
	}
	for i, r := range list {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s  (%s)\n", r.ID, plain(r.outcome))
		section(out, "", plain(r.meaning), width)
		section(out, "Example:", r.example, width)
		section(out, "What to do:", plain(r.remedy), width)
		if r.Override {
			section(out, "Break-glass:",
				"A user with the verb override may set it aside, for a reason (docs/rules.md#break-glass).", width)
		}
		if r.Backstop {
			section(out, "While Opgate is away:",
				"The API server holds at least a part of it by itself (docs/backstop.md).", width)
		}
		if r.sample != "" {
			section(out, "Sample:", "opgate check "+r.sample, width)
		}
	}
	return out.Flush()
}

// section writes a title and below it a text, indented.
func section(out io.Writer, title, text string, width int) {
	if text == "" {
		return
	}
	fmt.Fprintln(out)
	indent := "  "
	if title != "" {
		fmt.Fprintln(out, indent+title)
		indent += indent
	}
	fmt.Fprint(out, wrapped(text, indent, width))
}

// wrapped breaks the paragraphs of a text into lines of at most width columns, each behind an indent.
func wrapped(text, indent string, width int) string {
	var doc comment.Doc
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		doc.Content = append(doc.Content, &comment.Paragraph{Text: []comment.Text{comment.Plain(paragraph)}})
	}
	printer := comment.Printer{TextPrefix: indent, TextWidth: width - len(indent)}
	return string(printer.Text(&doc))
}

// overview writes a line or more for each rule, below the heading of its group.
func overview(out io.Writer, list []rule, width int) {
	longest, widest := 0, 0
	for _, r := range list {
		longest, widest = max(longest, len(r.ID)), max(widest, len(r.Outcomes.String()))
	}
	group := ""
	for i, r := range list {
		if r.group != group {
			if i > 0 {
				fmt.Fprintln(out)
			}
			group = r.group
			fmt.Fprintln(out, group)
		}
		head := fmt.Sprintf("  %-*s  %-*s  ", longest, r.ID, widest, r.Outcomes)
		if width-len(head) < 2*len("Summary") { // too narrow for columns
			fmt.Fprintln(out, strings.TrimRight(head, " "))
			fmt.Fprint(out, wrapped(r.Summary, "    ", width))
			continue
		}
		lines := wrapped(r.Summary, strings.Repeat(" ", len(head)), width)
		fmt.Fprint(out, head+lines[len(head):])
	}
}

// item is one element of the JSON output.
type item struct {
	Rule    string `json:"rule"`
	Group   string `json:"group"`
	Outcome string `json:"outcome"`
	Summary string `json:"summary"`
	Meaning string `json:"meaning"`
	Example string `json:"example,omitempty"`
	Remedy  string `json:"remedy"`
	Sample  string `json:"sample,omitempty"`
	// Override and Backstop are those of rules.Rule.
	Override bool `json:"override"`
	Backstop bool `json:"backstop"`
}

func printJSON(w io.Writer, list []rule, _ bool, _ int) error {
	items := []item{}
	for _, r := range list {
		items = append(items, item{Rule: string(r.ID), Group: r.group, Outcome: plain(r.outcome), Summary: r.Summary,
			Meaning: plain(r.meaning),
			Example: r.example, Remedy: plain(r.remedy), Sample: r.sample, Override: r.Override, Backstop: r.Backstop})
	}
	return cli.JSON(w, items)
}

func printMarkdown(w io.Writer, list []rule, listed bool, _ int) error {
	out := bufio.NewWriter(w)
	group := ""
	for i, r := range list {
		if i > 0 && (!listed || r.group != group) {
			fmt.Fprintln(out)
		}
		if listed {
			if r.group != group {
				fmt.Fprintf(out, "## %s\n\n| Rule | | |\n|---|---|---|\n", r.group)
			}
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", r.ID, r.Outcomes, strings.ReplaceAll(r.Summary, "|", `\|`))
			group = r.group
			continue
		}
		fmt.Fprintf(out, "### %s\n\n*%s%s.* %s\n\n", r.ID, absolute(r.outcome), r.tags, absolute(r.meaning))
		if r.example != "" {
			fmt.Fprintf(out, "```text\n%s\n```\n\n", r.example)
		}
		fmt.Fprintf(out, "**What to do:** %s", absolute(r.remedy))
		if r.sample != "" {
			fmt.Fprintf(out, " Sample: [%s](%s).", r.sample[strings.LastIndexByte(r.sample, '/')+1:],
				repository+r.sample)
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}
