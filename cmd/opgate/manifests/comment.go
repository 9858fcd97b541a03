package manifests

import (
	"regexp"
	"strings"

	yamltree "go.yaml.in/yaml/v3"
)

// Comment is a comment of YAML that is about this program: "# opgate: TEXT".
type Comment struct {
	// Line counts from 1 in the file.
	Line int
	// Text is what follows the colon.
	Text string
}

var aboutOpgate = regexp.MustCompile(`(?:^|\s)#\s*opgate:[ \t]*(.*?)\s*$`)

// commentsOf returns the comments of a document, in their order. A line in a text that looks like one is none.
func commentsOf(c chunk, node *yamltree.Node) (comments []Comment) {
	if !strings.Contains(string(c.text), "opgate:") {
		return nil
	}
	said, line := commentsBelow(node), c.line
	for text := range strings.Lines(string(c.text)) {
		if m := aboutOpgate.FindStringSubmatch(text); m != nil && said[m[1]] {
			comments = append(comments, Comment{line, m[1]})
		}
		line++
	}
	return comments
}

// commentsBelow returns the texts of the comments that the parser found at a node and below it.
func commentsBelow(node *yamltree.Node) map[string]bool {
	said := map[string]bool{}
	var walk func(*yamltree.Node)
	walk = func(n *yamltree.Node) {
		for line := range strings.Lines(n.HeadComment + "\n" + n.LineComment + "\n" + n.FootComment) {
			if m := aboutOpgate.FindStringSubmatch(line); m != nil {
				said[m[1]] = true
			}
		}
		for _, child := range n.Content {
			walk(child)
		}
	}
	walk(node)
	return said
}

// commentsIn returns the comments of a document that stand in an element of a list.
func commentsIn(item *tree, of []Comment) (comments []Comment) {
	if len(of) == 0 || item.node() == nil {
		return nil
	}
	said := commentsBelow(item.node())
	for _, c := range of {
		if said[c.Text] {
			comments = append(comments, c)
		}
	}
	return comments
}
