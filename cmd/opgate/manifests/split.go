package manifests

import "bytes"

// chunk is the text of one document of a YAML stream.
type chunk struct {
	text []byte
	// number counts the documents of the stream from 1.
	number int
	// line is the line of the file on which the text begins.
	line int
}

// split cuts a YAML stream at its document markers. Lines end with LF: where the YAML parser alone sees a line, and a
// document begins there, that is more than one document in a chunk, which is a problem. Documents without content are
// left out but counted.
func split(data []byte) (chunks []chunk) {
	c, at, start, explicit := chunk{line: 1}, 0, 0, false
	end := func() {
		c.text = data[start:at]
		empty := blank(c.text)
		if explicit || !empty {
			c.number++
		}
		if !empty {
			chunks = append(chunks, c)
		}
	}
	line := 1
	for text := range bytes.Lines(data) {
		switch marker(text) {
		case "---":
			end()
			start, c.line, explicit = at, line, true
		case "...":
			end()
			start, c.line, explicit = at+len(text), line+1, false
		}
		at, line = at+len(text), line+1
	}
	end()
	return chunks
}

// marker returns the document marker that a line begins with, or "".
func marker(line []byte) string {
	if len(line) < 3 || len(line) > 3 && !bytes.ContainsAny(line[3:4], " \t\r\n") {
		return ""
	}
	if m := string(line[:3]); m == "---" || m == "..." {
		return m
	}
	return ""
}

// blank reports whether a document's text is only its marker, comments, directives and white space.
func blank(text []byte) bool {
	text = text[len(marker(text[:min(len(text), 4)])):]
	for line := range bytes.Lines(text) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && trimmed[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}
