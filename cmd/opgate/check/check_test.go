package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/check"
)

// opgate runs the command under a root, and reports errors and exit codes as the program does.
func opgate(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "opgate", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(check.Command(time.Now))
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(stderr, "opgate: "+message)
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
	testscript.Main(m, map[string]func(){"opgate": func() {
		os.Exit(opgate(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}})
}

// TestScripts runs scripts, in which "check" is the command in this process, and "exec opgate check" the program.
func TestScripts(t *testing.T) {
	dir, err := filepath.Abs("testdata/script")
	if err != nil {
		t.Fatal(err)
	}
	programs := os.Getenv("PATH")
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error { // builds of kustomizations in this process have no $PATH
			e.Setenv("PATH", programs)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"check": func(ts *testscript.TestScript, neg bool, args []string) {
				if code := run(ts, args); neg != (code != 0) {
					ts.Fatalf("exit code %d", code)
				}
			},
			"exits": exits,
		},
	})
}

// working is held while the working directory is that of a script.
var working sync.Mutex

// run runs the command in the directory of a script, and returns its exit code.
func run(ts *testscript.TestScript, args []string) int {
	working.Lock()
	defer working.Unlock()
	before, err := os.Getwd()
	ts.Check(err)
	ts.Check(os.Chdir(ts.MkAbs(".")))
	code := opgate(append([]string{"check"}, args...), strings.NewReader(""), ts.Stdout(), ts.Stderr())
	ts.Check(os.Chdir(before))
	return code
}

// exits wants one exit code, of the command or of a program: exits 2 check -f x.yaml.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE {check|PROGRAM} [ARGUMENT...]")
	}
	got := 0
	if args[1] == "check" {
		got = run(ts, args[2:])
	} else if err := ts.Exec(args[1], args[2:]...); err != nil {
		status, ok := errors.AsType[interface {
			error
			ExitCode() int
		}](err)
		if !ok {
			ts.Fatalf("run: %v", err)
		}
		got = status.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// TestRepository: all that this repository holds is allowed, except for what its configuration leaves out.
func TestRepository(t *testing.T) {
	t.Chdir("../../..")
	var out, errs bytes.Buffer
	cmd := check.Command(time.Now)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs([]string{".", "--only=refused"})
	if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "excluded, and naming operators or policies: ") {
		t.Errorf("opgate check .: %v\n%s%s", err, out.String(), errs.String())
	}
}

// TestReadmes: the output of "opgate check" in the README, and in that of the samples, is the real one.
func TestReadmes(t *testing.T) {
	t.Chdir("../../..")
	for command, readme := range map[string]string{
		"$ bin/opgate check -f manifests/samples/subscription-catalog-deny.yaml\n": "README.md",
		"$ opgate check -f manifests/samples/bundle-version-deny.yaml\n":           "manifests/samples/README.md",
	} {
		text, err := os.ReadFile(readme)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, found := strings.Cut(string(text), command)
		want, _, closed := strings.Cut(rest, "```")
		if !found || !closed {
			t.Fatalf("%s does not show %q", readme, command)
		}
		_, args, _ := strings.Cut(strings.TrimSpace(command), " check ")
		var out bytes.Buffer
		cmd := check.Command(time.Now)
		cmd.SetOut(&out)
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err == nil {
			t.Errorf("%s: all is allowed", readme)
		}
		if out.String() != want {
			t.Errorf("%s shows:\n%s\nthe command prints:\n%s", readme, want, out.String())
		}
	}
}
