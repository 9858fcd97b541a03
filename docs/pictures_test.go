package docs

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pictures; write the lists in docs/stability")

// TestPicture draws the first block of the README as a terminal shows it, and compares it with the picture that the
// README has. TestReadme types the command on a real API server and compares the text.
func TestPicture(t *testing.T) {
	readme := source(t, ".md")["README.md"]
	_, session, _ := strings.Cut(readme, "```text\n$ kubectl patch installplan")
	session, _, _ = strings.Cut("$ kubectl patch installplan"+session, "\n```")
	got := terminalSVG(session)
	if err := xml.Unmarshal(got, new(struct{})); err != nil {
		t.Fatalf("the picture is not XML: %v", err)
	}
	const path = "pictures/refusal.svg"
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("docs/%s is not what the README says: go test ./docs -run TestPicture -update", path)
	}
	if !strings.Contains(readme, "docs/"+path) {
		t.Errorf("the README does not show docs/%s", path)
	}
}

// colours are those of parts of the session.
var colours = []struct {
	part   *regexp.Regexp
	colour string
}{
	{regexp.MustCompile(`^\$`), "#7ee787"},
	{regexp.MustCompile(`Error from server \(Forbidden\)`), "#ff7b72"},
	{regexp.MustCompile(`\([a-z]+/[a-z-]+\)`), "#d2a8ff"},
	{regexp.MustCompile(`allowed is .*$`), "#7ee787"},
}

// terminalSVG draws lines of text in a window of a terminal.
func terminalSVG(session string) []byte {
	const advance, leading, margin = 8.4, 20, 20
	var columns int
	lines := strings.Split(session, "\n")
	for _, line := range lines {
		columns = max(columns, len(line))
	}
	var b bytes.Buffer
	width, height := int(advance*float64(columns))+2*margin, leading*len(lines)+2*margin+16
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="kubectl is refused">`+"\n",
		width, height, width, height)
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#161b22"/>` + "\n")
	for i, colour := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="5" fill="%s"/>`+"\n", margin+i*16, colour)
	}
	b.WriteString(`<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" fill="#c9d1d9" xml:space="preserve">` + "\n")
	for i, line := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", margin, margin+leading*(i+1)+10, coloured(line))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// coloured returns a line as XML.
func coloured(line string) string {
	var b strings.Builder
	for line != "" {
		at, end, colour := len(line), len(line), ""
		for _, c := range colours {
			if m := c.part.FindStringIndex(line); m != nil && m[0] < at {
				at, end, colour = m[0], m[1], c.colour
			}
		}
		b.WriteString(escaped(line[:at]))
		if colour != "" {
			fmt.Fprintf(&b, `<tspan fill="%s">%s</tspan>`, colour, escaped(line[at:end]))
		}
		line = line[end:]
	}
	return b.String()
}

func escaped(text string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(text)); err != nil {
		panic(err) // a strings.Builder does not fail
	}
	return b.String()
}
