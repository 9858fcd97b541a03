package terminal

import (
	"bytes"
	"os"
	"testing"
)

// TestPicture: the picture of docs/lockfile.md is that of the recorded text.
func TestPicture(t *testing.T) {
	typed, err := os.ReadFile("../../docs/pictures/lockfile.txt")
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := draw(string(typed))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile("../../docs/pictures/lockfile.svg"); err != nil || !bytes.Equal(drawn, want) {
		t.Errorf("%v: docs/pictures/lockfile.svg is not that of lockfile.txt: make generate", err)
	}
}
