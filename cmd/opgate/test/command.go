// Package test is `opgate test`: it plays scenarios of users, which say what the gate must answer to a write, through
// the handlers of the gate. It makes no decision itself.
package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
)

// The exit codes of the command.
const (
	exitDiffers  = 1 // a write got another answer
	exitUnusable = cli.ExitUnusable
)

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
  opgate test --from shop/install-x7 > tests/etcd-0.9.4.txtar

  # a report for a pipeline
  opgate test tests/ -o junit > opgate-test.xml`

// formats write results.
var formats = map[string]func(io.Writer, []result) error{"junit": printJUnit, "text": printText}

var formatNames = []string{"junit", "text"}

// options are the flags.
type options struct {
	output       string
	update       bool
	approvalMode string
	versions     scenario.Versions
	// from is an InstallPlan of the cluster of kubeconfig, as NAMESPACE/NAME.
	from       string
	kubeconfig cli.Kubeconfig
}

// fault is how the answer to a write differs from what its scenario wants, or why it could not be played.
type fault struct {
	// line counts from 1; 0 where it is unknown.
	line int
	what string
}

// status is what became of a file, as it is printed.
type status string

const (
	asWanted status = "ok"
	updated  status = "updated"
	differs  status = "FAIL"
	unusable status = "ERROR" // nothing was played
	skipped  status = "skipped"
)

// result is what became of one file, and why.
type result struct {
	// file is the path as it was found.
	file string
	status
	faults []fault
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
			if err := o.validate(paths); err != nil {
				return err
			}
			if o.from != "" {
				return o.fromPlan(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(),
					time.Now().Truncate(time.Second)) //nolint:forbidigo // the answer is that of the present
			}
			return o.run(cmd.Context(), paths, cmd.OutOrStdout())
		},
	}
	flags := self.Flags(cmd)
	cli.OutputVar(cmd, &o.output, formatNames)
	flags.BoolVar(&o.update, "update", false,
		"write the words that are given into the files; read the difference before you keep it")
	flags.StringVar(&o.approvalMode, "approval-mode", string(rules.MutateApproval),
		"that of the gate: its action on a wrong installPlanApproval, mutate or deny")
	flags.StringVar(&o.versions.Kubernetes, "kubernetes-version", "",
		"Kubernetes version of the cluster, such as 1.36.3 (default: unknown)")
	flags.StringVar(&o.versions.OpenShift, "openshift-version", "",
		"OpenShift version of the cluster, such as 4.19.3 (default: unknown)")
	cli.Complete(cmd, "approval-mode", []string{string(rules.MutateApproval), string(rules.DenyApproval)})
	flags.StringVar(&o.from, "from", "", "InstallPlan of the cluster to print a scenario of, as NAMESPACE/PLAN")
	o.kubeconfig.Register(cmd)
	return cmd
}

func (o *options) validate(paths []string) error {
	switch {
	case o.from != "" && (o.update || len(paths) > 0):
		return self.Usage("--from prints a scenario and plays none: leave out PATHs and --update")
	case o.from == "" && o.kubeconfig.Given():
		return self.Usage("--kubeconfig, --context, --cluster and the other flags of kubectl are for --from")
	}
	if err := self.CheckOutput(o.output, formatNames); err != nil {
		return err
	}
	if !slices.Contains([]string{string(rules.MutateApproval), string(rules.DenyApproval)}, o.approvalMode) {
		return self.Usage("unknown approval mode %q: use %s or %s", o.approvalMode, rules.MutateApproval,
			rules.DenyApproval)
	}
	return nil
}

func (o *options) player() *player {
	return &player{versions: o.versions, approvalMode: rules.ApprovalMode(o.approvalMode),
		referred: map[string][]*unstructured.Unstructured{}}
}

// run plays all scenarios and prints what became of them.
func (o *options) run(ctx context.Context, paths []string, stdout io.Writer) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := scenariosIn(paths)
	if err != nil {
		return err
	}
	p := o.player()
	results := make([]result, len(files))
	code := 0
	for i, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		results[i] = o.play(ctx, p, file)
		switch results[i].status {
		case unusable:
			code = exitUnusable
		case differs:
			code = max(code, exitDiffers)
		case asWanted, updated, skipped:
		}
	}
	if err := formats[o.output](stdout, results); err != nil {
		return self.Unusable("write results: %v", err)
	}
	if code > 0 {
		return &cli.ExitError{Code: code}
	}
	return nil
}

// scenariosIn returns the files that the paths stand for, each once, in the order of the paths. Hidden directories
// below a path are left out.
func scenariosIn(paths []string) (files []string, err error) {
	for _, root := range paths {
		if root == "" {
			return nil, self.Usage("a path is empty: give a file or a directory")
		}
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
	var once []string
	for _, file := range files {
		if file = filepath.Clean(file); !slices.Contains(once, file) {
			once = append(once, file)
		}
	}
	return once, nil
}

// play plays the scenario in a file, and updates the file if it is to be.
func (o *options) play(ctx context.Context, p *player, file string) result {
	failed := func(err error) result {
		if at, ok := err.(*scenario.Fault); ok { //nolint:errorlint // a wrapped one has another message
			return result{file, unusable, []fault{{line: at.Line, what: at.Err.Error()}}}
		}
		return result{file, unusable, []fault{{what: err.Error()}}}
	}
	data, err := os.ReadFile(file) //nolint:gosec // a file that the user names
	if err != nil {
		return failed(err)
	}
	s, err := scenario.Parse(file, data, o.versions)
	if err == nil {
		err = placeholders(data, o.versions)
	}
	if err != nil {
		return failed(err)
	}
	if s.Verb == "delete" {
		return result{file, skipped, []fault{{what: "no webhook reviews deletions: the API server refuses them"}}}
	}
	got, err := p.play(ctx, filepath.Dir(file), s)
	if err != nil {
		return failed(err)
	}
	r := result{file, asWanted, faults(s, got)}
	if o.update && len(r.faults) > 0 && got.Decision == s.Decision {
		if err := os.WriteFile(file, scenario.Update(data, got.Message, got.Warnings, o.versions), 0o600); err != nil {
			return failed(err)
		}
		s.Message, s.Warnings = got.Message, got.Warnings
		r.status, r.faults = updated, faults(s, got)
	}
	if len(r.faults) > 0 {
		r.status = differs
	}
	return r
}

// placeholders returns an error for a placeholder of a version that is not known.
func placeholders(data []byte, versions scenario.Versions) error {
	left := versions.Insert(string(data))
	for _, p := range []struct{ placeholder, flag string }{
		{scenario.KubernetesPlaceholder, "--kubernetes-version"},
		{scenario.OpenShiftPlaceholder, "--openshift-version"}} {
		if before, _, found := strings.Cut(left, p.placeholder); found {
			return &scenario.Fault{Line: 1 + strings.Count(before, "\n"),
				Err: fmt.Errorf("%s is not known: give %s", p.placeholder, p.flag)}
		}
	}
	return nil
}

// at is the place of a fault: "tests/etcd.txtar:12".
func (r *result) at(f fault) string {
	file := manifests.DisplayFile(filepath.ToSlash(r.file))
	if f.line > 0 {
		return fmt.Sprintf("%s:%d", file, f.line)
	}
	return file
}

// escaped escapes each line of what others wrote.
func escaped(what string) string {
	lines := strings.Split(what, "\n")
	for i, line := range lines {
		lines[i] = text.Escape(line)
	}
	return strings.Join(lines, "\n")
}

// printText writes a line for each scenario, or for each of its faults, and the counts.
func printText(w io.Writer, results []result) error {
	out := bufio.NewWriter(w)
	count := map[status]int{}
	for i := range results {
		r := &results[i]
		count[r.status]++
		for _, f := range r.faults {
			fmt.Fprintf(out, "%-7s  %s: %s\n", r.status, escaped(r.at(f)),
				strings.ReplaceAll(escaped(f.what), "\n", "\n         "))
		}
		if len(r.faults) == 0 {
			fmt.Fprintf(out, "%-7s  %s\n", r.status, escaped(r.at(fault{})))
		}
	}
	fmt.Fprintf(out, "%s: %d as wanted, %d not, %d cannot be used", text.Count(len(results), "scenario"),
		count[asWanted]+count[updated], count[differs], count[unusable])
	for _, s := range []status{skipped, updated} {
		if count[s] > 0 {
			fmt.Fprintf(out, ", %d %s", count[s], s)
		}
	}
	fmt.Fprintln(out)
	return out.Flush()
}

// printJUnit writes a test for each scenario.
func printJUnit(w io.Writer, results []result) error {
	suite := junit.Testsuite{Name: "opgate test"}
	for i := range results {
		r := &results[i]
		c := junit.Testcase{Name: strings.TrimSuffix(filepath.Base(r.file), scenario.Extension),
			Classname: escaped(r.at(fault{}))}
		var lines []string
		for _, f := range r.faults {
			lines = append(lines, escaped(r.at(f)+": "+f.what))
		}
		all := strings.Join(lines, "\n")
		first, _, _ := strings.Cut(all, "\n")
		why := &junit.Result{Message: first, Data: all}
		switch r.status {
		case unusable:
			c.Error = why
		case differs:
			c.Failure = why
		case skipped:
			c.Skipped = why
		case asWanted, updated:
		}
		suite.AddTestcase(c)
	}
	var suites junit.Testsuites
	suites.AddSuite(suite)
	return suites.WriteXML(w)
}
