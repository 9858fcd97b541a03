// Package check is `opgate check`: the gate's judging, offline. It reads manifests as they would be sent to an API
// server, passes them to package rules and prints the verdicts. It makes no decision itself.
package check

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/rules"
)

// The exit codes of the command.
const (
	exitRefused  = 1 // something is refused or held
	exitUnusable = 2 // the command line or the input cannot be used, and nothing was judged
)

func usage(format string, args ...any) error {
	return &cli.ExitError{Code: exitUnusable, Message: "check: " + fmt.Sprintf(format, args...) + `; see "opgate check --help"`}
}

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
	strict       bool
	only         string
	summary      bool
}

// onlyRefused is the value of --only that leaves out what is allowed.
const onlyRefused = "refused"

const long = `Judge manifests offline, with the same rules and in the same words as the gate on a cluster.

Every Subscription is judged as if it were created now, every InstallPlan as if it were approved now, and every
OperatorPolicy and Constraint as if it were created now. An InstallPlan that was approved before, and that OLM runs
or has run (phase Installing, Complete or Failed), is reported and not judged again, with a warning if a step that
OLM has yet to write is refused; --as-if=approved-now judges it like the others. Everything that the input holds is
context for everything else: the OperatorPolicies and Constraints are the ones in force, invalid ones included,
Subscriptions and ClusterServiceVersions say what is installed, OperatorConditions whether it may be upgraded,
OperatorGroups whether it is for all namespaces, and Namespaces which labels they have. Objects of other kinds are
ignored; those of OLM and of Open Cluster Management are named as not judged. A rule of a Constraint that needs more than the input tells holds what it cannot judge: give it the
Namespaces, and the versions of the cluster by --kubernetes-version and --openshift-version.

The input is any mix of files, directories (read with all below them: *.yaml, *.yml and *.json, in order of their
names) and "-" for standard input. YAML with any number of documents, JSON, and lists of any kind are read. Documents
without apiVersion and kind, hidden directories and templates of charts are skipped and counted; --strict reads them
like all else, and a document that is no object is then a fault. --exclude leaves out what matches a pattern as in
.dockerignore; a pattern without a slash counts in every directory.

A directory with a kustomization is built as by kubectl, without plugins and network, and what it makes is judged in
place of the files that it is made from. Overlays of one base are alternatives: each is judged apart, together with all
that has no alternative and the overlays of the same name of other bases.

What
kubectl or the API server would refuse to take at all (unknown and repeated fields, missing names, the same
object twice) makes the input unusable: all such faults are reported, and nothing is judged. Unknown fields of
an OperatorPolicy or a Constraint are a verdict on it.

The text output leaves out what the gate only fills in with defaults. The JSON output is a list, in the order of
the input, of

  {"file", "line", "kustomization", "kind", "namespace", "name", "decision": "Allow"|"Deny"|"Hold",
   "reasons": [{"rule", "source", "message"}], "warnings": ["..."], "patch": [{"op", "path", "value"}], "heldByAPIServer": true, "alreadyApproved": true}

in which namespace is empty for a Constraint, the patch is what the mutating webhook would change, kustomization
stands only on what one has made, heldByAPIServer only on a refusal that the API server has by itself with
--backstop=enforce, without the webhooks ("also held by the API server" in text and markdown), and alreadyApproved only
on an InstallPlan that was approved before and is not judged.
What was skipped or is not judged is named at the end of text and markdown, and on standard error for other formats.
sarif is for code scanning, junit for reports of tests, github for annotations by GitHub Actions, markdown for comments.
"opgate explain RULE" tells more about a rule.

Rules about who writes, and about changes to what is stored (plan/create, plan/born-approved, plan/frozen,
plan/status-phase, plan/override, those of ClusterServiceVersions), and about what catalogs offer
(subscription/unknown-csv), need a cluster and are not judged here.

Exit codes:
  0  everything is allowed, or the input holds nothing that is judged
  1  something is refused or held
  2  the command line or the input cannot be used; nothing was judged`

const example = `  # one of the samples that come with opgate
  opgate check -f manifests/samples/plan-version-deny.yaml

  # everything in a repository, with each overlay, except what tests need
  opgate check . --exclude testdata --only=refused

  # the same for code scanning
  opgate check . -o sarif > opgate.sarif

  # what the policies of a repository say of the Subscriptions of another, for a pipeline
  opgate check -f policies/ -f ../apps/subscription.yaml -o json

  # may the plans that wait on a cluster be approved? With --as-if=approved-now: would the others be, today?
  kubectl get constraints.operators.coreos.com,ns,operatorpolicies,og,subscriptions.operators.coreos.com,ip,csv,operatorconditions \
    -A -o yaml | opgate check -f - --kubernetes-version 1.36.3

  # as the gate judges with --approval-mode=deny: a wrong installPlanApproval is refused instead of changed
  opgate check -f manifests/ --approval-mode=deny`

// Command returns `opgate check`. Its errors carry the exit code as ExitCode() int, and an empty message where
// everything has been printed.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "check [FILE|DIR|-]... [-f FILE|DIR|-]...",
		Short:   "Judge manifests offline: would the gate let them through?",
		Long:    long,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%v", err) })
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&o.files, "filename", "f", nil, `file or directory to read, "-" for standard input; repeatable`)
	flags.StringVarP(&o.output, "output", "o", "text", "output format: "+formatNames())
	flags.StringVar(&o.only, "only", "", "refused leaves out what is allowed (default: all)")
	flags.BoolVar(&o.summary, "summary", false, "print only the counts")
	flags.StringArrayVar(&o.exclude, "exclude", nil, "pattern of files and directories to leave out; repeatable")
	flags.BoolVar(&o.strict, "strict", false, "skip nothing, build no kustomization, and take every document for an object")
	flags.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of objects that name none")
	flags.StringVar(&o.approvalMode, "approval-mode", string(rules.MutateApproval),
		"action on a wrong installPlanApproval: mutate or deny")
	flags.StringVar(&o.asIf, "as-if", "",
		"approved-now judges InstallPlans that were approved before (default: they are reported)")
	flags.StringVar(&o.versions.kubernetes, "kubernetes-version", "",
		"Kubernetes version of the cluster, such as 1.36.3 (default: unknown)")
	flags.StringVar(&o.versions.openshift, "openshift-version", "",
		"OpenShift version of the cluster, such as 4.19.3 (default: unknown, or none with --kubernetes-version)")
	for name, values := range map[string][]cobra.Completion{
		"output": slices.Sorted(maps.Keys(formats)), "only": {onlyRefused}, "as-if": {asIfApprovedNow},
		"approval-mode": {string(rules.MutateApproval), string(rules.DenyApproval)},
	} {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flag exists
		}
	}
	return cmd
}

func (o *options) validate() error {
	stdin := 0
	for _, name := range o.files {
		switch name {
		case "":
			return usage("a name is empty: give a file, a directory or -")
		case standardInput:
			stdin++
		}
	}
	switch {
	case len(o.files) == 0:
		return usage("no input: name files, directories or -")
	case stdin > 1:
		return usage("- is given %d times, and standard input can be read once", stdin)
	case formats[o.output] == nil:
		return usage("unknown output format %q: use %s", o.output, formatNames())
	case o.only != "" && o.only != onlyRefused:
		return usage("unknown --only %q: use %s, or leave it out", o.only, onlyRefused)
	case o.summary && !slices.Contains(withNotes, o.output):
		return usage("--summary is for -o %s", strings.Join(withNotes, " and "))
	case !slices.Contains([]string{string(rules.MutateApproval), string(rules.DenyApproval)}, o.approvalMode):
		return usage("unknown approval mode %q: use %s or %s", o.approvalMode, rules.MutateApproval, rules.DenyApproval)
	case o.asIf != "" && o.asIf != asIfApprovedNow:
		return usage("unknown --as-if %q: use %s, or leave it out", o.asIf, asIfApprovedNow)
	}
	if problems := validation.IsDNS1123Label(o.namespace); len(problems) > 0 {
		return usage("namespace %q: %s", o.namespace, strings.Join(problems, "; "))
	}
	return nil
}

// run reads, judges and prints.
func (o *options) run(stdin io.Reader, stdout, stderr io.Writer) error {
	cluster, err := o.versions.cluster()
	if err != nil {
		return err
	}
	search, err := newSearch(o.strict, o.exclude)
	if err != nil {
		return usage("--exclude: %v", err)
	}
	gathered := gather(o.files, stdin, search)
	result, problems := o.judgeAll(gathered, cluster)
	if len(problems) > 0 {
		if err := printProblems(stderr, problems); err != nil {
			return fmt.Errorf("write problems: %w", err)
		}
		return &cli.ExitError{Code: exitUnusable, Message: "check: nothing was judged: " + counted(len(problems), "problem") + " in the input"}
	}
	if err := result.print(stdout, stderr, o.output); err != nil {
		return fmt.Errorf("write verdicts: %w", err)
	}
	if result.count[rules.Hold]+result.count[rules.Deny] > 0 {
		return &cli.ExitError{Code: exitRefused}
	}
	return nil
}
