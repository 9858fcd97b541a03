package plugin

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// InMermaid replaces what has a meaning in the quoted labels of Mermaid, which are HTML and Markdown.
var InMermaid = strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;",
	"|", "#124;")

// mermaid prints a flowchart.
func (g *graph) mermaid(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "flowchart LR")
	for _, n := range g.Nodes {
		fmt.Fprintf(w, "  %s[\"%s\"]\n", n.ID, InMermaid.Replace(n.caption()))
	}
	for _, l := range g.Edges {
		arrow := "-->"
		if l.Relation == waitsFor {
			arrow = "-.->"
		}
		fmt.Fprintf(w, "  %s %s|\"%s\"| %s\n", l.From, arrow, InMermaid.Replace(l.caption()), l.To)
	}
	return w.Flush()
}

// caption is the text in a box.
func (n *node) caption() string {
	if n.Cycle != nil {
		return n.title() + ", waits for itself"
	}
	return n.title()
}

// caption is the text at an arrow.
func (l *link) caption() string {
	caption := l.Relation
	if l.Relation == waitsFor {
		caption = "waits for " + text.Escape(l.Want)
		if l.Unmet != "" {
			caption += ", is " + text.Escape(l.Unmet)
		}
	}
	return caption
}
