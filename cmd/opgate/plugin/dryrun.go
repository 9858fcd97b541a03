package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// maxDryRuns bounds the plans of a namespace that the API server is asked about.
const maxDryRuns = 50

// byDryRun precedes why the API server is asked.
const byDryRun = "the API server was asked instead, by a dry run of the approval: "

// dryRun asks the API server for verdicts, for users who may not read what these commands judge by.
type dryRun struct {
	reader *cluster.Reader
	plans  dynamic.NamespaceableResourceInterface
	// because is what the user may not read.
	because *cluster.Forbidden
}

// dryRunAfter returns a dryRun for a cluster that could not be read; nil for another reason than a missing right.
func (o *options) dryRunAfter(err error) *dryRun {
	d := &dryRun{}
	if !errors.As(err, &d.because) {
		return nil
	}
	if d.reader, err = cluster.Connect(o.kubeconfig); err != nil {
		return nil
	}
	client, err := dynamic.NewForConfig(d.reader.Config())
	if err != nil {
		return nil
	}
	d.plans = client.Resource(snapshot.InstallPlans.GroupVersionResource())
	return d
}

// why returns the answer on a plan; the error that there was before if the user may not approve either.
func (d *dryRun) why(ctx context.Context, key types.NamespacedName, before error) (*answer, error) {
	found, err := d.approve(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w; a dry run of the approval was not answered either: %w", before, err)
	}
	notes := []string{byDryRun + d.because.Error()}
	if plan, err := d.reader.Plan(ctx, key); err == nil && plan.Spec.Approved {
		notes = append(notes, "it was approved before (phase "+
			plan.Status.Phase+"), so that there was nothing to refuse")
	}
	return &answer{Object: "installplan " + displayKey(key), Decision: found.Decision.String(),
		decision: found.Decision, Operators: []inspect.Operator{},
		Reasons: inspect.Reasons(found), Edits: []inspect.Edit{}, Warnings: []string{}, Notes: notes}, nil
}

// pending returns the plans of a namespace that wait, and writes to standard error that they were not judged here.
func (d *dryRun) pending(ctx context.Context, namespace string, stderr io.Writer, before error) ([]pendingPlan, error) {
	var waiting []*olm.InstallPlan
	err := d.reader.Each(ctx, snapshot.InstallPlans, namespace, func(raw []byte) error {
		plan, err := olm.DecodePlan(raw)
		if err == nil && plan.AwaitsApproval() {
			waiting = append(waiting, plan)
		}
		return err
	})
	if err != nil {
		return nil, before
	}
	fmt.Fprintln(stderr, "warning: "+byDryRun+d.because.Error())
	plans := []pendingPlan{}
	if len(waiting) > maxDryRuns {
		fmt.Fprintf(stderr, "warning: %d plans wait, of which %d are listed\n", len(waiting), maxDryRuns)
	}
	for _, plan := range waiting[:min(len(waiting), maxDryRuns)] {
		key := types.NamespacedName{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name}
		found, err := d.approve(ctx, key)
		if apierrors.IsNotFound(err) {
			continue // it was deleted since
		}
		if err != nil {
			return nil, fmt.Errorf("%w; a dry run of the approval was not answered either: %w", before, err)
		}
		p := pendingPlan{Namespace: key.Namespace, Name: key.Name, Decision: found.Decision.String(),
			decision: found.Decision,
			Created:  created(plan), Operators: []inspect.Operator{}, Reasons: inspect.Reasons(found),
			Warnings: []string{}, Notes: []string{}}
		for _, csv := range plan.Spec.CSVNames {
			p.Operators = append(p.Operators, inspect.Operator{CSV: csv})
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// approve returns the verdict of whatever refuses the approval of a plan, or that nothing does. An error means that the
// API server did not come to a verdict.
func (d *dryRun) approve(ctx context.Context, key types.NamespacedName) (*verdict.Verdict, error) {
	_, err := d.plans.Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType,
		[]byte(`{"spec":{"approved":true}}`),
		metav1.PatchOptions{FieldManager: "opgate-approve", DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return &verdict.Verdict{Decision: verdict.Allow}, nil
	}
	refusal := rules.RefusalOf(err)
	if refusal == nil {
		return nil, err
	}
	return &refusal.Verdict, nil
}
