// Command matrix runs tests on several versions of Kubernetes and OLM, and writes the results to docs/compatibility.md
// and its JSON.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/cli"
	"github.com/opgate/opgate/tools/matrix"
)

func main() { os.Exit(cli.Run(context.Background(), newCommand())) }

func newCommand() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "matrix [--row=NAME]...",
		Short: "Run tests on several versions of Kubernetes and OLM, and write docs/compatibility.md",
		Long: `Build each version of kube-apiserver and of OLM from its Go modules, run the same tests on it, and write the results to
docs/compatibility.json and to the tables of docs/compatibility.md. Results of rows that are not run now stay as they are, with their date.

Each version takes minutes to build the first time. Logs are in bin/matrix.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, only) },
	}
	cmd.Flags().StringSliceVar(&only, "row", nil,
		"`names` of the rows to run, such as kubernetes-1.32-olm-0.42,kubernetes-1.36-olm-0.28; all if none is given")
	return cmd
}

func run(cmd *cobra.Command, only []string) error {
	ctx := cmd.Context()
	checkout, err := repo.Find()
	if err != nil {
		return err
	}
	kubernetes, olm, err := assets.PinnedVersions()
	if err != nil {
		return err
	}
	rows := matrix.Rows(kubernetes, olm)
	chosen, err := choose(rows, only)
	if err != nil {
		return err
	}
	docs := filepath.Join(checkout.Root, "docs")
	runner := &matrix.Runner{
		Module:    filepath.Join(checkout.Root, "e2e"),
		Dir:       filepath.Join(checkout.Root, "bin", "matrix"),
		PinnedOLM: olm,
		Revision:  revision(ctx, checkout.Root),
		Log:       cmd.ErrOrStderr(),
	}
	var failed []string
	for _, row := range chosen {
		result, err := runner.Run(ctx, row)
		if err != nil {
			return err
		}
		if result.Status == matrix.Failed {
			failed = append(failed, row.Name())
		}
		// After each row, since the next one may take an hour, and read again, since another process may have run one.
		before, err := matrix.Load(docs)
		if err != nil {
			return err
		}
		if err := matrix.Save(docs, matrix.Merge(rows, before, []matrix.Result{result})); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("tests failed in %s; their logs are in %s", strings.Join(failed, ", "), runner.Dir)
	}
	return nil
}

// choose returns the rows with the given names, or all.
func choose(rows []matrix.Row, only []string) ([]matrix.Row, error) {
	if len(only) == 0 {
		return rows, nil
	}
	var names []string
	var chosen []matrix.Row
	for _, row := range rows {
		names = append(names, row.Name())
		if slices.Contains(only, row.Name()) {
			chosen = append(chosen, row)
		}
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("--row=%s: there is no such row; there are %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// revision is the commit that is tested, and whether the tree differs from it, apart from what this command writes.
func revision(ctx context.Context, root string) string {
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	commit := git("rev-parse", "--short", "HEAD")
	if git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/compatibility.*") != "" {
		commit += " and changes"
	}
	return commit
}
