// Package compile is `opgate compile`: it prints the admission policies by which the API server itself holds the core
// of the gate.
package compile

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// self is the name of the command.
const self cli.Name = "compile"

// options are the flags.
type options struct {
	files              []string
	namespace          string
	olmIdentity        string
	identity           string
	approvalMode       string
	excludedNamespaces []string
	audit              bool
	semver, mutating   bool
	static             static
}

const long = `Print the ValidatingAdmissionPolicies and the MutatingAdmissionPolicy, each with its binding, by which the API server holds
the core of the gate by itself: also while no replica of Opgate answers, and without its webhook configurations.
docs/backstop.md lists what they hold, and what is left to the webhooks.

The output depends on the policies and the flags only, so that it can be kept in a repository. Apply it again when a
policy changes, with "kubectl apply --server-side". The input is read like that of "opgate check --strict", and
describes one cluster: of overlays, one is named.

With --static the API server gets them as files that no request can change or delete (Kubernetes 1.37, or 1.36 with
feature gate ManifestBasedAdmissionControlConfig), together with a policy that keeps Opgate's installation:
docs/backstop.md.

Exit codes:
  0  the objects are printed
  2  the command line or the input cannot be used; nothing is printed`

const example = `  # the policies of a repository, for the repository
  opgate compile policies/overlays/prod --olm-identity system:serviceaccount:olm:olm-operator-serviceaccount > backstop.yaml

  # those of a cluster; only record and warn of what would be refused
  kubectl get operatorpolicies -A -o yaml | opgate compile -f - --audit \
    --olm-identity system:serviceaccount:olm:olm-operator-serviceaccount | kubectl apply --server-side -f -

  # files for the control plane: the installation is kept, and two accounts may upgrade it
  opgate compile --static ./static --maintainer alice --maintainer system:serviceaccount:argocd:argocd-application-controller

  # for an API server without MutatingAdmissionPolicy (before 1.36) and without semver() (before 1.33)
  opgate compile -f policies/ --mutating=false --semver=false \
    --olm-identity system:serviceaccount:olm:olm-operator-serviceaccount`

// Command returns `opgate compile`. Its errors carry the exit code as ExitCode() int.
func Command(now func() time.Time) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "compile {[FILE|DIR|-]... [-f FILE|DIR|-]... --olm-identity USER | --static DIR}",
		Short:   "Print OperatorPolicies as admission policies of the API server",
		Long:    long,
		Example: example,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(now(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := self.Flags(cmd)
	cli.FilesVar(flags, &o.files)
	flags.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of policies that name none")
	flags.StringVar(&o.olmIdentity, "olm-identity", "",
		"service account that OLM runs as, system:serviceaccount:NAMESPACE:NAME; required")
	flags.StringVar(&o.identity, "opgate-identity", "system:serviceaccount:opgate-system:opgate",
		`user name that Opgate writes as, "" for none`)
	o.approvalMode = string(rules.MutateApproval)
	cli.ChoiceVar(cmd, &o.approvalMode, "approval-mode", "", "action on a wrong installPlanApproval: mutate or deny",
		o.approvalMode, string(rules.DenyApproval))
	flags.StringArrayVar(&o.excludedNamespaces, "excluded-namespace", []string{"opgate-system"},
		"namespace that the webhook configurations exclude; repeatable")
	flags.BoolVar(&o.audit, "audit", false, "record and warn of what would be refused, and change nothing")
	flags.BoolVar(&o.semver, "semver", true, "hold version ranges, which needs semver() in the API server's CEL")
	flags.StringVar(&o.static.dir, "static", "",
		"directory to write files for the control plane to, instead of printing")
	flags.StringArrayVar(&o.static.maintainers, "maintainer", nil,
		"with --static: user who may update Opgate's installation, but not delete it; repeatable")
	flags.StringArrayVar(&o.static.certificateWriters, "certificate-writer", nil,
		"with --static: user who writes certificates and CAs, as cert-manager and its cainjector do; repeatable")
	flags.BoolVar(&o.static.keepPolicies, "keep-policies", false,
		"with --static: OperatorPolicies, Constraints, Policies and PolicySets are changed and deleted by maintainers alone")
	flags.StringVar(&o.static.namespace, "opgate-namespace", "opgate-system", "namespace of Opgate")
	flags.StringVar(&o.static.nodeDir, "node-dir", "/etc/kubernetes/opgate",
		"with --static: where the files will be on control plane nodes")
	flags.StringVar(&o.static.configuration, "admission-config", "",
		"with --static: AdmissionConfiguration of the API server to add the plugins to; it is read only")
	flags.BoolVar(&o.mutating, "mutating", true, "print the MutatingAdmissionPolicy too")
	return cmd
}

func (o *options) validate() error {
	if err := cmp.Or(self.CheckFiles(o.files),
		self.CheckNamespaces(append([]string{o.namespace, o.static.namespace}, o.excludedNamespaces...)...)); err != nil {
		return err
	}
	if err := o.static.validate(o.identity); err != nil {
		return err
	}
	switch {
	case len(o.files) == 0 && o.static.dir != "" && o.olmIdentity == "":
		return nil
	case len(o.files) == 0 && o.static.dir != "":
		return self.Usage("--olm-identity is for policies, which are missing: name files, directories or -")
	case len(o.files) == 0:
		return self.Usage("no input: name files, directories or -")
	case o.olmIdentity == "":
		return self.Usage("--olm-identity is missing, and OLM's own writes would be refused; this prints it: %s",
			olmidentity.HowToFind)
	}
	if _, err := olmidentity.Parse(o.olmIdentity); err != nil {
		return self.Usage("--olm-identity: %v", err)
	}
	return nil
}

// run reads, compiles and prints, or writes files.
func (o *options) run(now time.Time, stdin io.Reader, stdout, stderr io.Writer) error {
	var objects backstop.Objects
	if len(o.files) > 0 {
		// A policy that is skipped would hold nothing.
		set, err := manifests.Read(o.files, stdin, stderr, manifests.Options{Namespace: o.namespace, Strict: true})
		if err != nil {
			return fmt.Errorf("compile: nothing is printed: %w", err)
		}
		var policies []*operatorpolicy.Policy
		cluster, operators := set.Snapshot(facts.Cluster{}), map[string][]string{}
		kept := map[string][]bundle.Kept{}
		for ns := range cluster.All() {
			operators[ns.Name()], kept[ns.Name()] = ns.Operators(), bundle.KeptIn(ns)
			for _, p := range ns.Policies() {
				policies = append(policies, p)
				if p.Incomplete {
					fmt.Fprintf(stderr, "%s has templates that are resolved on the cluster: what it says is left to the webhooks\n", p.Source())
				}
			}
		}
		objects = backstop.Compile(backstop.Input{
			Policies: policies, Constraints: cluster.Constraints().Definitions(), Operators: operators, AsWritten: true,
			Kept: kept, OLM: []string{o.olmIdentity}, Opgate: o.identity, Namespace: o.static.namespace,
			ApprovalMode:       rules.ApprovalMode(o.approvalMode),
			ExcludedNamespaces: o.excludedNamespaces, Audit: o.audit, Now: now,
			Features: backstop.Features{ValidatingAdmissionPolicy: true, MutatingAdmissionPolicy: o.mutating,
				Semver: o.semver},
		})
	}
	for _, left := range objects.Left {
		fmt.Fprintf(stderr, "OperatorPolicy %s has lists that are too long, or is one of too many: a part is left to the webhooks\n", left)
	}
	for _, unprotected := range objects.Unprotected {
		kind := "OperatorPolicy"
		if unprotected.Namespace == "" {
			kind = "Constraint"
		}
		fmt.Fprintf(stderr, "%s %s is one of too many with spec.deletion: what it governs is not all protected from deletion\n", kind, unprotected)
	}
	if o.static.dir != "" {
		return o.static.write(o.identity, objects, stdout)
	}
	text, err := documents(objects.All)
	if err != nil {
		return err
	}
	if _, err := stdout.Write(text); err != nil {
		return fmt.Errorf("write the objects: %w", err)
	}
	return nil
}
