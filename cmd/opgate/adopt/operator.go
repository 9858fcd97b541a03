package adopt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// operator is an operator that a Subscription has installed.
type operator struct {
	pkg, csv string
	// version is that of property olm.package, digest that of the bundle image; either is "" if it is not known.
	version, digest string
	subscription    *olm.Subscription
}

// installed is what was read of a namespace.
type installed struct {
	namespace string
	// operators are sorted by Subscription.
	operators []operator
	// unsaid is what their policies do not express, and what is installed, or subscribed to, and gets none, in sentences.
	unsaid []string
}

func (in *installed) say(format string, args ...any) {
	in.unsaid = append(in.unsaid, fmt.Sprintf(format, args...))
}

// read reads the cluster, or files. scope is the namespace that was looked at, "" for all.
func (o *options) read(ctx context.Context, stdin io.Reader, stderr io.Writer) (all []*installed, scope string, err error) {
	kinds := []*snapshot.Kind{snapshot.OperatorPolicies, snapshot.Subscriptions, snapshot.ClusterServiceVersions,
		snapshot.InstallPlans}
	stored, err := o.Read(ctx, cluster.Options{Subscriptions: o.selector, Kinds: kinds}, stdin, stderr)
	if _, missing := errors.AsType[*cluster.NotServed](err); missing { // there is no policy before Opgate is installed
		stored, err = o.Read(ctx, cluster.Options{Subscriptions: o.selector, Kinds: kinds[1:]}, stdin, stderr)
	}
	if err != nil {
		return nil, "", err
	}
	for ns := range stored.Snapshot.All() {
		if stored.Scope == "" || ns.Name() == stored.Scope {
			all = append(all, o.collect(stored.Namespace(ns.Name())))
		}
	}
	return all, stored.Scope, nil
}

// collect finds the operators in a namespace.
func (o *options) collect(ns *state.Namespace) *installed {
	in := &installed{namespace: ns.Name()}
	for _, s := range ns.Subscriptions() {
		csv, pkg, name := s.Status.InstalledCSV, s.Spec.Package, text.Name(s.Metadata.Name)
		switch {
		case csv == "":
			in.say("Subscription %s has installed nothing yet, so there is no version to allow", name)
		case len(validation.IsDNS1123Label(pkg)) > 0:
			in.say("no policy can name package %s of Subscription %s: it is no RFC 1123 label", text.Quote(pkg), name)
		case len(validation.IsDNS1123Subdomain(csv)) > 0:
			in.say("no policy can list version %s of Subscription %s: it is no name of an object", text.Quote(csv), name)
		case slices.ContainsFunc(in.operators, func(other operator) bool { return other.pkg == pkg }):
			in.say("Subscription %s is the second one to package %s, and the policy is written for the first", name, text.Name(pkg))
		case o.check == "" && o.governed(ns, pkg) != "":
			in.say("package %s has a policy already, %s", text.Name(pkg), o.governed(ns, pkg))
		default:
			op := operator{pkg: pkg, csv: csv, subscription: s, digest: digestOf(ns, csv)}
			if i := slices.IndexFunc(ns.Installed(), func(c state.Installed) bool { return c.Name == csv }); i >= 0 {
				op.version = ns.Installed()[i].Version
			}
			in.operators = append(in.operators, op)
			if o.check == "" {
				o.remark(in, &op)
			}
		}
	}
	for _, csv := range ns.Installed() { // another version may be there until OLM has removed it
		pkg, disputed := ns.Claimed(csv.Name)
		if pkg == "" && !disputed && len(ns.Subscribers(csv.Package)) == 0 && o.selector == "" {
			in.say("%s has no Subscription, so it has neither a channel nor a catalog", text.Name(csv.Name))
		}
	}
	return in
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

// remark adds what the policy of an operator does not express.
func (o *options) remark(in *installed, op *operator) {
	name, spec := text.Name(op.subscription.Metadata.Name), &op.subscription.Spec
	switch {
	case o.digests && op.digest == "":
		in.say("the digest of %s is not known, since no InstallPlan has it: the policy lists the name", text.Name(op.csv))
	case o.pin != pinExact && rangeFrom(op.version, o.pin) == "":
		in.say("version %s of %s is in no range for --pin %s: the policy lists the name",
			text.Quote(op.version), text.Name(op.csv), o.pin)
	}
	if spec.Channel == "" {
		in.say("Subscription %s names no channel, so that the default one of the package is followed, whatever that is", name)
	}
	if start := spec.StartingCSV; start != "" && start != op.csv {
		in.say("Subscription %s starts with %s, which is no longer installed: created again, it is refused", name,
			text.Name(start))
	}
	if _, fault := spec.Config.Reserved(); fault != "" {
		in.say("spec.config of Subscription %s cannot be read: %s", name, text.Escape(fault))
	}
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

// compare prints how the policies of the directory differ from what is installed: a policy may allow more than that.
func (o *options) compare(found []*installed, scope string, stdout, stderr io.Writer, now time.Time) error {
	unit, err := manifests.Read([]string{o.check}, bytes.NewReader(nil), stderr, manifests.Options{})
	if err != nil {
		return err
	}
	operators := map[string]*operator{}
	for _, in := range found {
		for _, what := range in.unsaid {
			if o.selector == "" {
				fmt.Fprintln(stderr, "not compared: "+text.Name(in.namespace)+": "+what)
			}
		}
		for i := range in.operators {
			operators[in.namespace+"/"+in.operators[i].pkg] = &in.operators[i]
		}
	}
	var lines []string
	described := map[string]bool{}
	for _, object := range unit.Objects {
		policy, ok := object.Value.(*policyv1beta2.OperatorPolicy)
		if !ok {
			continue
		}
		p := rules.NewOperatorPolicy(policy)
		key := p.TargetNamespace + "/" + p.Package
		differs := func(format string, args ...any) {
			lines = append(lines, text.Escape(key)+": "+fmt.Sprintf(format, args...)+" ("+object.Short()+")")
		}
		op := operators[key]
		switch {
		case p.MustNotHave || p.Package == "":
			continue
		case op == nil && o.selector == "" && (scope == "" || scope == p.TargetNamespace):
			differs("nothing is installed of it")
		}
		if described[key] = true; op == nil {
			continue
		}
		if ok, accepted := bundle.Covers(p, op.csv, op.version, now); !ok {
			differs("%s is installed, and %s", text.Name(op.csv), accepted)
		}
		spec := &op.subscription.Spec
		for _, f := range []struct{ name, is, want string }{
			{"channel", spec.Channel, p.Channel},
			{"source", spec.Source, p.Catalog.Name},
			{"sourceNamespace", spec.SourceNamespace, p.Catalog.Namespace},
		} {
			if f.is != f.want && f.want != "" {
				differs("Subscription %s has spec.%s %s, and the policy %s", text.Name(op.subscription.Metadata.Name), f.name,
					cmp.Or(text.Name(f.is), "(none)"), text.Name(f.want))
			}
		}
	}
	for key, op := range operators {
		if !described[key] {
			lines = append(lines, fmt.Sprintf("%s: %s is installed, and no policy names it", text.Escape(key), text.Name(op.csv)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	_, err = fmt.Fprintln(stdout, strings.Join(lines, "\n"))
	return cmp.Or[error](err, &cli.ExitError{Code: exitDrift})
}
