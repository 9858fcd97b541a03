package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// mostFlaky is how many tests of a run may fail and pass when they run again.
	mostFlaky = 3
	// remembered is within how many runs of a target a test may do so once.
	remembered = 10
)

var (
	race = regexp.MustCompile(`WARNING: DATA RACE|race detected during execution of test`)
	// crash is the end of a test process. What Opgate's own process printed is in a log of its own.
	crash = regexp.MustCompile(`(?m)^(panic|fatal error): .*`)
	// final is harness.Final: something forbidden was admitted or installed, a write was lost, Opgate panicked, or an
	// invariant broke.
	final = regexp.MustCompile(`\bFINAL: .*`)
)

// timedOut is how the end of a test process by its -timeout begins.
const timedOut = "panic: test timed out"

// finality returns why a failed test is not run again, from what it printed, and is empty if it is.
func finality(output string) string {
	if race.MatchString(output) {
		return "a data race"
	}
	for _, line := range crash.FindAllString(output, -1) {
		if !strings.HasPrefix(line, timedOut) {
			return line
		}
	}
	return final.FindString(output)
}

// flaky is a test that failed, and passed when it ran again.
type flaky struct {
	test
	// logs are the files with both outputs.
	logs [2]string
}

func (f *flaky) id() string { return f.pkg + " " + f.name }

// history are the flaky tests of the last runs of each target, the latest last.
type history map[string][][]string

// historyFile is shared by all clones of a user: CI runs in a new one each time.
func historyFile() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the history of flaky tests: %w", err)
	}
	return filepath.Join(cache, "opgate", "flaky.json"), nil
}

// remember adds a run to the history in a file, and returns those of its tests that were flaky in an earlier one.
func remember(file, target string, ids []string) (again []string, err error) {
	all := history{}
	data, err := os.ReadFile(file)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("%s: %w; remove it", file, err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	runs := all[target]
	runs = runs[max(0, len(runs)-(remembered-1)):]
	for _, id := range ids {
		if slices.ContainsFunc(runs, func(run []string) bool { return slices.Contains(run, id) }) {
			again = append(again, id)
		}
	}
	all[target] = append(slices.Clone(runs), append([]string{}, ids...))
	if data, err = json.Marshal(all); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return nil, err
	}
	temp := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return nil, err
	}
	return again, os.Rename(temp, file)
}
