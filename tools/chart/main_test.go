package chart_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/chart"
)

// namespace is where the tests render the chart for. It is not the one that plain manifests are made with, so that a
// name that is written out somewhere shows.
const namespace = "gate"

// What all tests share.
var (
	checkout repo.Checkout
	helm     string // path of the real helm
	defaults objects
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	err := func() (err error) {
		if checkout, err = repo.Find(); err != nil {
			return err
		}
		if helm, err = assets.FindHelm(ctx, assets.Options{Log: os.Stderr}); err != nil {
			return err
		}
		defaults, err = render(ctx, "")
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up:", err)
		return 1
	}
	return m.Run()
}

// setOLM is what every rendering without a cluster needs.
const setOLM = "olm.identity=" + chart.OLM

// render renders the chart with values, which are YAML, and decodes what comes out. More arguments of helm may follow.
// Unless the values name OLM it is where it is on most clusters.
func render(ctx context.Context, values string, args ...string) (objects, error) {
	file, err := os.CreateTemp("", "opgate-values-*.yaml")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	args = append([]string{"--values", file.Name()}, args...)
	if !strings.Contains(values, "identit") {
		args = append(args, "--set", setOLM)
	}
	_, err = file.WriteString(values)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	documents, err := chart.Render(ctx, helm, checkout.Chart(), namespace, args...)
	if err != nil {
		return nil, err
	}
	return decode(documents)
}

func mustRender(t *testing.T, values string, args ...string) objects {
	t.Helper()
	o, err := render(t.Context(), values, args...)
	if err != nil {
		t.Fatalf("%v\nvalues:\n%s", err, values)
	}
	return o
}

// output runs a program and returns what it wrote, errors included.
func output(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

func mustOutput(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := output(t, program, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return out
}
