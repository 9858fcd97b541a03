package plan

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/opgate/opgate/internal/text"
)

// inMermaid replaces what has a meaning in the quoted labels of Mermaid, which are HTML and Markdown.
var inMermaid = strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;",
	"|", "#124;", "\n", "<br>")

// printMermaid prints a flowchart.
func printMermaid(out io.Writer, r *Result) error {
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "flowchart TD")
	blocks := r.blocks()
	for i, b := range blocks {
		shown := strings.Join(append([]string{b.Sign + " " + b.title}, b.lines...), "\n")
		fmt.Fprintf(w, "  v%d[\"%s\"]\n", i, inMermaid.Replace(shown))
		style := "fill:" + b.Fill + ",stroke:" + b.Stroke + ",color:#1f2328"
		if b.Dash != "" {
			style += ",stroke-dasharray:" + b.Dash
		}
		fmt.Fprintf(w, "  style v%d %s\n", i, style)
		if i > 0 {
			fmt.Fprintf(w, "  v%d -->|\"%s\"| v%d\n", i-1, inMermaid.Replace(b.Edge), i)
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
	columns, advance = 96, 7.3
	leading          = 18
	edgeHeight       = 38
	frameWidth       = 44 + columns*advance + 16
)

//go:embed path.svg.tmpl
var picture string

// pictureTemplate makes the picture. Everything in it is escaped for XML.
var pictureTemplate = template.Must(template.New("picture").Parse(picture))

// frame is a version in the picture.
type frame struct {
	block
	Title, Lines []string
	// Y is where it begins, Below where its lines begin in it.
	Y, Below, Height int
	Width            float64
}

// printSVG draws the path from top to bottom: a frame for each version, with its sign, word, color and line, and the
// edges between them.
func printSVG(out io.Writer, r *Result) error {
	y := 2*leading + leading/2
	var frames []frame
	for i, b := range r.blocks() {
		f := frame{block: b, Title: wrapped([]string{b.title}), Lines: wrapped(b.lines), Width: frameWidth}
		f.Edge = text.Truncate(f.Edge, columns)
		if i > 0 {
			y += edgeHeight
		}
		f.Y, f.Below = y, len(f.Title)*leading+4
		f.Height = f.Below + len(f.Lines)*leading + leading/2
		y += f.Height
		frames = append(frames, f)
	}
	var signs []string
	for _, m := range []mark{isInstalled, isAllowed, isHeld, isRefused, isDeprecated} {
		signs = append(signs, m.Sign+" "+m.Word)
	}
	why := wrapped([]string{r.End})
	return pictureTemplate.Execute(out, map[string]any{"Heading": r.heading(), "Frames": frames, "Why": why,
		"Legend": strings.Join(append(signs, nextSign+" next"), "   "), "Width": frameWidth + 2*16,
		"End": y + leading/2, "Height": y + (len(why)+3)*leading})
}

// wrapped returns lines that fit, but for a word that is longer.
func wrapped(lines []string) (broken []string) {
	for _, long := range lines {
		line := ""
		for word := range strings.FieldsSeq(long) {
			if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
				broken, line = append(broken, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		broken = append(broken, line)
	}
	return broken
}
