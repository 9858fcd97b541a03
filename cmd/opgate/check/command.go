// Package check is `opgate check`: the gate's judging of files. It reads manifests as they would be sent to an API
// server, passes them to package rules and prints the verdicts. It makes no decision itself.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/rules"
)

// The exit codes of the command.
const (
	exitRefused  = 1 // something is refused, held or not judged
	exitUnusable = cli.ExitUnusable
)

// self is the name of the command.
const self cli.Name = "check"

// asIfApprovedNow is the value of --as-if by which every InstallPlan is judged.
const asIfApprovedNow = "approved-now"

// options are the flags.
type options struct {
	files, policies []string
	output          string
	namespace       string
	approvalMode    string
	asIf            string
	versions        versions
	exclude         []string
	ignoreFile      string
	version         string
	strict          bool
	only            string
	noInline        bool
	failOn          string
	requirePolicy   bool
	summary         bool
	// diff compares what policies judges with what old does.
	diff bool
	old  string
	// live judges by the cluster of kubeconfig.
	live       bool
	kubeconfig cli.Kubeconfig
	// at is --now, and now the time that it sets.
	at  string
	now time.Time
	// progress counts what is read; nil for none.
	progress func(files int)
}

// onlyRefused is the value of --only that leaves out what is allowed.
const onlyRefused = "refused"

const long = `Judge manifests with the same rules and in the same words as the gate on a cluster: files, directories with all below
them, kustomizations, which are built, and "-" for standard input. A kustomization that no other one uses is judged by
itself, by its own policies, by those among the plain files of its argument, and by those of --policies. What cannot be
read, built or understood is a problem, and all else is judged; what a problem may be about is not allowed. With --live
the cluster of the current context counts as well, and without files what is installed and what waits there is judged.
With --diff the first two arguments are two sets of policies, and what the second one judges otherwise is printed.

Exit codes:
  0  everything is allowed, or the input holds nothing that is judged; with --diff, nothing differs
  1  something is refused, held or not judged; with --fail-on=warning, something is warned of; with --diff, something differs
  2  the command line cannot be used, or a problem concerns operators, or may`

const example = `  # everything in a repository, each kustomization by itself, except what tests need
  opgate check . --exclude testdata --only=refused

  # a part of it by the policies of the base branch
  opgate check -p ../main/policies apps/overlays/prod

  # what a change of policies refuses or allows of what is deployed
  opgate check --diff ../main/policies policies apps

  # is what is installed and what waits on a cluster what its policies allow, and what would these change?
  opgate check --live --only=refused
  opgate check --live --diff /dev/null policies

  # may the plans that wait on another cluster be approved? With --as-if=approved-now: would the others be, today?
  kubectl get constraints.operators.coreos.com,ns,operatorpolicies,og,subscriptions.operators.coreos.com,installplans,csv,operatorconditions \
    -A -o yaml | opgate check -f - --kubernetes-version 1.36.3`

// Command returns `opgate check`. now is the clock for approval windows. Its errors carry the exit code as ExitCode()
// int, and an empty message where everything has been printed.
func Command(now func() time.Time) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:        "check [-p FILE|DIR|-]... [FILE|DIR|-]... | check --diff OLD NEW [FILE|DIR|-]...",
		SuggestFor: []string{"lint", "validate"},
		Short:      "Judge manifests: would the gate let them through?",
		Long:       long,
		Example:    example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.diff {
				if len(args) < 2 {
					return self.Usage("--diff compares two sets of policies: name the old and the new one, then what they judge")
				}
				o.old, o.policies, args = args[0], append(o.policies, args[1]), args[2:]
			}
			o.files, o.version = append(o.files, args...), cmd.Root().Version
			if err := o.validate(); err != nil {
				return err
			}
			var err error
			if o.now, err = cli.Moment(o.at, now); err != nil {
				return self.Usage("--now: %v", err)
			}
			clear := func() {}
			o.progress, clear = cli.Progress(cmd.ErrOrStderr(), "files", now)
			defer clear()
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := self.Flags(cmd)
	cli.FilesVar(flags, &o.files)
	flags.StringArrayVarP(&o.policies, "policies", "p", nil,
		`file or directory whose policies judge everything, "-" for standard input; repeatable`)
	cli.OutputVar(cmd, &o.output, formats)
	cli.ChoiceVar(cmd, &o.only, "only", "", "refused leaves out what is allowed (default: all)", onlyRefused)
	flags.BoolVar(&o.diff, "diff", false, "print what the policies of the second argument judge otherwise than those of the first")
	flags.BoolVar(&o.summary, "summary", false, "print only the counts")
	flags.BoolVar(&o.live, "live", false,
		"judge by the cluster of the current context; without files, what is installed and waits there")
	o.kubeconfig.Register(cmd)
	flags.StringArrayVar(&o.exclude, "exclude", nil, "pattern of files and directories to leave out; repeatable")
	flags.StringVar(&o.ignoreFile, "ignore-file", "",
		"patterns of what is left out, as those of the base branch (default: .opgateignore, if there is one)")
	flags.BoolVar(&o.strict, "strict", false,
		"make problems of what is recognised and not judged, and let every problem exit with 2")
	flags.BoolVar(&o.noInline, "no-inline", false,
		"take no notice of .opgateignore")
	cli.ChoiceVar(cmd, &o.failOn, "fail-on", "",
		"warning exits with 1 if there is a warning on an object, too (default: refusals and holds)", "warning")
	flags.BoolVar(&o.requirePolicy, "require-policy", false, "exit with 1 if no OperatorPolicy governs an operator")
	flags.StringVarP(&o.namespace, "namespace", "n", "",
		"namespace of objects that name none (default: what an Application or a Flux Kustomization states, else default)")
	o.approvalMode = string(rules.MutateApproval)
	cli.ChoiceVar(cmd, &o.approvalMode, "approval-mode", "", "action on a wrong installPlanApproval: mutate or deny",
		o.approvalMode, string(rules.DenyApproval))
	cli.ChoiceVar(cmd, &o.asIf, "as-if", "",
		"approved-now judges InstallPlans that were approved before (default: they are reported)", asIfApprovedNow)
	flags.StringVar(&o.versions.kubernetes, "kubernetes-version", "",
		"Kubernetes version of the cluster, such as 1.36.3 (default: unknown)")
	flags.StringVar(&o.versions.openshift, "openshift-version", "",
		"OpenShift version of the cluster, such as 4.19.3 (default: unknown, or none with --kubernetes-version)")
	flags.StringVar(&o.at, "now", "", "time to judge at, such as 2026-11-28T22:00:00Z (default: now)")
	return cmd
}

func (o *options) validate() error {
	named := slices.Concat(o.policies, o.files)
	if o.diff {
		named = append(named, o.old)
	}
	if err := cmp.Or(self.CheckFiles(named), self.CheckNamespaces(cmp.Or(o.namespace, "default"))); err != nil {
		return err
	}
	switch {
	case !o.live && o.kubeconfig.Given():
		return self.Usage("--kubeconfig, --context, --cluster and the other flags of kubectl are for --live, which is missing")
	case len(o.files) == 0 && !o.live && len(o.policies) == 0:
		return self.Usage("no input: name files, directories or -")
	case o.live && o.versions != versions{}:
		return self.Usage("the versions are those of the cluster: leave out --kubernetes-version and --openshift-version with --live")
	case o.summary && o.output != "text":
		return self.Usage("--summary is for -o text")
	}
	return nil
}

// run reads, judges and prints.
func (o *options) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	r, err := o.report(ctx, stdin)
	if err != nil {
		return err
	}
	r.finish(o)
	if err := formats[o.output](stdout, r); err != nil {
		return fmt.Errorf("write verdicts: %w", err)
	}
	switch r.code {
	case 0:
		return nil
	case exitUnusable:
		return self.Unusable("a problem of the input concerns operators, or may")
	}
	return &cli.ExitError{Code: r.code}
}

// gather reads the input, with some policies.
func (o *options) gather(policies []string, stdin io.Reader) (*manifests.Input, error) {
	ignore, err := o.ignored()
	if err == nil {
		var in *manifests.Input
		in, err = manifests.Gather(o.files, stdin, manifests.Options{Namespace: o.namespace, Policies: policies,
			Exclude: o.exclude, Ignore: ignore, Strict: o.strict, Progress: o.progress})
		if err == nil {
			return in, nil
		}
	}
	return nil, self.Usage("%v", err)
}

// ignored returns the patterns of the ignore file, one on each line; those that begin with # are comments.
func (o *options) ignored() (patterns []string, err error) {
	if o.noInline && o.ignoreFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(cmp.Or(o.ignoreFile, manifests.IgnoreFile))
	if o.ignoreFile == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, line)
		}
	}
	return patterns, err
}
