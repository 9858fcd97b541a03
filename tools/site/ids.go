package site

import (
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// ids makes the anchors of headings as GitHub does, so that links work in both. A second heading of the same text has
// the anchor of the first: the documents have none.
type ids struct{}

// Generate returns the anchor of a heading.
func (ids) Generate(heading []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(heading))) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}

// Put is called for anchors that a document sets itself: none does.
func (ids) Put([]byte) {}
