package docs

import (
	"path/filepath"
	"testing"

	"github.com/opgate/opgate/tools/reference"
)

// TestReference: the reference of fields is that of the definitions.
func TestReference(t *testing.T) {
	t.Parallel()
	want, err := reference.Page()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := reference.Write("../.."); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, filepath.Join("../..", reference.Path)) != string(want) {
		t.Errorf("%s is not what the definitions say: make generate", reference.Path)
	}
}
