package assets

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

// TestCompilation counts packages in the output of "go build -v", whatever its pieces, and passes everything else on.
func TestCompilation(t *testing.T) {
	var log strings.Builder
	c := &compilation{costs: map[string]int64{"net": 10, "k8s.io/api/core/v1": 80, "main": 10}, total: 3, work: 100,
		watch: stopwatch.Start(), log: &log}
	if got := c.String(); got != ", 0 of 3 packages" {
		t.Errorf("at first it says %q, want no estimate", got)
	}
	for _, piece := range []string{"net\nk8s.io/api", "/core/v1\nnet\n# main\n", "main.go:1: something is wrong\n"} {
		if _, err := c.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.String(); !strings.HasPrefix(got, ", 2 of 3 packages, about ") || !strings.HasSuffix(got, "s left") {
		t.Errorf("it says %q, want 2 of 3 packages and an estimate", got)
	}
	if want := "net\n# main\nmain.go:1: something is wrong\n"; log.String() != want {
		t.Errorf("the log has %q, want %q", log.String(), want)
	}
	if got := (&compilation{}).String(); got != "" {
		t.Errorf("without a plan it says %q", got)
	}
}
