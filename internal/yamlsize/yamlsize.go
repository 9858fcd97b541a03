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
	if !bytes.ContainsRune(entry, '&') { // no anchors
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
