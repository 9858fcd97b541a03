package assets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/progress"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
	"github.com/opgate/opgate/e2e/assets/tail"
)

// compilerLines is how much of the compiler's output an error quotes.
const compilerLines = 30

// program is a binary and the package that it is built from.
type program struct{ name, path string }

// lockInterval is how often a process that waits for another one's build looks whether it has ended.
const lockInterval = 200 * time.Millisecond

// source states what to build, and where to.
type source struct {
	title    string    // for people
	name     string    // begins the name of the directory of the result
	module   string    // directory of the tool module
	version  string    // of the software, such as v1.36.3
	programs []program // built in this order, the slowest first
	own      []string  // files of the tool module with code of ours
	pins     []string  // files of the tool module that pin versions; go.mod and go.sum if empty
	flags    []string  // of go build
	cache    string    // directory of all results
	log      io.Writer
}

// fromSource returns the directory in the cache with the binaries, building them first if they are not there.
func fromSource(ctx context.Context, src source) (string, error) {
	result, err := src.result(ctx)
	if err != nil || src.check(result) == nil {
		return result, err
	}

	if err := os.MkdirAll(src.cache, 0o750); err != nil {
		return "", err
	}
	lock := flock.New(result + ".lock")
	locked, err := lock.TryLock()
	if err == nil && !locked {
		fmt.Fprintf(src.log, "another process is building %s %s, waiting for it\n", src.title, src.version)
		err = src.wait(ctx, lock, result+progressSuffix)
	}
	if err != nil {
		return "", fmt.Errorf("wait for lock %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Close() }()
	if src.check(result) == nil {
		return result, nil
	}
	return result, src.buildInto(ctx, result)
}

// progressSuffix ends the name of a file, beside the lock of a build, with the last line on its progress.
const progressSuffix = ".progress"

// wait takes the lock when the process that has it is done, and shows its progress meanwhile, where that changes.
func (src source) wait(ctx context.Context, lock *flock.Flock, progressFile string) error {
	for shown := ""; ; {
		line, err := os.ReadFile(progressFile)
		if err == nil && string(line) != shown {
			shown = string(line)
			fmt.Fprintf(src.log, "the other process: %s\n", shown)
		}
		interval, cancel := context.WithTimeout(ctx, progress.Interval)
		locked, err := lock.TryLockContext(interval, lockInterval)
		cancel()
		if locked || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// result is the directory in the cache of the binaries, whether they are there or not.
func (src source) result(ctx context.Context) (string, error) {
	key, err := src.key(ctx)
	return filepath.Join(src.cache, src.name+"-"+src.version+"-"+key), err
}

// check returns an error that names every binary that dir lacks.
func (src source) check(dir string) error {
	names := make([]string, len(src.programs))
	for i, program := range src.programs {
		names[i] = program.name
	}
	return checkExecutables(dir, names)
}

// key is a hash of everything that the binaries depend on.
func (src source) key(ctx context.Context) (string, error) {
	hash := sha256.New()
	pins := src.pins
	if len(pins) == 0 {
		pins = []string{"go.mod", "go.sum"}
	}
	for _, name := range append(slices.Clone(pins), src.own...) {
		data, err := os.ReadFile(filepath.Join(src.module, name))
		if err != nil {
			return "", fmt.Errorf("hash the tool module: %w", err)
		}
		hash.Write(data)
	}
	cmd := gotool.Command(ctx, src.module, os.TempDir(), "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS")
	env, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	hash.Write(env)
	fmt.Fprintln(hash, src.flags)
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

// buildInto makes dir appear with all binaries in it, or not at all.
func (src source) buildInto(ctx context.Context, dir string) error {
	temp, err := os.MkdirTemp(src.cache, ".build-*")
	if err != nil {
		return fmt.Errorf("build %s: %w", src.title, err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	result, scratch := filepath.Join(temp, "bin"), filepath.Join(temp, "scratch")
	for _, sub := range []string{result, scratch} {
		if err := os.Mkdir(sub, 0o750); err != nil {
			return fmt.Errorf("build %s: %w", src.title, err)
		}
	}

	progressFile := dir + progressSuffix
	defer func() { _ = os.Remove(progressFile) }()
	show := func(line string) {
		fmt.Fprintln(src.log, line)
		_ = os.WriteFile(progressFile, []byte(line), 0o600) // others do without
	}
	watch := stopwatch.Start()
	show(fmt.Sprintf("fetching the source of %s %s", src.title, src.version))
	far := src.plan(ctx, scratch)
	for i, program := range src.programs {
		what := fmt.Sprintf("building %s %d/%d from source (once)", program.name, i+1, len(src.programs))
		if err := src.build(ctx, filepath.Join(result, program.name), program.path, scratch, far,
			func() { show(fmt.Sprintf("%s: %s%s", what, watch, far)) }); err != nil {
			return fmt.Errorf("build %s: %w", program.name, err)
		}
	}
	if err := src.check(result); err != nil {
		return fmt.Errorf("build %s: %w", src.title, err)
	}
	// An incomplete directory of that name is left only if files were removed from it.
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("build %s: %w", src.title, err)
	}
	if err := os.Rename(result, dir); err != nil {
		return fmt.Errorf("build %s: %w", src.title, err)
	}
	fmt.Fprintf(src.log, "built %s %s in %s, kept in %s\n", src.title, src.version, watch, dir)
	return nil
}

// plan lists the packages that a build of all programs has to compile.
func (src source) plan(ctx context.Context, scratch string) *progress.Compilation {
	paths := make([]string, len(src.programs))
	for i, program := range src.programs {
		paths[i] = program.path
	}
	return progress.Plan(func(args ...string) *exec.Cmd { return src.command(ctx, scratch, args...) }, src.flags, paths...)
}

// build runs go build for one package, with its temporary files in scratch.
func (src source) build(
	ctx context.Context, output, path, scratch string, far *progress.Compilation, show func(),
) error {
	compiler := filepath.Join(scratch, filepath.Base(output)+".log")
	log, err := os.Create(compiler)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	far.Log = log
	args := append([]string{"build", "-v", "-o", output}, src.flags...)
	err = far.Run(ctx, src.command(ctx, scratch, append(args, path)...), show)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; the compiler said:\n%s", err, tail.File(compiler, compilerLines))
	}
	return err
}

// command returns a go command in the tool module. Without cgo the result does not depend on the machine's C library.
func (src source) command(ctx context.Context, scratch string, args ...string) *exec.Cmd {
	cmd := gotool.Command(ctx, src.module, scratch, args...)
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	return cmd
}
