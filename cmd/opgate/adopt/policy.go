package adopt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
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
func (o *options) render(found *installed) (files []file) {
	var b strings.Builder
	for i := range found.operators {
		op := &found.operators[i]
		o.policy(&b, op)
		if i+1 < len(found.operators) && found.operators[i+1].namespace == op.namespace {
			b.WriteString(separator)
			continue
		}
		for _, r := range found.without {
			if r.namespace == op.namespace {
				comment(&b, r.text)
			}
		}
		files = append(files, file{op.namespace + ".yaml", b.String()})
		b.Reset()
	}
	return files
}

// comment writes a line of what is not expressed.
func comment(b *strings.Builder, what string) {
	fmt.Fprintf(b, "# not expressed: %s\n", text.Escape(what))
}

// policy writes the policy for an operator.
func (o *options) policy(b *strings.Builder, op *operator) {
	for _, what := range op.unsaid {
		comment(b, what)
	}
	spec := &op.subscription.Spec
	fmt.Fprintf(b, "apiVersion: %s\nkind: %s\nmetadata:\n", policyv1beta2.GroupVersion, policyv1beta2.Kind)
	field(b, 2, "name", nameOf(op.namespace, op.pkg))
	field(b, 2, "namespace", o.policies)
	b.WriteString("spec:\n")
	field(b, 2, "remediationAction", o.action)
	field(b, 2, "complianceType", o.as)
	b.WriteString("  subscription:\n")
	field(b, 4, "name", op.pkg)
	field(b, 4, "namespace", op.namespace)
	field(b, 4, "channel", spec.Channel)
	field(b, 4, "source", spec.Source)
	field(b, 4, "sourceNamespace", spec.SourceNamespace)
	if reserved, fault := spec.Config.Reserved(); fault == "" && len(reserved) > 0 {
		// a policy that sets none allows no config that changes what the containers run
		fmt.Fprintf(b, "    config: %s\n", spec.Config.JSON)
	}
	if allowed := rangeFrom(op.version, o.pin); allowed != "" {
		field(b, 2, "versionRange", allowed)
	} else {
		name := op.csv
		if o.digests && op.digest != "" {
			name += "@" + op.digest
		}
		fmt.Fprintf(b, "  versions:\n    - %s\n", scalar(name))
	}
	field(b, 2, "upgradeApproval", string(policyv1beta2.UpgradeApprovalAutomatic))
	if o.action != actions[0] && slices.Index(approvals, o.approve) != slices.Index(complianceTypes, o.as) {
		field(b, 2, "planApproval", o.approve) // it is not the default
	}
}

// field writes a field that is not empty.
func field(b *strings.Builder, indent int, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "%*s%s: %s\n", indent, "", name, scalar(value))
	}
}

// plain matches texts that need no quotes in YAML, unless they read as another type.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9./_-]*$`)

// scalar returns a text as YAML.
func scalar(value string) string {
	var read any
	if plain.MatchString(value) && yaml.Unmarshal([]byte(value), &read) == nil && read == any(value) {
		return value
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false) // ranges have > and <
	if err := encoder.Encode(value); err != nil {
		panic(err) // texts have JSON
	}
	return strings.TrimSpace(quoted.String())
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
func (o *options) effect(operators []operator) string {
	these := "applying " + text.Count(len(operators), "policy") + " writes "
	if o.action == actions[0] {
		return these + "their status, and nothing of OLM's: the next upgrade is reported"
	}
	var namespaces []string
	for i := range operators {
		namespaces = append(namespaces, operators[i].namespace)
	}
	what := "spec.installPlanApproval: Manual, with annotation " + metakey.RequestedApproval +
		", of the Subscriptions that are Automatic in " + text.Names(slices.Compact(namespaces), 5)
	if o.as == string(policyv1beta2.MustHave) {
		what += ", the label and the annotation of the Subscriptions that name the policy"
	}
	what += ", and records and status of Opgate, and nothing else of OLM's: the next upgrade that they do not allow waits"
	if o.approve != approvals[0] {
		what += "; what they allow is approved whatever Subscriptions ask for"
	}
	return these + what
}
