package plan

import (
	"embed"
	"fmt"
	html "html/template"
	"io"
	"regexp"
	"strings"
	"text/template"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/verdict"
)

// formats print a path.
var formats = map[string]func(out io.Writer, r *Result) error{
	"text":    func(out io.Writer, r *Result) error { return texts.ExecuteTemplate(out, "path.txt.tmpl", r) },
	"mermaid": func(out io.Writer, r *Result) error { return texts.ExecuteTemplate(out, "path.mermaid.tmpl", r) },
	"json":    func(out io.Writer, r *Result) error { return cli.JSON(out, r) },
	"svg":     printSVG,
}

//go:embed *.tmpl
var files embed.FS

// texts make the text forms, picture the picture: everything in that is escaped for XML.
var (
	texts = template.Must(template.New("").Funcs(template.FuncMap{
		"before":          func(i int) int { return i - 1 },
		"withoutContents": errWithoutContents.Error,
		"shown":           func(s string) string { return text.Escape(strings.TrimSpace(s)) },
		// label replaces what has a meaning in the quoted labels of Mermaid, which are HTML and Markdown.
		"label": strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;",
			"|", "#124;").Replace,
	}).ParseFS(files, "path.txt.tmpl", "path.mermaid.tmpl", "step.txt.tmpl"))
	picture = html.Must(html.ParseFS(files, "path.svg.tmpl"))
)

// mark is how a version is shown: a sign, a word and colors, so that each alone tells it.
type mark struct {
	Sign, Word string
	// Stroke and Fill are for pictures, Dash is the pattern of the frame.
	Stroke, Fill, Dash string
}

// The marks of versions. deprecated and next are beside one of the others.
var (
	isInstalled  = mark{"●", "installed", "#0550ae", "#eff6ff", ""}
	isAllowed    = mark{"✓", "allowed", "#116329", "#effaf0", ""}
	isHeld       = mark{"‖", "held", "#8a5300", "#fff8e6", "8 4"}
	isRefused    = mark{"✗", "refused", "#b3141e", "#fff0f0", "2 3"}
	isDeprecated = mark{"†", "deprecated", "#57606a", "", ""}
	isNext       = mark{"▶", "next", "", "", ""}
)

var markOf = map[string]mark{verdict.Allow.String(): isAllowed, verdict.Hold.String(): isHeld,
	verdict.Deny.String(): isRefused}

// block is one version of a path.
type block struct {
	mark
	// Edge is how it follows the one before, Title what it is, Lines the rest.
	Edge, Title string
	Lines       []string
}

// Blocks are the versions of a path, oldest first.
func (r *Result) Blocks() []block {
	var all []block
	if r.Installed != "" {
		all = append(all, block{mark: isInstalled, Title: text.Name(r.Installed) + "  " + isInstalled.Word})
	}
	for i, s := range r.Steps {
		b := block{mark: markOf[s.Decision], Edge: strings.TrimSpace(s.Edge + " " + text.Escape(s.SkipRange))}
		b.Title = text.Name(s.CSV) + "  " + b.Word
		if s.Decision == verdict.Allow.String() {
			b.Title += text.Escape(s.Operator.Because())
		}
		if i == 0 {
			b.Title += "  " + isNext.Sign + " " + isNext.Word
		}
		if len(s.Deprecated) > 0 {
			b.Title += "  " + isDeprecated.Sign + " " + isDeprecated.Word
		}
		b.Lines = s.lines()
		all = append(all, b)
	}
	return all
}

// lines are what else is known of a step.
func (s *step) lines() []string {
	var all strings.Builder
	if err := texts.ExecuteTemplate(&all, "step.txt.tmpl", s); err != nil {
		panic(err) // it reads fields of the step
	}
	return strings.FieldsFunc(all.String(), func(r rune) bool { return r == '\n' })
}

// Summary states what a step changes; "" for nothing.
func (s *step) Summary() string {
	return (&change.Set{Differences: s.Changes}).Summary(change.Reviewable)
}

// Heading names what the path is of.
func (r *Result) Heading() string {
	return text.Name(r.Package) + " in namespace " + text.Name(r.Namespace) + ", " + inChannel(r.Channel) + " of " +
		text.Escape(r.Catalog)
}

// The measures of a picture, in pixels; columns is the longest line of text.
const (
	columns, advance = 96, 7.3
	leading          = 18
	edgeHeight       = 38
	frameWidth       = 44 + columns*advance + 16
)

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
	why := wrapped([]string{r.End})
	return picture.Execute(out, map[string]any{"Heading": r.Heading(), "Frames": frames, "Why": why,
		"Legend": []mark{isInstalled, isAllowed, isHeld, isRefused, isDeprecated, isNext}, "Width": frameWidth + 2*16,
		"End": y + leading/2, "Height": y + (len(why)+3)*leading})
}

// fitting is a part of a line that fits, or a word that is longer.
var fitting = regexp.MustCompile(fmt.Sprintf(`(\S{%d,}|.{1,%d})( |$)`, columns+1, columns))

// wrapped returns lines that fit, but for a word that is longer.
func wrapped(lines []string) (broken []string) {
	for _, line := range lines {
		for _, part := range fitting.FindAllString(strings.Join(strings.Fields(line), " "), -1) {
			broken = append(broken, strings.TrimSpace(part))
		}
	}
	return broken
}
