// Package terminal draws what was typed into a terminal, and what that has printed, as pictures of documents.
package terminal

import (
	"bytes"
	_ "embed"
	"html/template"
	"os"
	"path/filepath"
	"strings"
)

// The measures of a picture: the longest line in characters, and the width and height of one in pixels.
const (
	columns = 112
	advance = 8.45
	leading = 20
)

//go:embed terminal.svg.tmpl
var picture string

var pictureTemplate = template.Must(template.New("picture").Parse(picture))

// colors are those of lines by how they begin.
var colors = map[string]string{"$": "#ffffff", "✓": "#7ee787", "✗": "#ff7b72", "●": "#79c0ff"}

// Write draws docs/pictures/lockfile.txt, which TestLoopOLM of e2e/loop has recorded.
func Write(root string) error {
	name := filepath.Join(root, "docs", "pictures", "lockfile")
	typed, err := os.ReadFile(name + ".txt") //nolint:gosec // a file of the repository
	if err != nil {
		return err
	}
	drawn, err := draw(string(typed))
	if err != nil {
		return err
	}
	return os.WriteFile(name+".svg", drawn, 0o644) //nolint:gosec // documents are for everyone
}

// draw returns the picture of a text.
func draw(text string) ([]byte, error) {
	type line struct {
		Y           int
		Color, Text string
	}
	var lines []line
	y := 50
	for rest := range strings.Lines(text) {
		rest = strings.TrimSuffix(rest, "\n")
		first, _, _ := strings.Cut(rest, " ")
		for runes := []rune(rest); len(runes) > columns; runes = []rune(rest) {
			at := strings.LastIndex(string(runes[:columns]), " ")
			if at < 5 {
				break
			}
			lines, y = append(lines, line{y, colors[first], rest[:at]}), y+leading
			rest = "    " + rest[at+1:]
		}
		lines, y = append(lines, line{y, colors[first], rest}), y+leading
	}
	var out bytes.Buffer
	err := pictureTemplate.Execute(&out, map[string]any{"Lines": lines, "Width": 40 + columns*advance, "Height": y})
	return out.Bytes(), err
}
