package manifests

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	yamltree "go.yaml.in/yaml/v3"
)

// hubOpens begins a template that only the hub of Open Cluster Management resolves.
const hubOpens = "{{hub"

// hubFields returns the fields of a document that have hub templates, with their lines. A Policy has those of its
// templates.
func hubFields(d document) (fields []string) {
	if d.template || !bytes.Contains(d.raw, []byte(hubOpens)) {
		return nil
	}
	var walk func(node *yamltree.Node, path string)
	walk = func(node *yamltree.Node, path string) {
		switch node.Kind {
		case yamltree.ScalarNode:
			if strings.Contains(node.Value, hubOpens) {
				fields = append(fields, fmt.Sprintf("%s (line %d)", path, d.tree.offset+node.Line))
			}
		case yamltree.SequenceNode:
			for i, child := range node.Content {
				walk(child, path+"["+strconv.Itoa(i)+"]")
			}
		case yamltree.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				walk(node.Content[i+1], joinPath(path, node.Content[i].Value))
			}
		default: // what an alias stands for is found where it is written
		}
	}
	if root := d.tree.node(); root != nil {
		walk(root, "")
	}
	if len(fields) == 0 {
		fields = []string{"some field"} // one that a kustomization made
	}
	return fields
}
