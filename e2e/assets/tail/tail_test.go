package tail_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets/tail"
)

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("x", 1000)
	if err := os.WriteFile(path, []byte("first\nsecond\n"+long+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := tail.File(path, 2)
	if want := "    second\n    " + strings.Repeat("x", 297) + "..."; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
