package orphans

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// variable makes the test binary run until its input ends.
const variable = "OPGATE_E2E_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(variable) == "" {
		os.Exit(m.Run())
	}
	fmt.Println("running")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestEnd ends what has its data in a directory, and nothing of another checkout, whose path may contain that of the
// directory.
func TestEnd(t *testing.T) {
	mine := t.TempDir()
	others := filepath.Join(t.TempDir(), mine)
	type program struct {
		args []string
		left bool
	}
	programs := map[string]program{
		"etcd": {args: []string{"etcd", "--data-dir=" + mine + "/etcd"}},
		"opgate": {args: []string{"/bin/opgate-server", "serve", "--kubeconfig",
			mine + "/opgate.kubeconfig"}},
		"a pod":                    {args: []string{mine + "/pods/shop_a_1/anything"}},
		"etcd of another checkout": {args: []string{"etcd", "--data-dir=" + others + "/etcd"}, left: true},
		"opgate of another": {args: []string{"/bin/opgate-server", "serve", "--kubeconfig",
			others + "/opgate.kubeconfig"}, left: true},
		"a pod of another":      {args: []string{others + "/pods/shop_a_1/anything"}, left: true},
		"a directory beside it": {args: []string{"etcd", "--data-dir=" + mine + "-2/etcd"}, left: true},
		"an editor":             {args: []string{"vi", mine + "/etcd.log"}, left: true},
	}
	type running struct {
		cmd   *exec.Cmd
		input io.Closer
	}
	started := map[string]running{}
	for name, program := range programs {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Args = program.args
		cmd.Env = append(os.Environ(), variable+"=1")
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		started[name] = running{cmd, input}
		if _, err := io.ReadFull(output, make([]byte, len("running"))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	// End waits until they are gone, which they are once their parent has waited for them.
	ended := map[string]chan error{}
	for name, r := range started {
		done := make(chan error, 1)
		go func() { done <- r.cmd.Wait() }()
		ended[name] = done
	}
	var out bytes.Buffer
	if err := End(t.Context(), &out, mine); err != nil {
		t.Error(err)
	}
	for name, program := range programs {
		_ = started[name].input.Close() // what is left ends by itself
		<-ended[name]                   //nolint:errcheck // how it ended is in its state
		status, ok := started[name].cmd.ProcessState.Sys().(syscall.WaitStatus)
		if left := ok && status.Exited(); left != program.left {
			t.Errorf("%s is left: %t, want %t", name, left, program.left)
		}
	}
	if n := strings.Count(out.String(), "ending leftover"); n != 3 {
		t.Errorf("%d are ended:\n%s", n, out.String())
	}
}
