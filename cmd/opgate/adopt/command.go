// Package adopt is `opgate adopt`: it writes OperatorPolicies that describe the operators that are installed, and compares
// such policies with what is installed later. It reads a cluster, or files with objects of one, and writes nothing to it.
package adopt

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
)

// self is the name of the command.
const self cli.Name = "adopt"

// exitDrift is for policies that do not describe what is installed.
const exitDrift = 1

const long = `Write OperatorPolicies for the operators that are installed, on a cluster or in files with what "kubectl get" prints:
package, namespace, catalog, channel and version of each, so that a policy allows what is there and nothing else. They
are for git: with -o one file for each namespace and a kustomization, else all on standard output. Nothing is written to
the cluster; what applying the policies will write is printed before. What a policy cannot express of an operator is a
comment in the file, and a line on standard error.

With --check nothing is written: what is installed and not in the policies of a directory, or not as they say, is
printed.

Exit codes:
  0  the policies were written; with --check, they describe what is installed
  1  with --check, something is installed that they do not describe, or is not installed
  2  the command line or the input cannot be used, the cluster cannot be read, or a file exists already`

const example = `  # everything on a cluster, as policies that only report
  opgate adopt -A -o policies/

  # one team's operators, with the digests of their bundles, and only these from then on
  opgate adopt -n shop --digests --remediation-action enforce -o policies/

  # in a pipeline: is the cluster still as the policies in git say?
  opgate adopt -A --check policies/`

// The values of --pin.
const (
	pinExact = "exact"
	pinPatch = "patch"
	pinMinor = "minor"
)

// The values of --approve, which are the defaults of mayhave and of musthave.
const (
	ifRequested = string(policyv1beta2.PlanApprovalIfRequested)
	ifAllowed   = string(policyv1beta2.PlanApprovalIfAllowed)
)

// options are the flags.
type options struct {
	cluster.Input
	selector string
	// as, action, approve, pin and digests say what policies to write, and policies is their namespace.
	as, action, approve, pin string
	digests                  bool
	policies                 string
	// output is a directory, force overwrites files in it.
	output string
	force  bool
	// check is a directory with policies to compare.
	check string
}

// Command returns `opgate adopt`. now is the clock for exceptions of policies.
func Command(now func() time.Time) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:        "adopt [-n NAMESPACE | -A | -f FILE|DIR|-]... [-o DIR | --check DIR]",
		SuggestFor: []string{"generate", "init"},
		Short:      "Write policies for the operators that are installed",
		Long:       long,
		Example:    example,
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return self.Failed(o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), now()))
		},
	}
	flags := self.Flags(cmd)
	flags.BoolVarP(&o.All, "all-namespaces", "A", false, "look at all namespaces, not at that of -n or the context")
	o.RegisterNamespace(cmd)
	flags.StringVarP(&o.selector, "selector", "l", "", "label selector of Subscriptions (default: all)")
	cli.FilesVar(flags, &o.Files)
	o.as, o.action = string(policyv1beta2.MayHave), string(policyv1beta2.Inform)
	o.approve, o.pin = ifRequested, pinExact
	cli.ChoiceVar(cmd, &o.as, "as", "", "spec.complianceType: mayhave or musthave", o.as, string(policyv1beta2.MustHave))
	cli.ChoiceVar(cmd, &o.action, "remediation-action", "", "spec.remediationAction: inform or enforce", o.action,
		string(policyv1beta2.Enforce))
	cli.ChoiceVar(cmd, &o.approve, "approve", "",
		"spec.planApproval, with enforce: plans to approve, IfRequested or IfAllowed", o.approve, ifAllowed)
	cli.ChoiceVar(cmd, &o.pin, "pin", "", "versions to allow: exact, patch or minor", o.pin, pinPatch, pinMinor)
	flags.BoolVar(&o.digests, "digests", false, "list versions with the digests of their bundle images")
	flags.StringVar(&o.policies, "policies", "policies", "namespace of the policies")
	flags.StringVarP(&o.output, "output-dir", "o", "", "directory to write to (default: standard output)")
	flags.BoolVar(&o.force, "force", false, "overwrite files in the directory")
	flags.StringVar(&o.check, "check", "", "directory with policies to compare with what is installed")
	o.Register(cmd)
	return cmd
}

func (o *options) enforces() bool { return o.action == string(policyv1beta2.Enforce) }

// validate checks the command line.
func (o *options) validate() error {
	if _, err := labels.Parse(o.selector); err != nil {
		return self.Usage("-l %s: %s", text.Quote(o.selector), text.Escape(err.Error()))
	}
	switch {
	case o.All && o.Overrides.Context.Namespace != "":
		return self.Usage(cli.AllOrOne)
	case o.approve != ifRequested && !o.enforces():
		return self.Usage("--approve %s is for --remediation-action enforce: a policy that informs approves no plan", o.approve)
	case o.digests && o.pin != pinExact:
		return self.Usage("--digests is for --pin %s: a range names no bundle", pinExact)
	case o.check != "" && (o.output != "" || o.force):
		return self.Usage("--check writes nothing: leave out -o and --force")
	}
	if err := self.CheckFiles(o.Files); err != nil {
		return err
	}
	return self.CheckNamespaces(o.policies)
}

// run reads what is installed, and writes or compares policies.
func (o *options) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, now time.Time) error {
	found, scope, err := o.read(ctx, stdin, stderr)
	if err != nil {
		return err
	}
	if o.check != "" {
		return o.compare(found, scope, stdout, stderr, now)
	}
	for _, in := range found {
		for _, what := range in.unsaid {
			fmt.Fprintln(stderr, "not expressed: "+text.Name(in.namespace)+": "+what)
		}
	}
	files := o.render(found)
	if len(files) == 0 {
		where := ""
		if scope != "" {
			where = " in namespace " + text.Name(scope) + "; -A looks at all"
		}
		return self.Unusable("there is nothing to adopt%s", where)
	}
	fmt.Fprintln(stderr, o.effect(found))
	if o.output != "" {
		return o.write(files, stderr)
	}
	var texts []string
	for _, f := range files {
		texts = append(texts, f.text)
	}
	_, err = io.WriteString(stdout, strings.Join(texts, separator))
	return err
}
