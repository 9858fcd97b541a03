package test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
)

// recorded are the kinds of the namespace of a plan that a scenario has of a cluster, in this order.
var recorded = []*snapshot.Kind{snapshot.Namespaces, snapshot.OperatorGroups, snapshot.Subscriptions,
	snapshot.ClusterServiceVersions, snapshot.OperatorConditions, snapshot.InstallPlans}

// recording keeps the objects that a cluster has.
type recording struct {
	mu      sync.Mutex
	objects map[*snapshot.Kind][]*unstructured.Unstructured
}

func (r *recording) see(kind *snapshot.Kind, raw []byte) {
	u := &unstructured.Unstructured{}
	if json.Unmarshal(bytes.Clone(raw), &u.Object) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[kind] = append(r.objects[kind], u)
}

// texts returns objects of some kinds that are kept, as YAML.
func (r *recording) texts(kinds []*snapshot.Kind, keep func(*unstructured.Unstructured) bool) (string, error) {
	var documents []string
	for _, kind := range kinds {
		objects := slices.Clone(r.objects[kind])
		slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int {
			return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
		})
		for _, u := range objects {
			u.SetGroupVersionKind(kind.GroupVersionKind) // lists leave it out
			if !keep(u) {
				continue
			}
			trim(u)
			document, err := yaml.Marshal(u.Object)
			if err != nil {
				return "", err
			}
			documents = append(documents, string(document))
		}
	}
	return strings.Join(documents, "---\n"), nil
}

// trim removes what nothing is judged by.
func trim(u *unstructured.Unstructured) {
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "generation", "creationTimestamp",
		"ownerReferences"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	for _, key := range []string{corev1.LastAppliedConfigAnnotation, "alm-examples"} {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations", key)
	}
	switch u.GetKind() {
	case olm.KindClusterServiceVersion:
		for _, path := range [][]string{{"status"}, {"spec", "description"}, {"spec", "icon"}} {
			unstructured.RemoveNestedField(u.Object, path...)
		}
	case snapshot.OperatorPolicies.Kind, snapshot.Constraints.Kind:
		unstructured.RemoveNestedField(u.Object, "status")
	}
}

// fromPlan prints the scenario of the approval of a plan on the cluster, by a tenant, with the answer that it gets now.
func (o *options) fromPlan(ctx context.Context, stdout, stderr io.Writer, now time.Time) error {
	key, ok := cli.NamespacedName(o.from, "")
	if !ok {
		return self.Usage("--from %s is no name of an InstallPlan: write NAMESPACE/PLAN", text.Quote(o.from))
	}
	reader, err := cluster.Connect(o.kubeconfig)
	if err != nil {
		return err
	}
	r := &recording{objects: map[*snapshot.Kind][]*unstructured.Unstructured{}}
	state, err := reader.Read(ctx, cluster.Options{Namespace: key.Namespace, Seen: r.see})
	if err != nil {
		return self.Unusable("%s", text.Escape(err.Error()))
	}
	ns := state.Namespace(key.Namespace)
	i := slices.IndexFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == key.Name })
	if i < 0 {
		return self.Unusable("there is no installplan %s", key)
	}
	judged := (&inspect.Cluster{Snapshot: state.Snapshot, Now: now}).JudgePlan(ns.Plans()[i])
	written, err := archive(r, key, now, func(u *unstructured.Unstructured) bool {
		return slices.ContainsFunc(ns.Policies(),
			func(p *operatorpolicy.Policy) bool { return p.Namespace == u.GetNamespace() && p.Name == u.GetName() })
	})
	if err != nil {
		return self.Unusable("%v", err)
	}
	s, err := scenario.Parse(key.Name, txtar.Format(written), o.versions)
	if err != nil {
		return self.Unusable("%v", err)
	}
	got, err := o.send(ctx, ".", s)
	if err != nil {
		return self.Unusable("%v", err)
	}
	if got.Decision != judged.Decision.String() {
		fmt.Fprintf(stderr, "warning: on the cluster the decision is %s: something that it depends on is not in the scenario\n",
			judged.Decision)
	}
	var spoken []string
	for _, reason := range judged.Reasons {
		if id := string(reason.Rule); strings.Contains(got.Message, "("+id+")") && !slices.Contains(spoken, id) {
			spoken = append(spoken, id)
		}
	}
	written.Comment = bytes.Replace(written.Comment, []byte("rules:"), []byte("rules: "+strings.Join(spoken, ", ")), 1)
	written.Files[len(written.Files)-1].Data = []byte(got.Decision + "\n")
	_, err = stdout.Write(scenario.Update(txtar.Format(written), got.Message, got.Warnings, o.versions))
	return err
}

// archive returns the scenario without the answer.
func archive(
	r *recording, plan types.NamespacedName, now time.Time, governing func(*unstructured.Unstructured) bool,
) (*txtar.Archive, error) {
	made := &txtar.Archive{Comment: fmt.Appendf(nil,
		"The approval of InstallPlan %s, as it waited.\n\nrules:\nuser:  tenant\ndo:    approve installplan %[1]s\nnow:   %s\n",
		plan, now.UTC().Format(time.RFC3339))}
	noOtherPlan := func(u *unstructured.Unstructured) bool { // what is read is of its namespace
		return u.GetKind() != olm.KindInstallPlan || u.GetName() == plan.Name
	}
	for _, f := range []struct {
		name  string
		kinds []*snapshot.Kind
		keep  func(*unstructured.Unstructured) bool
	}{
		{"cluster.yaml", recorded, noOtherPlan},
		{"policies.yaml", []*snapshot.Kind{snapshot.OperatorPolicies}, governing},
		{"constraints.yaml", []*snapshot.Kind{snapshot.Constraints}, func(*unstructured.Unstructured) bool { return true }},
	} {
		objects, err := r.texts(f.kinds, f.keep)
		if err != nil {
			return nil, err
		}
		if objects != "" {
			made.Files = append(made.Files, txtar.File{Name: f.name, Data: []byte(objects)})
		}
	}
	made.Files = append(made.Files, txtar.File{Name: "want", Data: []byte("Allow\n")})
	return made, nil
}
