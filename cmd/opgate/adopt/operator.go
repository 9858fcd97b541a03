package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
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
	if len(o.files) > 0 {
		unit, err := manifests.Read(o.files, stdin, stderr, manifests.Options{Namespace: o.namespace})
		if err != nil {
			return nil, err
		}
		seen := o.selected()
		for _, object := range unit.Objects {
			if object.Kind == olm.KindSubscription {
				seen.add(snapshot.Subscriptions, object.JSON())
			}
		}
		all := unit.Snapshot(facts.Cluster{})
		return o.collect(all, all, seen), nil
	}
	reader, err := cluster.Connect(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	seen := o.selected()
	stored, err := reader.Read(ctx, cluster.Options{Namespace: o.namespace, Seen: seen.add,
		Kinds: []*snapshot.Kind{snapshot.Subscriptions, snapshot.ClusterServiceVersions, snapshot.InstallPlans}})
	if err != nil {
		return nil, self.Unusable("%s", text.Escape(err.Error()))
	}
	policies, err := reader.Read(ctx, cluster.Options{Kinds: []*snapshot.Kind{snapshot.OperatorPolicies}})
	if _, missing := errors.AsType[*cluster.NotServed](err); missing {
		policies, err = &cluster.State{}, nil // there is no policy before Opgate is installed
	}
	if err != nil {
		return nil, self.Unusable("%s", text.Escape(err.Error()))
	}
	return o.collect(stored.Snapshot, policies.Snapshot, seen), nil
}

// selection are the Subscriptions that -l selects.
type selection struct {
	labels.Selector
	mu    sync.Mutex
	found map[types.NamespacedName]bool
}

func (o *options) selected() *selection {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		panic(err) // validate has parsed it
	}
	return &selection{Selector: selector, found: map[types.NamespacedName]bool{}}
}

// add looks at the labels of a Subscription.
func (s *selection) add(kind *snapshot.Kind, raw []byte) {
	var object metav1.PartialObjectMetadata
	if kind != snapshot.Subscriptions || json.Unmarshal(bytes.Clone(raw), &object) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = s.Matches(labels.Set(object.Labels))
}

// collect finds the operators in the namespaces of a snapshot; others has the policies that exist.
func (o *options) collect(all, others *snapshot.Snapshot, selected *selection) *installed {
	found := &installed{}
	for ns := range all.All() {
		if o.namespace != "" && ns.Name() != o.namespace {
			continue
		}
		var governing *state.Namespace
		if others != nil {
			governing = others.WithDependencies(ns.Name())
		}
		o.collectIn(ns, governing, selected, found)
	}
	return found
}

func (o *options) collectIn(ns, governing *state.Namespace, selected *selection, found *installed) {
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
		case !selected.found[types.NamespacedName{Namespace: ns.Name(), Name: s.Metadata.Name}]:
		case csv == "":
			skip("Subscription %s has installed nothing yet, so there is no version to allow", name)
		case len(validation.IsDNS1123Label(pkg)) > 0:
			skip("no policy can name package %s of Subscription %s: it is no RFC 1123 label", text.Quote(pkg), name)
		case !first:
			skip("Subscription %s is the second one to package %s, and the policy is written for the first", name, text.Name(pkg))
		case o.check == "" && o.governed(governing, pkg) != "":
			skip("package %s has a policy already, %s", text.Name(pkg), o.governed(governing, pkg))
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
