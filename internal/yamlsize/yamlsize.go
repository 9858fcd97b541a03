// Package yamlsize measures a YAML text without replacing its aliases, so that one which would take too much memory is
// refused before it becomes values.
package yamlsize

import (
	"bytes"
	"errors"
	"fmt"

	yamlv3 "go.yaml.in/yaml/v3"
)

// ErrTooLarge is the error of a document with aliases that stand for too much.
var ErrTooLarge = errors.New("too large")

// CheckAliases reports an error if the aliases of a YAML document stand for more bytes than are read.
func CheckAliases(entry []byte, most int) error {
	if !mayAnchor(entry) {
		return nil
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(entry, &document); err != nil {
		return err
	}
	sizes := map[*yamlv3.Node]int{}
	if size := expanded(&document, sizes, most); size > most {
		return fmt.Errorf("%w: it has more than %d bytes when its aliases are replaced, which are not read",
			ErrTooLarge, most)
	}
	return nil
}

// mayAnchor reports whether a text may have a YAML anchor: an ampersand at the start of a token.
func mayAnchor(entry []byte) bool {
	for i := 0; i < len(entry); {
		next := bytes.IndexByte(entry[i:], '&')
		if next < 0 {
			return false
		}
		i += next + 1
		// A byte beyond ASCII may end a line, as U+0085 does.
		if i == 1 || entry[i-2] >= 0x80 || bytes.IndexByte([]byte(" \t\r\n[{,:?-"), entry[i-2]) >= 0 {
			return true
		}
	}
	return false
}

// expanded returns the size of a node with its aliases replaced; something above most if it is larger.
func expanded(n *yamlv3.Node, sizes map[*yamlv3.Node]int, most int) int {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if size, ok := sizes[n]; ok {
		return size
	}
	sizes[n] = most + 1 // an anchor inside itself
	size := len(n.Value) + 1
	for _, child := range n.Content {
		if size += expanded(child, sizes, most); size > most {
			break
		}
	}
	sizes[n] = size
	return size
}
