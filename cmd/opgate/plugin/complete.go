package plugin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

const (
	// completionTimeout bounds a completion: a shell waits for it.
	completionTimeout = 3 * time.Second
	// maxCompletions bounds the names that a shell is given.
	maxCompletions = 1000
)

// CompletePlans completes the names of InstallPlans that wait for approval, as NAMESPACE/NAME.
func CompletePlans(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names(cmd, prefix, snapshot.InstallPlans, func(raw []byte) string {
		plan, err := olm.DecodePlan(raw)
		if err != nil || !plan.AwaitsApproval() {
			return ""
		}
		return plan.Metadata.Key()
	})
}

func completeNamespaces(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return names(cmd, prefix, snapshot.Namespaces, keyOf)
}

// completeWhy completes kinds, then names.
func completeWhy(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		var kinds []cobra.Completion
		for _, s := range judgedKinds {
			kinds = append(kinds, s.names[0])
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	case 1:
		if i := slices.IndexFunc(judgedKinds, func(s judgedKind) bool { return slices.Contains(s.names, args[0]) }); i >= 0 {
			return names(cmd, prefix, judgedKinds[i].Kind, keyOf)
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// keyOf returns NAMESPACE/NAME of an object, or the name of a cluster-scoped one.
func keyOf(raw []byte) string {
	var o metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &o) != nil {
		return ""
	}
	return displayKey(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
}

// names lists the objects of a kind, without an error: a shell cannot show one. Names that a shell would not take for
// one word are left out.
func names(
	cmd *cobra.Command, prefix string, kind *snapshot.Kind, nameOf func(raw []byte) string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	var of cli.Kubeconfig
	of.File, _ = cmd.Flags().GetString("kubeconfig") // every command that completes names has both
	of.Overrides.CurrentContext, _ = cmd.Flags().GetString("context")
	reader, err := cluster.Connect(of)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	var found []cobra.Completion
	see := func(_ *snapshot.Kind, raw []byte) {
		if name := nameOf(raw); name != "" && strings.HasPrefix(name, prefix) &&
			!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			found = append(found, name)
		}
	}
	// What was read until an error is complete as far as it goes.
	_, _ = reader.Read(ctx, cluster.Options{Kinds: []*snapshot.Kind{kind}, Seen: see})
	slices.Sort(found)
	found = slices.Compact(found)
	return found[:min(len(found), maxCompletions)], cobra.ShellCompDirectiveNoFileComp
}
