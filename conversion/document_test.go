package conversion

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocument converts the examples of docs/conversion.md.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/conversion.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	converted := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		examples := block.FindAllStringSubmatch(section, -1)
		if len(examples) == 0 {
			continue
		}
		t.Run(title, func(t *testing.T) {
			if len(examples) != 2 {
				t.Fatalf("%d examples, want 2", len(examples))
			}
			v1beta1, v1beta2 := content(t, examples[0][1]), content(t, examples[1][1])
			for object, version := range map[*map[string]any]string{&v1beta1: "v1beta1", &v1beta2: "v1beta2"} {
				if (*object)["apiVersion"] != "policy.open-cluster-management.io/"+version {
					t.Fatalf("apiVersion is %s, want %s", (*object)["apiVersion"], version)
				}
				delete(*object, "apiVersion")
			}
			if diff := cmp.Diff(v1beta2, ToV1beta2(v1beta1)); diff != "" {
				t.Errorf("to v1beta2 (-want +got):\n%s", diff)
			}
			if strings.HasSuffix(title, "→") {
				return
			}
			if diff := cmp.Diff(v1beta1, ToV1beta1(v1beta2)); diff != "" {
				t.Errorf("to v1beta1 (-want +got):\n%s", diff)
			}
		})
		converted++
	}
	if converted < 5 {
		t.Errorf("%d examples were converted, want at least 5", converted)
	}
}
