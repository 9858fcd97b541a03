package assets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// setupEnvtestTimeout bounds a download. It is short because the tool needs network access that many machines, such as
// those of CI, do not have, and may wait for it for minutes.
const setupEnvtestTimeout = time.Minute

// errNoSetupEnvtest says that the tool is not installed, which is not worth a word.
var errNoSetupEnvtest = errors.New("setup-envtest is not on PATH")

// fromSetupEnvtest asks setup-envtest for prebuilt binaries of the minor version of Kubernetes given.
func fromSetupEnvtest(ctx context.Context, version string) (Assets, error) {
	tool, err := exec.LookPath("setup-envtest")
	if err != nil {
		return Assets{}, errNoSetupEnvtest
	}
	ctx, cancel := context.WithTimeout(ctx, setupEnvtestTimeout)
	defer cancel()

	major, minor := majorMinor(version)
	cmd := exec.CommandContext(ctx, tool, "use", major+"."+minor+".x", "--print", "path")
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return Assets{}, ctx.Err()
		}
		return Assets{}, fmt.Errorf("%w: %s", err, firstLine(stderr.String()))
	}
	found := Assets{Dir: strings.TrimSpace(stdout.String()), Origin: "setup-envtest"}
	if err := found.check(); err != nil {
		return Assets{}, fmt.Errorf("%q: %w", found.Dir, err)
	}
	return found, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
