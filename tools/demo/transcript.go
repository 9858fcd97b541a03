package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/e2e/assets/stopwatch"
	"github.com/opgate/opgate/e2e/cluster"
)

// progressInterval is how often a command that waits reports that it does.
const progressInterval = 10 * time.Second

// transcript plays steps and writes down what happens.
type transcript struct {
	out     io.Writer
	cluster *cluster.Cluster
	gate    *cluster.Gate
	dir     string // of the manifests
	digest  string // the last one in an output
}

var digest = regexp.MustCompile("sha256:[0-9a-f]{64}")

func (t *transcript) play(ctx context.Context, number int, step step) error {
	fmt.Fprintf(t.out, "\n%d. %s.\n", number, step.title)
	for _, command := range step.commands {
		if command.show != "" {
			if err := t.show(command.show); err != nil {
				return err
			}
		}
		if err := t.run(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// show prints a manifest.
func (t *transcript) show(name string) error {
	data, err := os.ReadFile(filepath.Join(t.dir, name))
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "\n   --- %s\n%s", name, indent(string(data)))
	return nil
}

// run runs a command, prints it with its output, and returns an error when it does not do what it must.
func (t *transcript) run(ctx context.Context, command command) error {
	// What earlier commands wrote must have reached Opgate and its admission policies, as it has when a person types
	// this.
	if err := t.gate.WaitForSnapshot(ctx); err != nil {
		return err
	}
	if err := t.gate.WaitForBackstop(ctx); err != nil {
		return err
	}
	args, err := t.fillIn(ctx, command)
	if err != nil {
		return err
	}
	run, words := t.cluster.Run, []string{"kubectl", "--context", string(command.user)}
	if command.opgate {
		run, words = t.cluster.RunOpgate, []string{"opgate"}
	}
	line := quote(append(words, args...))
	fmt.Fprintf(t.out, "\n   $ %s\n", line)

	done := t.sayThatItGoesOn()
	result, err := run(ctx, cluster.Command{User: command.user, Args: args, Dir: t.dir})
	done()
	if err != nil {
		return err
	}
	// Warnings come before the line that states what was done, as on a terminal.
	output := result.Stderr + result.Stdout
	fmt.Fprint(t.out, indent(output))
	if all := digest.FindAllString(output, -1); len(all) > 0 {
		t.digest = all[len(all)-1]
	}
	return command.check(line, result.ExitCode, output)
}

// fillIn puts the name of a plan, which OLM makes up, and the last digest in the arguments.
func (t *transcript) fillIn(ctx context.Context, command command) ([]string, error) {
	args := slices.Clone(command.args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIGEST", t.digest)
	}
	if command.plan == "" {
		return args, nil
	}
	result, err := t.cluster.Kubectl(ctx, cluster.Admin, "", "get", "installplans", "-n", cluster.ShopNamespace, "-o",
		`jsonpath={range .items[?(@.spec.approved==false)]}{.metadata.name} {.spec.clusterServiceVersionNames[*]}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(result.Stdout) {
		if words := strings.Fields(line); len(words) == 2 && words[1] == command.plan {
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "PLAN", words[0])
			}
			return args, nil
		}
	}
	return nil, fmt.Errorf("no plan for %s waits; there are\n%s%s", command.plan, result.Stdout, result.Stderr)
}

// sayThatItGoesOn writes a line periodically until done is called.
func (t *transcript) sayThatItGoesOn() (done func()) {
	watch := stopwatch.Start()
	ticker := time.NewTicker(progressInterval)
	ended, said := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(said)
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				fmt.Fprintf(t.out, "   ... waiting for %s\n", watch)
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(ended)
		<-said
	}
}

// check returns an error when a command did not do what it must.
func (c command) check(line string, exitCode int, output string) error {
	switch {
	case c.differs && exitCode == 1:
	case c.differs:
		return fmt.Errorf("%q had to show differences, and ended with exit code %d", line, exitCode)
	case c.refused && exitCode == 0:
		return fmt.Errorf("%q had to be refused, and was not", line)
	case !c.refused && exitCode != 0:
		return fmt.Errorf("%q had to succeed, and ended with exit code %d", line, exitCode)
	}
	// Columns are as wide as their content asks for; how wide does not matter.
	words := strings.Join(strings.Fields(output), " ")
	for _, text := range c.output {
		if !strings.Contains(words, text) {
			return fmt.Errorf("the output of %q had to have %q in it", line, text)
		}
	}
	return nil
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("   " + line)
	}
	return b.String()
}

// quote joins arguments to a line that a shell splits into them again.
func quote(args []string) string {
	plain := regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)
	words := make([]string, len(args))
	for i, arg := range args {
		if plain.MatchString(arg) {
			words[i] = arg
			continue
		}
		words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
