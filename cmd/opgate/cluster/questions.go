package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/packages"
	"github.com/opgate/opgate/snapshot/templates"
)

const (
	// maxReads is the number of plans and packages that are read at the same time.
	maxReads = 8
	// resolving bounds the time that the templates of policies take; the resolver itself abandons each after 20 s.
	resolving = 30 * time.Second
)

// questions are what a snapshot needs beyond the objects of the cluster: policies completed, packages of catalogs, and
// what plans change. Most clusters need none of them. They are recorded while a snapshot is built, read, and answered
// in the next one. Each is asked once.
type questions struct {
	completions map[types.NamespacedName]*snapshot.Completion
	packages    map[packageQuestion]*catalog.Package
	changes     map[string]*state.PlanChanges

	openPolicies []*policyv1beta2.OperatorPolicy
	openPackages []packageQuestion
	openChanges  []changesQuestion
}

type packageQuestion struct {
	pkg    string
	source olm.Catalog
}

type changesQuestion struct {
	key          string
	plan         types.NamespacedName
	replacements []state.Replacement
}

// needed implements snapshot.Builder.Needed.
func (in *input) needed(op *policyv1beta2.OperatorPolicy) bool {
	if !operatorpolicy.DependsOnCluster(op) {
		return false
	}
	key := types.NamespacedName{Namespace: op.Namespace, Name: op.Name}
	if _, asked := in.completions[key]; !asked {
		in.openPolicies = append(in.openPolicies, op)
	}
	return true
}

// packageOf implements rules.Packages.
func (in *input) packageOf(pkg, _ string, source olm.Catalog) *catalog.Package {
	q := packageQuestion{pkg, source}
	known, asked := in.packages[q]
	if !asked {
		in.packages[q] = nil
		in.openPackages = append(in.openPackages, q)
	}
	return known
}

// changesOf implements rules.Changes.
func (in *input) changesOf(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
	q := changesQuestion{plan: types.NamespacedName{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name},
		replacements: replacements}
	q.key = fmt.Sprintf("%s %v", plan.Metadata.UID, replacements)
	known, asked := in.changes[q.key]
	if !asked {
		in.changes[q.key] = nil
		in.openChanges = append(in.openChanges, q)
	}
	return known
}

// answer reads what was asked for since the last call, and reports whether it was anything.
func (in *input) answer(ctx context.Context) bool {
	policies, packages, changes := in.openPolicies, in.openPackages, in.openChanges
	in.openPolicies, in.openPackages, in.openChanges = nil, nil, nil
	if len(policies)+len(packages)+len(changes) == 0 || ctx.Err() != nil {
		return false
	}
	if len(policies) > 0 {
		in.complete(ctx, policies)
	}
	workqueue.ParallelizeUntil(ctx, maxReads, len(packages)+len(changes), func(i int) {
		if i < len(packages) {
			in.readPackage(ctx, packages[i])
		} else {
			in.readChanges(ctx, changes[i-len(packages)])
		}
	})
	return true
}

func (in *input) readPackage(ctx context.Context, q packageQuestion) {
	found := in.fetch(ctx, q.pkg, q.source)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.packages[q] = found
}

// fetch reads a package of a catalog, nil if it cannot be read.
func (in *input) fetch(ctx context.Context, pkg string, source olm.Catalog) *catalog.Package {
	found, err := packages.Fetch(ctx, in.objects, pkg, source)
	if err != nil {
		in.note("package "+text.Name(pkg), err, "list", RoleReader)
		return nil
	}
	return found
}

func (in *input) readChanges(ctx context.Context, q changesQuestion) {
	found, err := in.Changes(ctx, q.plan, q.replacements)
	if err != nil {
		what := "contents of InstallPlan " + q.plan.String()
		if apierrors.IsForbidden(err) {
			what = "contents of some InstallPlans" // one note for all of them
		}
		in.note(what, err, "get", RoleContents)
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.changes[q.key] = found
}

// complete resolves the templates of policies, with the rights of the user: what the user may not read is a problem of
// the policy, which then holds what it governs.
func (in *input) complete(ctx context.Context, policies []*policyv1beta2.OperatorPolicy) {
	ctx, cancel := context.WithTimeout(ctx, resolving)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var mu sync.Mutex
	found, all := map[types.NamespacedName]*snapshot.Completion{}, make(chan struct{})
	resolver, err := templates.New(templates.Options{
		Config:  in.config,
		Package: func(pkg string, source olm.Catalog) *catalog.Package { return in.fetch(ctx, pkg, source) },
		Publish: func(key types.NamespacedName, c snapshot.Completion) {
			mu.Lock()
			defer mu.Unlock()
			found[key] = &c
			if len(found) == len(policies) && all != nil {
				close(all)
				all = nil
			}
		},
	})
	if err != nil {
		in.note("templates of policies", err, "get", RoleReader)
		return
	}
	for _, op := range policies {
		resolver.Policy(op)
	}
	done := all
	running.Go(func() { _ = resolver.Start(ctx) }) // it returns no error
	select {
	case <-done:
	case <-ctx.Done():
		in.note("templates of policies", ctx.Err(), "get", RoleReader)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, op := range policies {
		key := types.NamespacedName{Namespace: op.Namespace, Name: op.Name}
		in.completions[key] = found[key] // nil counts as not complete
	}
}
