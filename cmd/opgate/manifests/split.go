package manifests

import (
	"bytes"
	"strings"
)

// chunk is the text of one document of a YAML stream.
type chunk struct {
	text []byte
	// number counts the documents of the stream from 1.
	number int
	// line is the line of the file on which the text begins.
	line int
}

// split cuts a YAML stream at its document markers. Lines end where the YAML parser ends them (after LF, CR,
// CRLF, NEL, LS and PS): a document that begins where only the parser sees a line would be dropped by it
// without a word. Documents without content are left out but counted.
func split(data []byte) []chunk {
	var chunks []chunk
	number, line := 0, 1
	start, startLine, explicit := 0, 1, false
	end := func(at int) {
		text := data[start:at]
		empty := blank(text)
		if explicit || !empty {
			number++
		}
		if !empty {
			chunks = append(chunks, chunk{text, number, startLine})
		}
	}
	for at := 0; at < len(data); {
		next := at + lineLength(data[at:])
		switch marker(data[at:next]) {
		case "---":
			end(at)
			start, startLine, explicit = at, line, true
		case "...":
			end(at)
			start, startLine, explicit = next, line+1, false
		}
		at, line = next, line+1
	}
	end(len(data))
	return chunks
}

// marker returns the document marker that a line begins with, or "".
func marker(line []byte) string {
	for _, m := range []string{"---", "..."} {
		rest, ok := bytes.CutPrefix(line, []byte(m))
		if ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' || breakLength(rest) > 0) {
			return m
		}
	}
	return ""
}

// lineLength is the length of the first line with its end.
func lineLength(data []byte) int {
	for i := range data {
		if n := breakLength(data[i:]); n > 0 {
			return i + n
		}
	}
	return len(data)
}

// breakLength is the length of the line end that data begins with, or 0.
func breakLength(data []byte) int {
	switch {
	case data[0] == '\n':
		return 1
	case data[0] == '\r':
		if len(data) > 1 && data[1] == '\n' {
			return 2
		}
		return 1
	case data[0] < 0x80:
		return 0
	}
	for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
		if strings.HasPrefix(string(data[:min(len(data), 3)]), end) {
			return len(end)
		}
	}
	return 0
}

// blank reports whether a document's text is only its marker, comments, directives and white space.
func blank(text []byte) bool {
	if m := marker(text[:lineLength(text)]); m != "" {
		text = text[len(m):]
	}
	for len(text) > 0 {
		n := lineLength(text)
		if trimmed := bytes.TrimSpace(text[:n]); len(trimmed) > 0 && trimmed[0] != '#' && text[0] != '%' {
			return false
		}
		text = text[n:]
	}
	return true
}
