package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/check"
)

// opgate runs the command under a root, and reports errors and exit codes as the program
// does.
func opgate() int {
	root := &cobra.Command{Use: "opgate", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(check.Command())
	err := root.Execute()
	if err == nil {
		return 0
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(os.Stderr, "opgate: "+message)
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coded.ExitCode()
	}
	return 3 // a command line error that the command let through
}

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"opgate": func() { os.Exit(opgate()) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a program and wants one exit code: exits 2 opgate check -f x.yaml.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENT...]")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		status, ok := errors.AsType[interface {
			error
			ExitCode() int
		}](err)
		if !ok {
			ts.Fatalf("run: %v", err)
		}
		got = fmt.Sprint(status.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// The output in the readme of the samples is the real one.
func TestSamplesReadme(t *testing.T) {
	t.Chdir("../../..")
	text, err := os.ReadFile("manifests/samples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	const command = "$ opgate check -f manifests/samples/plan-version-deny.yaml\n"
	_, rest, found := strings.Cut(string(text), command)
	want, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("the readme does not show %q", command)
	}
	var out bytes.Buffer
	cmd := check.Command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"-f", "manifests/samples/plan-version-deny.yaml"})
	if err := cmd.Execute(); err == nil {
		t.Error("the sample is allowed")
	}
	if out.String() != want {
		t.Errorf("the readme shows:\n%s\nthe command prints:\n%s", want, out.String())
	}
}
