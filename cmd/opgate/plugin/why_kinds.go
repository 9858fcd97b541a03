package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// parseQuestion reads KIND NAMESPACE/NAME, or KIND NAME for a cluster-scoped kind or an object of a namespace. The kind may
// be a resource with its group.
func parseQuestion(args []string, namespace string) (*question, error) {
	if len(args) != 2 {
		return nil, errors.New("write a kind and the name of an object, as in: why installplan shop/install-x7")
	}
	named, _, _ := strings.Cut(strings.ToLower(args[0]), ".")
	i := slices.IndexFunc(judgedKinds, func(s judgedKind) bool { return slices.Contains(s.names, named) })
	if i < 0 {
		var known []string
		for _, s := range judgedKinds {
			known = append(known, s.names[0])
		}
		return nil, fmt.Errorf("kind %s is not judged: use %s", text.Quote(args[0]), strings.Join(known, ", "))
	}
	q := &question{judgedKind: judgedKinds[i]}
	if q.ClusterScoped {
		q.key = types.NamespacedName{Name: args[1]}
		if len(validation.IsDNS1123Subdomain(args[1])) > 0 {
			return nil, fmt.Errorf("%s is no name of a %s, which has no namespace", text.Quote(args[1]), q.names[0])
		}
		return q, nil
	}
	var ok bool
	if q.key, ok = cli.NamespacedName(args[1], namespace); !ok {
		return nil, fmt.Errorf("%s is no name of a %s: write NAME or NAMESPACE/NAME", text.Quote(args[1]), q.names[0])
	}
	return q, nil
}

// judge judges the object.
func (q *question) judge(ctx context.Context) (*answer, error) {
	c := &inspect.Cluster{Snapshot: q.state.Snapshot, Mode: q.mode, Again: true, Now: q.now,
		Package: func(pkg string, source olm.Catalog) *catalog.Package { return q.state.Package(ctx, pkg, source) }}
	found, next, err := q.inspect(c)
	if err != nil {
		return nil, err
	}
	a := &answer{Object: found.Object, Decision: found.Decision.String(), decision: found.Decision,
		Operators: append([]inspect.Operator{}, found.Operators...),
		Reasons:   inspect.Reasons(found.Reasons), Edits: []inspect.Edit{}, Warnings: inspect.WarningTexts(&found.Verdict),
		Notes: append([]string{}, found.Notes...)}
	a.Notes = append(a.Notes, next...)
	if found.Plan == nil {
		return a, nil
	}
	ns := q.state.Namespace(q.key.Namespace)
	if found.Decision == verdict.Allow || rules.Stale(rules.StaleInput{Plan: found.Plan, Namespace: ns}) == "" {
		edits := inspect.Edits{Policies: q.policies, Now: q.now,
			With: func(o *snapshot.Object) *snapshot.Snapshot { return q.state.With(o).Snapshot }}
		a.Edits = edits.Of(found, ns)
	}
	return a, nil
}

// inspect returns the answer on the object, and what to do or to ask next.
func (q *question) inspect(c *inspect.Cluster) (found *inspect.Answer, next []string, err error) {
	if q.Kind == snapshot.ClusterServiceVersions {
		if found = c.JudgeInstalled(q.key); found == nil {
			err = errors.New("it installs nothing in this namespace")
		}
		return found, nil, err
	}
	o, err := manifests.Decode(q.GroupVersionKind, q.raw)
	if err != nil {
		return nil, nil, err
	}
	found = c.Judge(o)
	switch value := o.Value.(type) {
	case *olm.InstallPlan:
		next = q.nextOfPlan(c, value, found)
	case *olm.Subscription:
		if name := value.Status.InstallPlan.Name; name != "" {
			next = []string{"its current plan: kubectl opgate why installplan " +
				displayKey(types.NamespacedName{Namespace: q.key.Namespace, Name: name})}
		}
	case *policyv1.Policy:
		if read := dependency.Read(value); len(read.PendingDependencies) > 0 {
			next = []string{"now: " + read.PendingOn("")}
		}
	}
	return found, next, nil
}

// nextOfPlan says what a plan waits for, and what to do.
func (q *question) nextOfPlan(c *inspect.Cluster, plan *olm.InstallPlan, found *inspect.Answer) []string {
	ns := q.state.Namespace(q.key.Namespace)
	stale := rules.Stale(rules.StaleInput{Plan: plan, Namespace: ns})
	switch {
	case plan.Spec.Approved:
		return []string{"it was approved before (phase " + plan.Status.Phase +
			"): this is the verdict if it were approved now"}
	case plan.AwaitsApproval() && !ns.IsCurrent(plan):
		return []string{"it is outdated: no Subscription names it as its current plan, and approving it would bring an earlier version; delete it"}
	case stale != "" && found.Decision != verdict.Allow:
		return []string{rules.StaleAdvice(plan, stale)}
	case plan.Status.Phase == olm.PhaseRequiresApproval && found.Decision == verdict.Allow:
		_, notes := c.Approver(plan)
		return append(notes, "it may be approved: kubectl opgate approve "+displayKey(q.key))
	}
	return nil
}
