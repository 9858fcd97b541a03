// Package test is `opgate test`: it plays scenarios of users, which say what the gate must answer to a write, through
// the handlers of the gate. It makes no decision itself.
package test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
)

// exitDiffers is the exit code if a write got another answer.
const exitDiffers = 1

// self is the name of the command.
const self cli.Name = "test"

const long = `Test what the gate answers: given these policies and this state of a cluster, this write gets this verdict, in these words.

A test is a scenario, a file NAME.txtar. PATHs are such files, or directories that are searched for them; without a PATH
the current directory is. Each write goes through the handlers of the gate, and no cluster is needed. docs/test.md has
the format.

--update writes the words that each write got into its file. It never changes the decision: a wrong one stays a fault.

--from prints the scenario of an InstallPlan on the cluster of the current context, with all that its approval is judged
by and the answer that it gets now: what was decided becomes a test.

Exit codes:
  0  every write got what its scenario wants
  1  a write got something else
  2  the command line or a scenario cannot be used; the others were played`

const example = `  # all scenarios below a directory
  opgate test tests/

  # write the scenario with the decision that you expect, and fill in the words
  opgate test --update tests/etcd-is-held.txtar

  # what holds a plan on the cluster, as a test
  opgate test --from shop/install-x7 > tests/etcd-0.9.4.txtar`

// options are the flags.
type options struct {
	update       bool
	approvalMode string
	versions     scenario.Versions
	// from is an InstallPlan of the cluster of kubeconfig, as NAMESPACE/NAME.
	from       string
	kubeconfig cli.Kubeconfig
}

// Command returns `opgate test`. Its errors carry the exit code as ExitCode() int, and an empty message where
// everything has been printed.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "test [PATH]... | test --from NAMESPACE/PLAN",
		Short:   "Test policies: does a write get the verdict and the words that a scenario wants?",
		Long:    long,
		Example: example,
		RunE: func(cmd *cobra.Command, paths []string) error {
			switch {
			case o.from == "" && o.kubeconfig.Given():
				return self.Usage("--kubeconfig, --context, --cluster and the other flags of kubectl are for --from")
			case o.from == "":
				return o.run(cmd.Context(), paths, cmd.OutOrStdout())
			case o.update || len(paths) > 0:
				return self.Usage("--from prints a scenario and plays none: leave out PATHs and --update")
			}
			return o.fromPlan(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(),
				time.Now().Truncate(time.Second)) //nolint:forbidigo // the answer is that of the present
		},
	}
	flags := self.Flags(cmd)
	flags.BoolVar(&o.update, "update", false,
		"write the words that are given into the files; read the difference before you keep it")
	o.approvalMode = string(rules.MutateApproval)
	cli.ChoiceVar(cmd, &o.approvalMode, "approval-mode", "",
		"that of the gate: its action on a wrong installPlanApproval, mutate or deny", o.approvalMode,
		string(rules.DenyApproval))
	flags.StringVar(&o.versions.Kubernetes, "kubernetes-version", "",
		"Kubernetes version of the cluster, such as 1.36.3 (default: unknown)")
	flags.StringVar(&o.versions.OpenShift, "openshift-version", "",
		"OpenShift version of the cluster, such as 4.19.3 (default: unknown)")
	flags.StringVar(&o.from, "from", "", "InstallPlan of the cluster to print a scenario of, as NAMESPACE/PLAN")
	o.kubeconfig.Register(cmd)
	return cmd
}

// run plays all scenarios and prints what became of each: a line, or one for each fault.
func (o *options) run(ctx context.Context, paths []string, stdout io.Writer) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := scenariosIn(paths)
	if err != nil {
		return err
	}
	var wanted, differing, unusable int
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		status, name := "ok", text.Escape(filepath.ToSlash(file))
		faults, updated, err := o.play(ctx, file)
		switch {
		case err != nil:
			unusable++
			status, faults = "ERROR", []error{err}
		case len(faults) > 0:
			differing++
			status = "FAIL"
		case updated:
			wanted++
			status = "updated"
		default:
			wanted++
		}
		for _, fault := range faults {
			separator := ": "
			if _, ok := fault.(*scenario.Fault); ok { //nolint:errorlint // its message begins with the line
				separator = ":"
			}
			var lines []string
			for _, line := range strings.Split(fault.Error(), "\n") {
				lines = append(lines, text.Escape(line))
			}
			fmt.Fprintf(stdout, "%-7s  %s%s%s\n", status, name, separator, strings.Join(lines, "\n         "))
		}
		if len(faults) == 0 {
			fmt.Fprintf(stdout, "%-7s  %s\n", status, name)
		}
	}
	fmt.Fprintf(stdout, "%s: %d as wanted, %d not, %d cannot be used\n", text.Count(len(files), "scenario"), wanted,
		differing, unusable)
	switch {
	case unusable > 0:
		return &cli.ExitError{Code: cli.ExitUnusable}
	case differing > 0:
		return &cli.ExitError{Code: exitDiffers}
	}
	return nil
}

// scenariosIn returns the files that the paths stand for, in the order of the paths. Hidden directories below a path
// are left out.
func scenariosIn(paths []string) (files []string, err error) {
	for _, root := range paths {
		before := len(files)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case !entry.IsDir() && (path == root || filepath.Ext(path) == scenario.Extension):
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, self.Unusable("%v", err)
		}
		if len(files) == before {
			return nil, self.Usage("%s has no scenarios, files named *%s", text.Quote(root), scenario.Extension)
		}
	}
	return files, nil
}

// play plays the scenario in a file, and updates the file if it is to be. It returns how the answer differs from what
// the scenario wants. Its error is that the scenario cannot be used.
func (o *options) play(ctx context.Context, file string) (differences []error, updated bool, err error) {
	data, err := os.ReadFile(file) //nolint:gosec // a file that the user names
	if err != nil {
		return nil, false, err
	}
	s, err := scenario.Parse(file, data, o.versions)
	if err != nil {
		return nil, false, err
	}
	got, err := o.send(ctx, filepath.Dir(file), s)
	if err != nil {
		return nil, false, err
	}
	differences = differ(s, got)
	if !o.update || len(differences) == 0 || got.Decision != s.Decision {
		return differences, false, nil
	}
	if err := os.WriteFile(file, scenario.Update(data, got.Message, got.Warnings, o.versions), 0o600); err != nil {
		return nil, false, err
	}
	s.Message, s.Warnings = got.Message, got.Warnings
	return differ(s, got), true, nil
}
