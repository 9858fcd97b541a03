package assets

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

const (
	// packageCost is what a package costs besides its source, in bytes of source: starting the compiler, reading what
	// is imported.
	packageCost = 16 << 10
	// knownShare is the share of the work after which the time for the rest can be estimated.
	knownShare = 0.05
)

// compilation is how far a build is. Its Write takes the output of "go build -v", which has a line with the import path
// of each package as the compiler starts with it. The zero value counts nothing.
type compilation struct {
	costs map[string]int64 // of what is not compiled yet, by import path, in bytes of source
	total int              // packages
	work  int64            // the sum of all costs
	watch stopwatch.Stopwatch

	mu   sync.Mutex
	done int       // packages
	past int64     // their costs
	part []byte    // of a line
	log  io.Writer // takes all other lines: what the compiler states
}

// plan lists the packages that a build of all programs has to compile. The go command downloads their modules for that.
func (src source) plan(ctx context.Context, scratch string) *compilation {
	const format = `{{if .Stale}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{range .GoFiles}}{{"\t"}}{{.}}{{end}}{{end}}`
	args := append([]string{"list", "-deps", "-f", format}, src.flags...)
	for _, program := range src.programs {
		args = append(args, program.path)
	}
	c := &compilation{costs: map[string]int64{}}
	out, err := src.command(ctx, scratch, args...).Output()
	if err != nil {
		return c // the build fails as well, and states why
	}
	for line := range strings.Lines(string(out)) {
		path, files, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		c.costs[path] = packageCost + size(strings.Split(files, "\t"))
		c.work += c.costs[path]
	}
	c.total, c.watch = len(c.costs), stopwatch.Start()
	return c
}

// size is the size of a package, in bytes, from its directory and the names of its files.
func size(names []string) (sum int64) {
	for _, name := range names[1:] {
		if info, err := os.Stat(filepath.Join(names[0], name)); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// Write takes output of "go build -v".
func (c *compilation) Write(p []byte) (int, error) {
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
		path := string(line[:end])
		cost, ok := c.costs[path]
		if !ok {
			if _, err := c.log.Write(line); err != nil {
				return 0, err
			}
			continue
		}
		delete(c.costs, path)
		c.done++
		c.past += cost
	}
}

// String states how far the build is, and how long the rest takes if it is as slow as what is past. It is empty where
// that is not known.
func (c *compilation) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total == 0 {
		return ""
	}
	text := fmt.Sprintf(", %d of %d packages", c.done, c.total)
	if share := float64(c.past) / float64(c.work); share > knownShare {
		text += fmt.Sprintf(", about %s left", c.watch.Left(share))
	}
	return text
}
