package plan

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// inMermaid replaces what has a meaning in the quoted labels of Mermaid, which are HTML and Markdown.
var inMermaid = strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;",
	"|", "#124;")

// printMermaid prints a flowchart.
func printMermaid(out io.Writer, r *result, _ bool) error {
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "flowchart TD")
	blocks := r.blocks()
	for i, b := range blocks {
		shown := strings.Join(append([]string{b.sign + " " + b.title}, b.lines...), "\n")
		fmt.Fprintf(w, "  v%d[\"%s\"]\n", i, strings.ReplaceAll(inMermaid.Replace(shown), "\n", "<br>"))
		style := "fill:" + b.fill + ",stroke:" + b.stroke + ",color:#1f2328"
		if b.dash != "" {
			style += ",stroke-dasharray:" + b.dash
		}
		fmt.Fprintf(w, "  style v%d %s\n", i, style)
		if i > 0 {
			fmt.Fprintf(w, "  v%d -->|\"%s\"| v%d\n", i-1, inMermaid.Replace(b.edge), i)
		}
	}
	fmt.Fprintf(w, "  end0([\"%s\"])\n", inMermaid.Replace(r.End))
	if last := len(blocks) - 1; last >= 0 {
		fmt.Fprintf(w, "  v%d -.- end0\n", last)
	}
	return w.Flush()
}

// The measures of a picture, in pixels; columns is the longest line of text.
const (
	margin, indent   = 16, 44
	advance, leading = 7.3, 18
	edgeHeight       = 38
	columns          = 96
	width            = indent + columns*advance + 3*margin
)

// picture draws from top to bottom.
type picture struct {
	strings.Builder
	y int
}

// printSVG draws the path: a frame for each version, with its sign, word, color and line, and the edges between them.
func printSVG(out io.Writer, r *result, _ bool) error {
	p := &picture{y: margin}
	blocks := r.blocks()
	p.words(margin, r.heading(), `font-weight="bold" fill="#1f2328"`)
	for i, b := range blocks {
		if i > 0 {
			p.arrow(b.edge)
		} else {
			p.y += leading / 2
		}
		p.block(b)
	}
	p.y += leading / 2
	p.words(margin, r.End, `fill="#1f2328"`)
	p.legend()
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="12">
<title>%s</title>
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s</svg>
`, width, p.y+margin, escape("Path of "+r.heading()), p.String())
	return err
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder accepts every write
	return b.String()
}

// words writes a text on lines that fit.
func (p *picture) words(x int, s, style string) {
	for _, line := range wrapped(s, columns) {
		p.y += leading
		fmt.Fprintf(p, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, p.y, style, escape(line))
	}
}

func (p *picture) arrow(edge string) {
	x := margin + indent/2
	fmt.Fprintf(p, `<path d="M%d %dv%d" stroke="#57606a" stroke-width="1.5"/><path d="M%d %dl-5 -9h10z" fill="#57606a"/>`+"\n",
		x, p.y, edgeHeight-6, x, p.y+edgeHeight)
	shown := []rune(edge)
	if len(shown) > columns {
		shown = append(shown[:columns-1], '…')
	}
	fmt.Fprintf(p, `<text x="%d" y="%d" fill="#57606a">%s</text>`+"\n", margin+indent, p.y+edgeHeight/2+4, escape(string(shown)))
	p.y += edgeHeight
}

func (p *picture) block(b block) {
	top, before := p.y, p.String()
	p.Reset()
	p.y += 4
	p.words(margin+indent, b.title, `font-weight="bold" fill="`+b.stroke+`"`)
	for _, line := range b.lines {
		p.words(margin+indent, line, `fill="#1f2328"`)
	}
	p.y += leading / 2
	inside := p.String()
	p.Reset()
	p.WriteString(before)
	fmt.Fprintf(p, `<rect x="%d" y="%d" width="%.0f" height="%d" rx="6" fill="%s" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n",
		margin, top, width-2*margin, p.y-top, b.fill, b.stroke, b.dash)
	fmt.Fprintf(p, `<text x="%d" y="%d" font-size="18" text-anchor="middle" fill="%s">%s</text>`+"\n", margin+indent/2,
		top+4+leading+1, b.stroke, b.sign)
	p.WriteString(inside)
}

func (p *picture) legend() {
	var signs []string
	for _, m := range []mark{isInstalled, isAllowed, isHeld, isRefused, isDeprecated} {
		signs = append(signs, m.sign+" "+m.word)
	}
	p.y += leading / 2
	p.words(margin, strings.Join(append(signs, nextSign+" next"), "   "), `fill="#57606a"`)
}

// wrapped returns a text on lines of some columns. A word that is longer has a line of its own, cut into pieces.
func wrapped(s string, columns int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(s) {
		for utf8.RuneCountInString(word) > columns {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			runes := []rune(word)
			lines, word = append(lines, string(runes[:columns])), string(runes[columns:])
		}
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
