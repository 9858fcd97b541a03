package check

import (
	"context"
	"fmt"
	"io"
	"slices"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/facts"
)

// onCluster is the file of objects that were read from a cluster.
const onCluster = "cluster"

// What is said if nothing was judged.
const (
	nothingRead = "the input holds no OperatorPolicy, Constraint, Policy, PolicySet, Subscription, InstallPlan, CatalogSource, OperatorGroup, " +
		"ClusterExtension or ClusterCatalog"
	nothingStored = "no operator is installed, and no InstallPlan waits for approval"
)

// report judges the input, and with --live what a cluster has.
func (o *options) report(ctx context.Context, stdin io.Reader) (*report, error) {
	versions, err := o.versions.cluster()
	if err != nil {
		return nil, err
	}
	var state *cluster.State
	if o.live {
		reader, err := cluster.Connect(o.kubeconfig)
		if err == nil {
			state, err = reader.Read(ctx, cluster.Options{})
		}
		if err != nil {
			return nil, self.Unusable("nothing was judged: %v", err)
		}
	}
	if o.diff {
		return o.compare(ctx, state, versions, stdin)
	}
	in, err := o.gather(o.policies, stdin)
	if err != nil {
		return nil, err
	}
	return o.judgeAll(ctx, in, state, versions)
}

// judgeAll judges an input, by a cluster or by the versions of one.
func (o *options) judgeAll(
	ctx context.Context, in *manifests.Input, state *cluster.State, versions facts.Cluster,
) (*report, error) {
	r := newReport(o, in)
	units := in.Units
	if o.live && len(units) == 0 {
		units = []*manifests.Unit{{}}
	}
	somePolicy := o.live || slices.ContainsFunc(units, (*manifests.Unit).HasPolicies)
	for i, u := range units {
		judged, notes, err := o.judge(ctx, u, state, versions, i == 0)
		if err != nil {
			return nil, self.Unusable("nothing was judged: %v", err)
		}
		for _, note := range notes {
			r.notes = once(r.notes, manifests.Note{Text: note})
		}
		unjudged := ""
		if somePolicy && !o.live && !u.HasPolicies() {
			unjudged = "no OperatorPolicy and no Constraint is read for " + u.Name + ": name them by -p"
		}
		for _, j := range judged {
			switch hidden := u.Hidden(); {
			case hidden != "":
				j.unjudged = "it may depend on what cannot be read: " + hidden
			case unjudged != "" && j.isOperator():
				j.unjudged = unjudged
			case o.requirePolicy && j.Ungoverned:
				j.unjudged = "no OperatorPolicy governs it"
			}
			r.add(&j)
		}
	}
	if !somePolicy && slices.ContainsFunc(r.judged, func(j judgement) bool { return j.isOperator() }) {
		r.notes = once(r.notes, manifests.Note{Warning: true,
			Text: "judged by no policy: the input has no OperatorPolicy and no Constraint"})
	}
	return r, nil
}

// judge judges the objects of a unit, in its order, each as if it were written now to a cluster that holds all the
// others, and then what else is judged on the cluster. Objects of the unit count in place of those of the cluster.
func (o *options) judge(
	ctx context.Context, u *manifests.Unit, state *cluster.State, versions facts.Cluster, first bool,
) (judged []judgement, notes []string, err error) {
	c := &inspect.Cluster{Mode: rules.ApprovalMode(o.approvalMode), Again: o.asIf == asIfApprovedNow,
		Installed: o.diff || o.live, Now: o.now}
	objects := u.Objects
	c.Package = u.Package
	if state == nil {
		c.Snapshot = u.Snapshot(versions)
	} else {
		if stored := u.Stored(); len(stored) > 0 {
			if state, err = state.Again(ctx, stored, nil); err != nil {
				return nil, nil, err
			}
		}
		c.Snapshot, notes = state.Snapshot, state.Notes
		c.Package = func(pkg string, source olm.Catalog) *catalog.Package {
			if given := u.Package(pkg, source); given != nil {
				return given
			}
			return state.Package(ctx, pkg, source)
		}
		if first && (o.diff || len(o.files) == 0) {
			objects = slices.Concat(objects, storedIn(c, objects, o.diff))
		}
	}
	for _, object := range objects {
		if answer := c.Judge(object); answer != nil {
			judged = append(judged, judgement{Object: object, Answer: answer})
		}
	}
	return judged, notes, nil
}

// storedIn returns what is judged of a cluster, without those that are given: what is installed and what waits and, if
// asked for, Subscriptions.
func storedIn(c *inspect.Cluster, given []*manifests.Object, subscriptions bool) (stored []*manifests.Object) {
	known := map[string]bool{}
	for _, o := range given {
		known[o.Kind+" "+o.Key()] = true
	}
	for ns := range c.All() {
		add := func(kind, name string, value any) {
			o := &manifests.Object{Place: manifests.Place{File: onCluster}, Kind: kind, Namespace: ns.Name(),
				Name: name, Value: value}
			if !known[kind+" "+o.Key()] {
				stored = append(stored, o)
			}
		}
		if subscriptions {
			for _, s := range ns.Subscriptions() {
				add(olm.KindSubscription, s.Metadata.Name, s)
			}
		}
		for _, installed := range ns.Installed() {
			add(olm.KindClusterServiceVersion, installed.Name, nil)
		}
		for _, plan := range ns.Plans() {
			if ns.Waits(plan) {
				add(olm.KindInstallPlan, plan.Metadata.Name, plan)
			}
		}
	}
	return stored
}

// versions are those of the cluster that the command line sets.
type versions struct{ kubernetes, openshift string }

// cluster is what is known of the cluster.
func (v *versions) cluster() (c facts.Cluster, err error) {
	for _, f := range []struct {
		flag, value, example string
		into                 *string
	}{{"kubernetes-version", v.kubernetes, "1.36.3", &c.Version},
		{"openshift-version", v.openshift, "4.19.3", &c.OpenShift}} {
		if f.value == "" {
			continue
		}
		// What vendors append (v1.36.3-eks-1234) would make it older than the release; OLM leaves it out as well.
		version, err := utilversion.ParseGeneric(f.value)
		if err != nil {
			return c, self.Usage("--%s %q is not a version such as %s", f.flag, f.value, f.example)
		}
		*f.into = fmt.Sprintf("%d.%d.%d", version.Major(), version.Minor(), version.Patch())
	}
	return c, nil
}
