package plan

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/opgate/opgate/internal/text"
)

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
	// Heads and Texts are its title and its lines, as lines that fit.
	Heads, Texts []string
	// Y is where it begins, Below where its lines begin in it.
	Y, Below, Height int
	Width            float64
}

// printSVG draws the path from top to bottom: a frame for each version, with its sign, word, color and line, and the
// edges between them.
func printSVG(out io.Writer, r *Result) error {
	y := 2*leading + leading/2
	var frames []frame
	for i, b := range r.Blocks() {
		f := frame{block: b, Heads: wrapped([]string{b.Title}), Texts: wrapped(b.Lines), Width: frameWidth}
		f.Edge = text.Truncate(f.Edge, columns)
		if i > 0 {
			y += edgeHeight
		}
		f.Y, f.Below = y, len(f.Heads)*leading+4
		f.Height = f.Below + len(f.Texts)*leading + leading/2
		y += f.Height
		frames = append(frames, f)
	}
	var signs []string
	for _, m := range []mark{isInstalled, isAllowed, isHeld, isRefused, isDeprecated} {
		signs = append(signs, m.Sign+" "+m.Word)
	}
	why := wrapped([]string{r.End})
	return pictureTemplate.Execute(out, map[string]any{"Heading": r.Heading(), "Frames": frames, "Why": why,
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
