// Package plan is `opgate plan`: the versions that OLM takes an operator through, with what the gate decides on each. The
// path is that of OLM's resolver for one package, the decisions are those of package rules.
package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
)

// self is the name of the command.
const self cli.Name = "plan"

// options are the flags.
type options struct {
	pkg           string
	catalog       string
	from, channel string
	policies      []string
	output        string
	kubeconfig    cli.Kubeconfig
	now           time.Time
	// read counts what is read of the catalog.
	read func(n int)
}

const long = `Show the path of an operator: the versions that OLM installs one after the other from what is installed, through the
channel, with what the gate decides on each, and why there is no further one. Nothing is written. What is refused is not
passed by: the path waits there. What a version needs of other operators counts as available.

The catalog is a file-based catalog or the OCI layout of a catalog image, else the CatalogSource of the Subscription:
its address, or its pod, by a forwarded port. That needs the rights to get the CatalogSource, to list pods, and to create
pods/portforward in its namespace; ClusterRole opgate-reader grants what else is read. Policies of -p count in place of
those of the same name on the cluster. With --catalog and --from no cluster is read.

Exit codes:
  0  the path is shown, whatever is decided on it
  2  the command line or the input cannot be used, or the cluster cannot be read`

const example = `  # on a cluster: what comes next, and what waits for whom
  kubectl opgate plan etcd -n shop

  # the next release of a catalog, under edited policies
  opgate plan etcd -n shop --catalog catalog/ -p policies/

  # no cluster: a picture for the pull request
  opgate plan etcd --catalog catalog/ --from etcdoperator.v0.9.2 -p policies/ -o svg > etcd.svg`

// Command returns `opgate plan`. now is the clock for approval windows.
func Command(now func() time.Time) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "plan PACKAGE [--catalog DIR|FILE] [--from CSV] [-p FILE|DIR|-]...",
		Short:   "Show the versions that OLM takes an operator through, and what is decided on each",
		Long:    long,
		Example: example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.pkg, o.now = args[0], now()
			if err := self.CheckFiles(o.policies); err != nil {
				return err
			}
			var clear func()
			o.read, clear = cli.Progress(cmd.ErrOrStderr(), "parts of the catalog", now)
			r, err := o.run(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr())
			clear()
			if err != nil {
				return self.Failed(err)
			}
			for _, note := range r.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note: "+text.Escape(note))
			}
			return formats[o.output](cmd.OutOrStdout(), r)
		},
	}
	flags := self.Flags(cmd)
	flags.StringVar(&o.catalog, "catalog", "", "directory or file of a file-based catalog, or OCI layout of a catalog image")
	flags.StringVar(&o.channel, "channel", "", "channel (default: that of the Subscription, else of the policy)")
	flags.StringVar(&o.from, "from", "", "ClusterServiceVersion that counts as installed (default: the installed one)")
	flags.StringArrayVarP(&o.policies, "policies", "p", nil,
		`file or directory with policies, "-" for standard input; repeatable`)
	o.kubeconfig.RegisterNamespace(cmd)
	cli.OutputVar(cmd, &o.output, formats)
	o.kubeconfig.Register(cmd)
	return cmd
}

// Result is what is printed.
type Result struct {
	Package   string `json:"package"`
	Namespace string `json:"namespace"`
	Catalog   string `json:"catalog"`
	Channel   string `json:"channel"`
	// Installed is the installed ClusterServiceVersion; "" if none is.
	Installed        string  `json:"installed"`
	InstalledVersion string  `json:"installedVersion"`
	Steps            []*step `json:"steps"`
	// End is why there is no further step.
	End   string   `json:"end"`
	Notes []string `json:"notes"`
}

// offline reports whether no cluster is read.
func (o *options) offline() bool { return o.from != "" && o.catalog != "" }

// run returns the path.
func (o *options) run(ctx context.Context, stdin io.Reader, stderr io.Writer) (*Result, error) {
	r := &Result{Package: o.pkg, Catalog: o.catalog, Notes: []string{}}
	state, err := o.readState(ctx, r, stdin, stderr)
	if err != nil {
		return nil, err
	}
	if r.Namespace, err = o.namespaceOf(state); err != nil {
		return nil, err
	}
	j := &judge{state: state, namespace: r.Namespace, now: o.now}
	sub, err := o.subscribe(ctx, j, r)
	if err != nil {
		return nil, err
	}
	if r.Channel = sub.Spec.Channel; r.Catalog == "" {
		r.Catalog = "CatalogSource " + j.catalog.Namespace + "/" + j.catalog.Name
	}
	if j.catalogPackage, err = o.readCatalog(ctx, state, j.catalog); err != nil {
		return nil, fmt.Errorf("read catalog %s: %w", text.Quote(r.Catalog), err)
	}
	from, err := j.installed(ctx, cmp.Or(o.from, sub.Status.InstalledCSV))
	if err != nil {
		return nil, err
	}
	if r.Installed = from.name; from.version != nil {
		r.InstalledVersion = from.version.String()
	}
	j.before = sub.Status.InstalledCSV
	j.begin()
	r.Steps, r.End = j.path(from, sub.Spec.Channel, sub.Spec.StartingCSV)
	for _, s := range r.Steps {
		if err := j.judge(ctx, s); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// readState reads the cluster, and policies in files.
func (o *options) readState(ctx context.Context, r *Result, stdin io.Reader, stderr io.Writer) (*cluster.State, error) {
	unit, err := manifests.Read(o.policies, stdin, stderr,
		manifests.Options{Namespace: o.kubeconfig.Overrides.Context.Namespace})
	if err != nil {
		return nil, err
	}
	if o.offline() {
		return cluster.FromFiles(unit, facts.Cluster{}), nil
	}
	state, err := (&cluster.Input{Kubeconfig: o.kubeconfig}).Read(ctx, cluster.Options{}, stdin, stderr)
	if err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, state.Notes...)
	return state.With(unit.Stored()...), nil
}

// namespaceOf returns the namespace of the command line or the context, else the only one of a policy of the package.
func (o *options) namespaceOf(state *cluster.State) (string, error) {
	if name := cmp.Or(state.Scope, o.kubeconfig.Overrides.Context.Namespace); name != "" {
		return name, self.CheckNamespaces(name)
	}
	var names []string
	for ns := range state.Snapshot.All() {
		if len(ns.Governing(o.pkg)) > 0 {
			names = append(names, ns.Name())
		}
	}
	if len(names) > 1 {
		return "", self.Usage("package %s is in namespaces %s: name one with -n", text.Name(o.pkg), text.Names(names, maxNamed))
	}
	return cmp.Or(strings.Join(names, ""), metav1.NamespaceDefault), nil
}

// subscribe sets the Subscription to the package, or one by the command line and the policies, and the catalog.
func (o *options) subscribe(ctx context.Context, j *judge, r *Result) (*olm.Subscription, error) {
	ns := j.state.Snapshot.Namespace(j.namespace)
	sub, policy := olm.Subscription{}, &operatorpolicy.Policy{}
	governing := ns.Governing(o.pkg)
	switch found := ns.Subscribers(o.pkg); {
	case len(found) > 1:
		return nil, fmt.Errorf("namespace %s has %d Subscriptions to package %s, and OLM resolves none of them", j.namespace,
			len(found), text.Name(o.pkg))
	case len(found) == 1:
		sub = *found[0]
	case o.offline() && len(governing) == 0:
		r.Notes = append(r.Notes, "no OperatorPolicy in the input governs package "+text.Name(o.pkg)+" in namespace "+
			j.namespace+": name some with -p, and another namespace with -n")
	case o.from == "":
		r.Notes = append(r.Notes, "namespace "+j.namespace+" has no Subscription to package "+text.Name(o.pkg)+
			": this is the path of a first installation")
	}
	for _, p := range governing {
		if !p.MustNotHave && (policy.Name == "" || p.Enforced && !policy.Enforced) {
			policy = p
		}
	}
	sub.Spec.Channel = cmp.Or(o.channel, sub.Spec.Channel, policy.Channel)
	sub.Spec.StartingCSV = cmp.Or(sub.Spec.StartingCSV, policy.StartingCSV)
	j.catalog = olm.Catalog{Namespace: cmp.Or(sub.Spec.SourceNamespace, policy.Catalog.Namespace),
		Name: cmp.Or(sub.Spec.Source, policy.Catalog.Name)}
	if name := sub.Metadata.Name; name != "" {
		raw, err := j.state.Get(ctx, snapshot.Subscriptions, types.NamespacedName{Namespace: j.namespace, Name: name})
		return &sub, cmp.Or(err, json.Unmarshal(raw, &j.subscription))
	}
	j.subscription = map[string]any{"apiVersion": olm.SubscriptionGVK.GroupVersion().String(), "kind": olm.KindSubscription,
		"metadata": j.metadata(o.pkg),
		"spec": map[string]any{"name": o.pkg, "channel": sub.Spec.Channel, "source": j.catalog.Name,
			"sourceNamespace": j.catalog.Namespace, "installPlanApproval": olm.ApprovalManual}}
	return &sub, nil
}

// readCatalog reads the package.
func (o *options) readCatalog(ctx context.Context, state *cluster.State, from olm.Catalog) (*catalogPackage, error) {
	if o.catalog != "" {
		return readFiles(ctx, o.catalog, o.pkg, o.read)
	}
	if from.Namespace == "" || from.Name == "" {
		return nil, self.Usage("the catalog is not known: name one with --catalog")
	}
	raw, err := state.Get(ctx, snapshot.CatalogSources, types.NamespacedName(from))
	if err != nil || raw == nil {
		return nil, cmp.Or(err, errors.New("it does not exist"))
	}
	source, err := olm.Decode[olm.CatalogSource](raw)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	address := source.Spec.Address
	if address == "" {
		if address, err = forward(ctx, state.Config(), from); err != nil {
			return nil, err
		}
	}
	return readServed(ctx, address, o.pkg, o.read)
}

// installed returns what OLM resolves from.
func (j *judge) installed(ctx context.Context, name string) (installed, error) {
	if name == "" {
		return installed{}, nil
	}
	stored, err := j.state.Get(ctx, snapshot.ClusterServiceVersions,
		types.NamespacedName{Namespace: j.namespace, Name: name})
	if err != nil || stored == nil {
		return j.stated(name), err
	}
	var csv struct{ Spec struct{ Version string } }
	err = json.Unmarshal(stored, &csv)
	version, _ := semver.ParseTolerant(csv.Spec.Version) // OLM takes one without a version for 0.0.0
	return installed{name, &version}, err
}
