// Package check is `opgate check`: the gate's judging, offline. It reads manifests as they would be sent to an API
// server, passes them to package rules and prints the verdicts. It makes no decision itself.
package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// The exit codes of the command.
const (
	exitRefused  = 1 // something is refused or held
	exitUnusable = cli.ExitUnusable
)

// self is the name of the command.
const self cli.Name = "check"

// asIfApprovedNow is the value of --as-if by which every InstallPlan is judged.
const asIfApprovedNow = "approved-now"

// options are the flags.
type options struct {
	files        []string
	output       string
	namespace    string
	approvalMode string
	asIf         string
	versions     versions
	exclude      []string
	config       string
	configured   configured
	version      string
	strict       bool
	only         string
	noInline     bool
	failOn       string
	summary      bool
	// diff compares the verdicts under old and new, which are the first two arguments.
	diff     bool
	old, new string
	// cluster judges by the cluster of kubeconfig.
	cluster    bool
	kubeconfig cli.Kubeconfig
	// at is --now, and now the time that it sets.
	at  string
	now time.Time
}

// failOnWarning is the value of --fail-on by which warnings are like refusals.
const failOnWarning = "warning"

// onlyRefused is the value of --only that leaves out what is allowed.
const onlyRefused = "refused"

const long = `Judge manifests offline, with the same rules and in the same words as the gate on a cluster: files, directories with all below
them, kustomizations, which are built, and "-" for standard input. Everything in the input is context for everything
else: policies and Constraints in force, what is installed, labels of namespaces. With --cluster that is the cluster
of the current context, and without files what is installed and what waits there is judged. With --diff the first two
arguments are two sets of policies, and what they judge differently is printed. docs/check.md has what is read,
skipped and judged, .opgate.yaml, and the fields of each format.

Exit codes:
  0  everything is allowed, or the input holds nothing that is judged; with --diff, nothing differs
  1  something is refused or held; with --diff, something differs; with --fail-on=warning, something is warned of
  2  the command line or the input cannot be used; nothing was judged`

const example = `  # everything in a repository, with each overlay, except what tests need
  opgate check . --exclude testdata --only=refused

  # what a change of policies refuses or allows of what is deployed, for a comment on its pull request
  opgate check --diff ../main/policies policies apps -o markdown

  # is what is installed and what waits on a cluster what the policies allow?
  opgate check --cluster --only=refused

  # may the plans that wait on another cluster be approved? With --as-if=approved-now: would the others be, today?
  kubectl get constraints.operators.coreos.com,ns,operatorpolicies,og,subscriptions.operators.coreos.com,installplans,csv,operatorconditions \
    -A -o yaml | opgate check -f - --kubernetes-version 1.36.3`

// Command returns `opgate check`. now is the clock for approval windows. Its errors carry the exit code as ExitCode()
// int, and an empty message where everything has been printed.
func Command(now func() time.Time) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "check [FILE|DIR|-]... [-f FILE|DIR|-]... | check --diff OLD NEW [FILE|DIR|-]...",
		Short:   "Judge manifests offline: would the gate let them through?",
		Long:    long,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.diff {
				if len(args) < 2 {
					return self.Usage("--diff compares two sets of policies: name the old and the new one, then what they judge")
				}
				o.old, o.new, args = args[0], args[1], args[2:]
			}
			o.files, o.version = append(o.files, args...), cmd.Root().Version
			if err := o.configure(); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			var err error
			if o.now, err = cli.Moment(o.at, now); err != nil {
				return self.Usage("--now: %v", err)
			}
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := self.Flags(cmd)
	cli.FilesVar(flags, &o.files)
	cli.OutputVar(cmd, &o.output, formatNames())
	flags.StringVar(&o.only, "only", "", "refused leaves out what is allowed (default: all)")
	flags.BoolVar(&o.summary, "summary", false, "print only the counts")
	flags.BoolVar(&o.cluster, "cluster", false,
		"judge by the cluster of the current context; without files, what is installed and waits there")
	o.kubeconfig.Register(cmd)
	flags.BoolVar(&o.diff, "diff", false,
		"show what the policies in NEW, the second argument, refuse or allow unlike those in OLD, the first")
	flags.StringArrayVar(&o.exclude, "exclude", nil, "pattern of files and directories to leave out; repeatable")
	flags.StringVar(&o.config, "config", "",
		"configuration to use, as that of the base branch (default: .opgate.yaml, if there is one)")
	flags.BoolVar(&o.strict, "strict", false,
		"skip nothing, take every document for an object, and make faults of warnings about the input")
	flags.BoolVar(&o.noInline, "no-inline", false, "take no notice of comments in files that set warnings aside")
	flags.StringVar(&o.failOn, "fail-on", "",
		"warning exits with 1 if there is a warning on an object, too (default: refusals and holds)")
	cli.NamespaceVar(flags, &o.namespace, "objects")
	flags.StringVar(&o.approvalMode, "approval-mode", string(rules.MutateApproval),
		"action on a wrong installPlanApproval: mutate or deny")
	flags.StringVar(&o.asIf, "as-if", "",
		"approved-now judges InstallPlans that were approved before (default: they are reported)")
	flags.StringVar(&o.versions.kubernetes, "kubernetes-version", "",
		"Kubernetes version of the cluster, such as 1.36.3 (default: unknown)")
	flags.StringVar(&o.versions.openshift, "openshift-version", "",
		"OpenShift version of the cluster, such as 4.19.3 (default: unknown, or none with --kubernetes-version)")
	flags.StringVar(&o.at, "now", "", "time to judge at, such as 2026-11-28T22:00:00Z (default: now)")
	cli.Complete(cmd, "only", []string{onlyRefused})
	cli.Complete(cmd, "fail-on", []string{failOnWarning})
	cli.Complete(cmd, "as-if", []string{asIfApprovedNow})
	cli.Complete(cmd, "approval-mode", []string{string(rules.MutateApproval), string(rules.DenyApproval)})
	return cmd
}

func (o *options) validate() error {
	if err := cmp.Or(self.CheckFiles(o.named()), self.CheckOutput(o.output, formatNames()),
		self.CheckNamespaces(o.namespace)); err != nil {
		return err
	}
	switch {
	case len(o.named()) == 0 && !o.cluster:
		return self.Usage("no input: name files, directories or -")
	case !o.cluster && o.kubeconfig != cli.Kubeconfig{}:
		return self.Usage("--kubeconfig, --context, --user, --as and --request-timeout are for --cluster, which is missing")
	case o.cluster && o.versions != versions{}:
		return self.Usage("the versions are those of the cluster: leave out --kubernetes-version and --openshift-version with --cluster")
	case o.only != "" && o.only != onlyRefused:
		return self.Usage("unknown --only %q: use %s, or leave it out", o.only, onlyRefused)
	case o.failOn != "" && o.failOn != failOnWarning:
		return self.Usage("unknown --fail-on %q: use %s, or leave it out", o.failOn, failOnWarning)
	case o.diff && o.failOn != "":
		return self.Usage("--fail-on is not for --diff, which exits with 1 if anything differs")
	case o.diff && comparisonFormats[o.output] == nil:
		return self.Usage("-o %s is not for --diff: use %s", o.output, cli.Alternatives(comparisonFormatNames()))
	case o.diff && o.only != "":
		return self.Usage("--only is not for --diff, which shows differences only")
	case o.summary && !slices.Contains(withNotes, o.output):
		return self.Usage("--summary is for -o %s", strings.Join(withNotes, " and "))
	case !slices.Contains([]string{string(rules.MutateApproval), string(rules.DenyApproval)}, o.approvalMode):
		return self.Usage("unknown approval mode %q: use %s or %s", o.approvalMode, rules.MutateApproval,
			rules.DenyApproval)
	case o.asIf != "" && o.asIf != asIfApprovedNow:
		return self.Usage("unknown --as-if %q: use %s, or leave it out", o.asIf, asIfApprovedNow)
	}
	return nil
}

// run reads, judges and prints.
func (o *options) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	how, err := o.judgings(ctx)
	if err != nil {
		return err
	}
	if o.diff {
		return o.judgeTwice(ctx, how, stdin, stdout, stderr)
	}
	result, err := o.judgeFiles(ctx, o.files, &how[0], stdin, stderr)
	if err != nil {
		if result != nil && slices.Contains(withFaults, o.output) {
			return cmp.Or(formats[o.output](stdout, result), err)
		}
		return err
	}
	o.leaveOut(result)
	if err := result.print(stdout, stderr, o.output); err != nil {
		return fmt.Errorf("write verdicts: %w", err)
	}
	if result.count[verdict.Hold]+result.count[verdict.Deny] > 0 || o.failOn != "" && result.warned {
		return &cli.ExitError{Code: exitRefused}
	}
	return nil
}

// named returns all inputs that the command line names.
func (o *options) named() []string {
	if !o.diff {
		return o.files
	}
	return append([]string{o.old, o.new}, o.files...)
}

// reading returns how inputs are read.
func (o *options) reading() manifests.Options {
	exclude := slices.Clone(o.configured.exclude)
	for _, pattern := range o.exclude {
		exclude = append(exclude, manifests.Pattern{Text: pattern})
	}
	return manifests.Options{Namespace: o.namespace, Exclude: exclude, Overlays: o.configured.overlays,
		Config: o.configured.file, Strict: o.strict}
}

// judgeFiles reads and judges inputs. What cannot be used it prints, and returns an error with an exit code, and a
// report of the faults.
func (o *options) judgeFiles(
	ctx context.Context, names []string, how *judging, stdin io.Reader, stderr io.Writer,
) (*report, error) {
	in, err := manifests.Gather(names, stdin, o.reading())
	if err != nil {
		return nil, self.Usage("%v", err)
	}
	result, err := o.judgeAll(ctx, in, how)
	if err = cmp.Or(err, in.Unusable(stderr)); err != nil {
		return result, self.Unusable("nothing was judged: %v", err)
	}
	return result, nil
}
