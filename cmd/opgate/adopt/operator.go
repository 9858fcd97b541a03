package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// operator is an operator that a Subscription has installed.
type operator struct {
	namespace, pkg string
	csv            string
	// version is that of property olm.package, digest that of the bundle image; either is "" if it is not known.
	version, digest string
	subscription    *olm.Subscription
	// unsaid is what its policy does not express, in sentences.
	unsaid []string
}

func (op *operator) key() string { return op.namespace + "/" + op.pkg }

// installed is what was read.
type installed struct {
	// scope is the namespace that was looked at; "" for all.
	scope string
	// operators are sorted by namespace and Subscription.
	operators []operator
	// without is what is installed, or subscribed to, and gets no policy, by namespace.
	without []remark
}

// remark is a sentence on a namespace.
type remark struct{ namespace, text string }

// unsaid returns all that the policies do not express.
func (in *installed) unsaid() (lines []string) {
	for i := range in.operators {
		for _, s := range in.operators[i].unsaid {
			lines = append(lines, text.Name(in.operators[i].namespace)+": "+s)
		}
	}
	for _, r := range in.without {
		lines = append(lines, text.Name(r.namespace)+": "+r.text)
	}
	return lines
}

// read reads the cluster, or files.
func (o *options) read(ctx context.Context, stdin io.Reader, stderr io.Writer) (*installed, error) {
	kinds := []*snapshot.Kind{snapshot.OperatorPolicies, snapshot.Subscriptions, snapshot.ClusterServiceVersions,
		snapshot.InstallPlans}
	stored, err := o.Read(ctx, cluster.Options{Subscriptions: o.selector, Kinds: kinds}, stdin, stderr)
	if _, missing := errors.AsType[*cluster.NotServed](err); missing { // there is no policy before Opgate is installed
		stored, err = o.Read(ctx, cluster.Options{Subscriptions: o.selector, Kinds: kinds[1:]}, stdin, stderr)
	}
	if err != nil {
		return nil, err
	}
	found := &installed{scope: stored.Scope}
	for ns := range stored.Snapshot.All() {
		if found.scope == "" || ns.Name() == found.scope {
			o.collect(stored.Namespace(ns.Name()), found)
		}
	}
	return found, nil
}

// collect finds the operators in a namespace.
func (o *options) collect(ns *state.Namespace, found *installed) {
	subscribed := map[string]bool{}
	skip := func(format string, args ...any) {
		found.without = append(found.without, remark{ns.Name(), fmt.Sprintf(format, args...)})
	}
	for _, s := range ns.Subscriptions() {
		csv, pkg, name := s.Status.InstalledCSV, s.Spec.Package, text.Name(s.Metadata.Name)
		first := !slices.ContainsFunc(found.operators,
			func(other operator) bool { return other.namespace == ns.Name() && other.pkg == pkg })
		subscribed[csv] = true
		switch {
		case csv == "":
			skip("Subscription %s has installed nothing yet, so there is no version to allow", name)
		case len(validation.IsDNS1123Label(pkg)) > 0:
			skip("no policy can name package %s of Subscription %s: it is no RFC 1123 label", text.Quote(pkg), name)
		case !first:
			skip("Subscription %s is the second one to package %s, and the policy is written for the first", name, text.Name(pkg))
		case o.check == "" && o.governed(ns, pkg) != "":
			skip("package %s has a policy already, %s", text.Name(pkg), o.governed(ns, pkg))
		default:
			found.operators = append(found.operators, o.operatorOf(ns, s))
		}
	}
	for i := range ns.Installed() {
		if csv := ns.Installed()[i].Name; !subscribed[csv] && o.selector == "" {
			skip("%s has no Subscription, so it has neither a channel nor a catalog", text.Name(csv))
		}
	}
}

// governed returns another policy than the one that is written for a package, if there is one.
func (o *options) governed(ns *state.Namespace, pkg string) string {
	for _, p := range ns.Governing(pkg) {
		if !p.MustNotHave && (p.Namespace != o.policies || p.Name != nameOf(ns.Name(), pkg)) {
			return p.Source()
		}
	}
	return ""
}

// operatorOf returns what a Subscription has installed.
func (o *options) operatorOf(ns *state.Namespace, s *olm.Subscription) operator {
	op := operator{namespace: ns.Name(), pkg: s.Spec.Package, csv: s.Status.InstalledCSV, subscription: s,
		digest: digestOf(ns, s.Status.InstalledCSV)}
	for i := range ns.Installed() {
		if c := &ns.Installed()[i]; c.Name == op.csv {
			op.version = c.Version
		}
	}
	say := func(format string, args ...any) { op.unsaid = append(op.unsaid, fmt.Sprintf(format, args...)) }
	switch {
	case o.digests && op.digest == "":
		say("the digest of %s is not known, since no InstallPlan has it: the policy lists the name", text.Name(op.csv))
	case o.pin != pinExact && rangeFrom(op.version, o.pin) == "":
		say("version %s of %s is in no range for --pin %s: the policy lists the name",
			text.Quote(op.version), text.Name(op.csv), o.pin)
	}
	if s.Spec.Channel == "" {
		say("Subscription %s names no channel, so that the default one of the package is followed, whatever that is",
			text.Name(s.Metadata.Name))
	}
	if start := s.Spec.StartingCSV; start != "" && start != op.csv {
		say("Subscription %s starts with %s, which is no longer installed: created again, it is refused",
			text.Name(s.Metadata.Name), text.Name(start))
	}
	if _, fault := s.Spec.Config.Reserved(); fault != "" {
		say("spec.config of Subscription %s cannot be read: %s", text.Name(s.Metadata.Name), text.Escape(fault))
	}
	return op
}

// digestOf returns the digest of the bundle image in the newest approved plan with a ClusterServiceVersion; "" if it is
// not known.
func digestOf(ns *state.Namespace, csv string) (digest string) {
	newest := ""
	for _, plan := range ns.Plans() {
		if d := plan.BundleDigest(csv); d != "" && plan.Spec.Approved && plan.Metadata.CreationTimestamp >= newest {
			newest, digest = plan.Metadata.CreationTimestamp, d
		}
	}
	return digest
}
