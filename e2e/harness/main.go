// Package harness is what the packages of end-to-end tests share: an environment with a real API server and Opgate,
// clients that act as its users, objects to write, and the language of scripts. Everything that runs a cluster does so
// for a test, and stops it after that.
package harness

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/opgate/opgate/e2e/internal/reaper"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// Long is whether generated tests run in their long form, as make test-all does.
var Long = flag.Bool("long", false, "run generated tests in their long form")

// Main runs the tests of a package and returns the exit code, for its TestMain.
func Main(m *testing.M) (code int) {
	if code, ok := reaper.Main(context.Background()); ok {
		return code
	}
	if err := speed.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		// The reaper detects the end of this process and cleans up.
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(1)
	})
	code = m.Run()
	_ = cancel // the end of the process ends it
	for _, end := range []func() error{withoutOLM.stop, withOLM.stop,
		func() error { return removePrograms() }, usedRights.Save} {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, Final+err.Error()) // no test that fails beside it and passes alone excuses it
			code = max(code, 1)
		}
	}
	return code
}
