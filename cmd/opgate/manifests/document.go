package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	yamltree "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/yamlsize"
)

// document is one value of an input: as the JSON that would be sent to an API server, and as a tree with the
// line of each field.
type document struct {
	Place
	raw  []byte
	tree *tree
	// template is set for one that stands in a Policy.
	template bool
}

// documentsOf reads the documents of an input, as kubectl would take them, but refuses keys that stand
// twice, of which some decoders take the first and some the last.
func documentsOf(name string, data []byte) (documents []document, problems []Problem) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) { // decoders would replace or guess at it
		before, _, _ := bytes.Cut(bytes.ToValidUTF8(data, []byte{0}), []byte{0})
		return nil, []Problem{problemAt(Place{File: name, Line: 1 + bytes.Count(before, []byte("\n"))}, "is not UTF-8 text")}
	}
	before := 0 // documents that stood as JSON values beside each other, without a marker
	for _, c := range split(data) {
		at := Place{File: name, document: c.number + before, Line: c.line}
		read := jsonValues(c, at)
		if read.count == 0 {
			fromYAML, ok := plainYAML(c, at)
			if !ok {
				fromYAML = anyYAML(c, at)
			}
			if len(fromYAML.problems) == 0 || len(read.problems) == 0 ||
				!strings.EqualFold(path.Ext(name), ".json") {
				read = fromYAML
			}
		}
		before += max(0, read.count-1)
		documents, problems = append(documents, read.documents...), append(problems, read.problems...)
	}
	return documents, problems
}

// reading is what a chunk holds.
type reading struct {
	// count is the number of values found, those with problems included.
	count     int
	documents []document
	problems  []Problem
}

// jsonValues reads JSON values that follow one another. A text that does not begin as an object, or whose
// first value is no JSON, has none: it may be YAML in flow style.
func jsonValues(c chunk, at Place) (r reading) {
	if trimmed := bytes.TrimSpace(c.text); len(trimmed) == 0 || trimmed[0] != '{' {
		return r
	}
	decoder := json.NewDecoder(bytes.NewReader(c.text))
	lineAt := func(offset int) int {
		return c.line + bytes.Count(c.text[:max(0, min(offset, len(c.text)))], []byte("\n"))
	}
	for {
		rest := c.text[decoder.InputOffset():]
		at.Line = lineAt(len(c.text) - len(bytes.TrimLeft(rest, " \t\r\n")))
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				at.Line = lineAt(int(syntax.Offset) - 1)
			} else if errors.Is(err, io.ErrUnexpectedEOF) {
				at.Line = lineAt(len(bytes.TrimSpace(c.text)))
			}
			r.problems = append(r.problems, problemAt(at, "is not JSON: "+reworded(err)))
			return r
		}
		r.count++
		d := document{Place: at, raw: raw, tree: lazyTree(raw, at.Line)}
		if found := d.repeated(); len(found) > 0 {
			r.problems = append(r.problems, found...)
		} else {
			r.documents = append(r.documents, d)
		}
		at.document++
	}
}

func problemAt(at Place, text string) Problem { return Problem{Place: at, Text: text} }

// repeated finds the keys that stand twice in a JSON document.
func (d *document) repeated() (problems []Problem) {
	var into any
	strict, err := kjson.UnmarshalStrict(d.raw, &into, kjson.DisallowDuplicateFields)
	if err != nil {
		return []Problem{problemAt(d.Place, "is not JSON: "+reworded(err))}
	}
	for _, err := range strict {
		field := fieldOf(err)
		problems = append(problems, problemAt(d.at(d.tree.line(field, d.Line)), repeats(field)))
	}
	return problems
}

func repeats(field string) string {
	if field == "apiVersion" {
		return field + " is set twice: put a line --- between two objects"
	}
	return field + " is set twice: remove one"
}

// special is what plainYAML leaves to anyYAML: anchors and merge keys, tags, quoted keys, which may be equal to others once
// they are text, control characters, and what may end a line.
var special = regexp.MustCompile(`[^\t\n -~]|[&!]|<<|["']\s*:`)

// plainYAML reads a document that is a block mapping without anything special, as most are. None has another document
// behind it, so that its tree is parsed only when a line is needed.
func plainYAML(c chunk, at Place) (r reading, ok bool) {
	whole := c.text
	for at.Line = c.line; len(c.text) > 0; at.Line++ {
		line, rest, _ := bytes.Cut(c.text, []byte("\n"))
		if blank := len(bytes.TrimSpace(line)) == 0; !blank && line[0] != '#' && string(line) != "---" {
			break
		}
		c.text = rest
	}
	if len(c.text) == 0 || !unicode.IsLetter(rune(c.text[0])) || special.Match(whole) {
		return r, false
	}
	raw, err := yaml.YAMLToJSONStrict(c.text)
	if err != nil || raw[0] != '{' { // what is wrong is found out below
		return r, false
	}
	return reading{1, []document{{Place: at, raw: raw, tree: lazyTree(c.text, at.Line)}}, nil}, true
}

// anyYAML reads the one document of a chunk in any form, or finds what is wrong with it.
func anyYAML(c chunk, at Place) (r reading) {
	r.count = 1
	refuse := func(line int, text string) reading {
		r.problems = append(r.problems, problemAt(at.at(c.line-1+line), "is not YAML: "+text))
		return r
	}
	decoder := yamltree.NewDecoder(bytes.NewReader(c.text))
	var node, more yamltree.Node
	if err := decoder.Decode(&node); err != nil {
		// The other parser reports more precisely where it stopped. It replaces aliases, whose size is not known here.
		if !bytes.ContainsRune(c.text, '&') {
			if _, other := yaml.YAMLToJSONStrict(c.text); other != nil {
				err = other
			}
		}
		return refuse(lineIn(err), reworded(err))
	}
	at.Line = c.line - 1 + node.Content[0].Line
	// The conversion below reads one document and drops what follows it.
	if err := decoder.Decode(&more); err == nil {
		return refuse(more.Line, "there is more after the end of the document")
	} else if !errors.Is(err, io.EOF) {
		return refuse(lineIn(err), reworded(err))
	}
	t := &tree{root: node.Content[0], offset: c.line - 1}
	if r.problems = t.repeated(at); len(r.problems) > 0 {
		return r
	}
	// A long text with many aliases is short as well.
	if err := yamlsize.CheckAliases(c.text, MaxInput); errors.Is(err, yamlsize.ErrTooLarge) {
		return refuse(1, err.Error())
	}
	raw, err := yaml.YAMLToJSON(c.text) // keys that are set twice were found; strictly, a merge key would be one
	if err != nil {
		return refuse(lineIn(err), reworded(err))
	}
	if !bytes.Equal(raw, []byte("null")) {
		r.documents = []document{{Place: at, raw: raw, tree: t}}
	}
	return r
}

var (
	lineInError = regexp.MustCompile(`\bline (\d+): `)
	// countsFromZero are the complaints for which the parser counts lines from 0.
	countsFromZero = regexp.MustCompile(`did not find expected (<|node content|'-' indicator|key|',')`)
)

// lineIn finds the line in an error of the YAML parser, counted from 1.
func lineIn(err error) (line int) {
	if m := lineInError.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	if countsFromZero.MatchString(err.Error()) {
		line++
	}
	return max(1, line)
}

// hinted adds what to do to what the YAML parser says of common mistakes.
var hinted = strings.NewReplacer("cannot start any token", "cannot start any token: indent by spaces, not tabs, and quote what "+
	"begins with @, % or `", "are not allowed in this context", "are not allowed in this context: correct the indentation, or "+
	"quote a value with a colon", "unexpected end of stream", "unexpected end of stream: close the quote or the bracket")

// reworded is what a parser says, without its name and the line, which the place tells.
func reworded(err error) string {
	s := err.Error()
	if strings.Contains(s, "exceeded max depth") {
		return "it is nested more than 10000 levels deep"
	}
	s = strings.TrimPrefix(strings.TrimPrefix(s, "yaml: "), "json: ")
	s = strings.TrimPrefix(strings.TrimSpace(s), "unmarshal errors:\n")
	return hinted.Replace(lineInError.ReplaceAllString(strings.Join(strings.Fields(s), " "), ""))
}

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
