package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// Documented returns a field of the spec of the one object of a kind in docs/install.md, as YAML.
func Documented(checkout repo.Checkout, kind string, path ...string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(checkout.Root, "docs", "install.md"))
	if err != nil {
		return nil, err
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		documents, err := Split(block[1])
		if err != nil {
			return nil, err
		}
		for _, d := range documents {
			if d.Kind != kind {
				continue
			}
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(d.Text), &object); err != nil {
				return nil, err
			}
			value := object["spec"]
			for _, key := range path {
				fields, _ := value.(map[string]any)
				value = fields[key]
			}
			if value == nil {
				return nil, fmt.Errorf("%s in docs/install.md has no spec.%s", kind, strings.Join(path, "."))
			}
			return yaml.Marshal(value)
		}
	}
	return nil, fmt.Errorf("docs/install.md has no %s", kind)
}
