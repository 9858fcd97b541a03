package adopt

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// separator is between the documents of a file, and between files on standard output.
const separator = "---\n"

// file is what is written for a namespace.
type file struct{ name, text string }

// nameOf returns the name of the policy for a package in a namespace. A namespace has no dot, so no two are the same.
func nameOf(namespace, pkg string) string { return namespace + "." + pkg }

// render returns a file for each namespace that has operators.
func (o *options) render(found []*installed) (files []file) {
	for _, in := range found {
		var comments strings.Builder
		for _, what := range in.unsaid {
			comments.WriteString("# not expressed: " + text.Escape(what) + "\n")
		}
		var policies []string
		for i := range in.operators {
			policies = append(policies, o.policy(in.namespace, &in.operators[i]))
		}
		if len(policies) > 0 {
			files = append(files, file{in.namespace + ".yaml", comments.String() + strings.Join(policies, separator)})
		}
	}
	return files
}

// policy returns the policy for an operator.
func (o *options) policy(namespace string, op *operator) string {
	of := &op.subscription.Spec
	policy := policyv1beta2.OperatorPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1beta2.GroupVersion.String(), Kind: policyv1beta2.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(namespace, op.pkg), Namespace: o.policies},
		Spec: policyv1beta2.OperatorPolicySpec{
			RemediationAction: policyv1beta2.RemediationAction(o.action),
			ComplianceType:    policyv1beta2.ComplianceType(o.as),
			Subscription: policyv1beta2.SubscriptionTemplate{Name: op.pkg, Namespace: namespace, Channel: of.Channel,
				Source: of.Source, SourceNamespace: of.SourceNamespace},
			VersionRange:    rangeFrom(op.version, o.pin),
			UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
		}}
	spec := &policy.Spec
	if reserved, fault := of.Config.Reserved(); fault == "" && len(reserved) > 0 {
		// a policy that sets none allows no config that changes what the containers run
		spec.Subscription.Config = &apiextensionsv1.JSON{Raw: []byte(of.Config.JSON)}
	}
	if spec.VersionRange == "" {
		spec.Versions = []string{op.csv}
		if o.digests && op.digest != "" {
			spec.Versions[0] += "@" + op.digest
		}
	}
	if approve := policyv1beta2.PlanApproval(o.approve); o.enforces() && approve != spec.EffectivePlanApproval() {
		spec.PlanApproval = approve
	}
	written, err := yaml.Marshal(&policy)
	if err != nil {
		panic(err) // its config was decoded from JSON
	}
	return string(written)
}

// rangeFrom returns the range that --pin allows from a version on; "" for exact versions, and where no range has the
// version. Its bounds end in -0, which is before every suffix: 4.16.3-rhodf is below 4.16.3.
func rangeFrom(version, pin string) string {
	v, err := semver.Parse(version)
	if err != nil || pin == pinExact {
		return ""
	}
	low := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if len(v.Pre) > 0 {
		low += "-0"
	}
	next := fmt.Sprintf("%d.%d.0-0", v.Major, v.Minor+1)
	if pin == pinMinor {
		next = fmt.Sprintf("%d.0.0-0", v.Major+1)
	}
	written := ">=" + low + " <" + next
	parsed, err := olm.ParseVersionRange(written)
	if err != nil {
		return ""
	}
	if in, err := parsed.Contains(version); err != nil || !in {
		return ""
	}
	return written
}

// effect states what applying the policies writes.
func (o *options) effect(found []*installed) string {
	n := 0
	var namespaces []string
	for _, in := range found {
		if n += len(in.operators); len(in.operators) > 0 {
			namespaces = append(namespaces, in.namespace)
		}
	}
	effect := "applying " + text.Count(n, "policy") + " writes "
	if !o.enforces() {
		return effect + "status, and nothing of OLM's: the next upgrade is reported"
	}
	effect += "spec.installPlanApproval: Manual, with annotation " + metakey.RequestedApproval +
		", of the Subscriptions that are Automatic in " + text.Names(namespaces, 5)
	if o.as == string(policyv1beta2.MustHave) {
		effect += ", the label and the annotation of the Subscriptions that name the policy"
	}
	effect += ", and records and status of Opgate, and nothing else of OLM's: the next upgrade that they do not allow waits"
	if o.approve == ifAllowed {
		effect += "; what they allow is approved whatever Subscriptions ask for"
	}
	return effect
}

// write writes the files and a kustomization to the directory. Without --force it writes nothing if one of them exists.
// A kustomization that exists stays as it is: what is left out of it, a GitOps tool would delete.
func (o *options) write(files []file, stderr io.Writer) error {
	var names []string
	for _, f := range files {
		names = append(names, f.name)
		if name := filepath.Join(o.output, f.name); !o.force && exists(name) {
			return self.Unusable("%s exists already, and nothing was written: --force overwrites it", text.Escape(name))
		}
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil { //nolint:gosec // manifests in git are for everyone
		return err
	}
	known := konfig.RecognizedKustomizationFileNames()
	if i := slices.IndexFunc(known, func(name string) bool { return exists(filepath.Join(o.output, name)) }); i >= 0 {
		fmt.Fprintf(stderr, "%s exists already and stays as it is: its resources need %s\n",
			text.Escape(filepath.Join(o.output, known[i])), strings.Join(names, ", "))
	} else {
		files = append(files, file{konfig.DefaultKustomizationFileName(), "apiVersion: " + types.KustomizationVersion +
			"\nkind: " + types.KustomizationKind + "\nresources:\n  - " + strings.Join(names, "\n  - ") + "\n"})
	}
	for _, f := range files {
		name := filepath.Join(o.output, f.name)
		if err := os.WriteFile(name, []byte(f.text), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
		fmt.Fprintln(stderr, "written: "+text.Escape(name))
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
