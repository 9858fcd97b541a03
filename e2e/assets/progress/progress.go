// Package progress tells how far a build with the go command is. It imports the standard library alone, so that a
// program that shows the progress of other builds is compiled soon.
package progress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

// packageCost is what a package costs besides its source, in bytes of source: starting the compiler, reading what is
// imported.
const packageCost = 16 << 10

// Interval is how often a build reports that it is still going on. Quiet CI systems end jobs after minutes.
const Interval = 15 * time.Second

// Compilation is how far the builds of some packages are. Its Write takes the output of "go build -v", which has a line
// with the import path of each package as the compiler starts with it, and none for what the build cache has. The zero
// value counts nothing, and passes everything on.
type Compilation struct {
	// Log takes all other lines: what the compiler states.
	Log io.Writer

	total int   // packages that have to be compiled
	all   int64 // their costs
	deps  map[string][]string

	mu       sync.Mutex
	costs    map[string]int64 // of what is not compiled yet, by import path, in bytes of source
	past     int64            // costs of what is
	part     []byte           // of a line
	forecast stopwatch.Forecast
}

// Plan lists what has to be compiled for some packages. Command returns a go command; it downloads their modules for
// that. The flags are those of the builds.
func Plan(command func(args ...string) *exec.Cmd, flags []string, packages ...string) *Compilation {
	const format = `{{if .Stale}}{{if ne .StaleReason "not installed but available in build cache"}}` +
		`{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles " "}}{{"\t"}}{{join .Deps " "}}{{end}}{{end}}`
	c := &Compilation{costs: map[string]int64{}, deps: map[string][]string{}}
	out, err := command(slices.Concat([]string{"list", "-deps", "-f", format}, flags, packages)...).Output()
	if err != nil {
		return c // the build fails as well, and states why
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			continue
		}
		path := fields[0]
		c.costs[path], c.deps[path] = packageCost+size(fields[1], strings.Fields(fields[2])), strings.Fields(fields[3])
		c.all += c.costs[path]
	}
	c.total = len(c.costs)
	return c
}

// size is the size of some files in a directory, in bytes.
func size(dir string, names []string) (sum int64) {
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// Write takes output of "go build -v".
func (c *Compilation) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part = append(c.part, p...)
	for {
		end := bytes.IndexByte(c.part, '\n')
		if end < 0 {
			return len(p), nil
		}
		line := c.part[:end+1]
		c.part = c.part[end+1:]
		if path := string(line[:end]); !c.begin(path) && c.Log != nil {
			if _, err := c.Log.Write(line); err != nil {
				return 0, err
			}
		}
	}
}

// begin counts a package that the compiler starts with, and what that imports: it is compiled, by this build, or
// meanwhile by another one into the same cache. It returns false for what was not planned, or has been counted.
func (c *Compilation) begin(path string) bool {
	if _, ok := c.costs[path]; !ok {
		return false
	}
	for _, path := range append(c.deps[path], path) {
		c.past += c.costs[path]
		delete(c.costs, path)
	}
	return true
}

// String states how far the builds are, and, where the last minute tells, how long the rest takes. It is empty where
// nothing has to be compiled, or that is not known. It is to be called each time that the progress is shown.
func (c *Compilation) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total == 0 {
		return ""
	}
	text := fmt.Sprintf(", %d of %d packages", c.total-len(c.costs), c.total)
	switch left := c.forecast.Left(c.past, c.all); {
	case len(c.costs) == 0:
		text += ", linking"
	case left != "":
		text += fmt.Sprintf(", about %s left", left)
	}
	return text
}

// Run runs a build whose output c takes, and calls show now and at every Interval until it ends.
func (c *Compilation) Run(ctx context.Context, build *exec.Cmd, show func()) error {
	build.Stdout, build.Stderr = c, c
	show()
	if err := build.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- build.Wait() }()
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		case <-ticker.C:
			show()
		}
	}
}
