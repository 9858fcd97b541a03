package terminal

import (
	"bytes"
	"os"
	"testing"
)

// TestPicture: the picture of docs/lockfile.md is that of the recorded text.
func TestPicture(t *testing.T) {
	typed, _ := os.ReadFile("../../docs/pictures/lockfile.txt")
	want, err := draw(string(typed))
	if got, _ := os.ReadFile("../../docs/pictures/lockfile.svg"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: docs/pictures/lockfile.svg is not that of lockfile.txt: make generate", err)
	}
}
