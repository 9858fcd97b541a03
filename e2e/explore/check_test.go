package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

type schemaResource = schema.GroupVersionResource

// observed is a namespace at one moment.
type observed struct {
	name, installed string
	second          bool
	// quiet is that there is no other version, and that the one that is installed has succeeded.
	quiet string
	subs  []unstructured.Unstructured
	// plans are those that wait for approval, installing those that were approved and have not ended.
	plans, installing []unstructured.Unstructured
	// status are the policies of the namespace about the package, with what they report.
	status []*policyv1beta2.OperatorPolicy
}

// check returns an error until both namespaces are as the model expects, and all answers agree.
func (w *walk) check(ctx context.Context) error {
	var errs []error
	for i, namespace := range w.namespaces {
		o, err := w.observe(ctx, namespace, i == 1)
		if err != nil {
			return err
		}
		expected := w.state.expect(o.installed, o.second)
		if p := w.stuck(o); p != "" {
			expected = expectation{csv: o.installed, unknown: "plan " + p + " was approved before it was forbidden",
				why: p}
		}
		if o.orphan() && len(w.state.enforced(o.second)) == 0 {
			expected = expectation{csv: o.installed, unknown: "OLM does not take over what no Subscription refers to"}
		}
		if w.unsure(w.state[subscription+"/"+packageName]) {
			expected.unknown = "its user wrote Automatic where a policy had made it so"
		}
		if expected.unknown == "" && o.installed != expected.csv {
			errs = append(errs, fmt.Errorf("%s has %q installed, want %q\n%s", namespace, o.installed, expected.csv, o))
			continue
		}
		if err := errors.Join(w.checkStatus(o, expected), w.checkAnswers(ctx, o), w.checkGroup(ctx, o, w.owners[i]),
			w.checkLink(ctx, o, expected)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", namespace, err, o))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return w.checkSubscription(ctx)
}

// orphan reports whether no Subscription refers to what is installed. With a policy Opgate repairs that.
func (o *observed) orphan() bool {
	return o.installed != "" && !slices.ContainsFunc(o.subs, func(s unstructured.Unstructured) bool {
		name, _, _ := unstructured.NestedString(s.Object, "status", "installedCSV")
		return name == o.installed
	})
}

// unsure reports whether the model does not know what a Subscription asks for: Automatic, written where a policy had made
// it Automatic, changes nothing that the gate could see.
func (w *walk) unsure(user fields) bool {
	return user != nil && w.adopted && w.askedManual && user.wish() != "Manual"
}

// checkGroup wants an OperatorGroup to be what the policy that owns it sets, whatever others ask for.
func (w *walk) checkGroup(ctx context.Context, o *observed, owner string) error {
	want := w.state[operatorPolicy+"/"+owner]["upgradeStrategy"]
	if want == "" {
		return nil
	}
	group, err := w.Clients[cluster.Admin].Resource(harness.OperatorGroups).Namespace(o.name).
		Get(ctx, groupName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got, _, _ := unstructured.NestedString(group.Object, "spec", "upgradeStrategy"); got != want {
		return fmt.Errorf("OperatorGroup %s has upgradeStrategy %q, want %q of policy %s", groupName, got, want, owner)
	}
	return nil
}

// checkLink wants a Subscription that was created again beside its operator to be linked with that, by an enforced policy
// of any type that does not forbid the version, and opgate why to name the command elsewhere.
func (w *walk) checkLink(ctx context.Context, o *observed, expected expectation) error {
	i := slices.IndexFunc(o.subs, func(s unstructured.Unstructured) bool {
		name, _, _ := unstructured.NestedString(s.Object, "spec", "name")
		return name == packageName
	})
	groups, err := w.Names(ctx, harness.OperatorGroups, o.name)
	policies := w.state.enforced(o.second)
	switch {
	case err != nil || !o.orphan() || i < 0 || len(groups) != 1 || w.state[catalogSource+"/"+catalogName] == nil ||
		len(w.state.all(policy)) > 0:
		return err
	case len(policies) == 0:
		why, err := w.RunPlugin(ctx, "", cluster.Command{
			Args: []string{"opgate", "why", "subscription", o.name + "/" + o.subs[i].GetName()}})
		if err == nil && !strings.Contains(why.Stdout, "--subresource=status") {
			err = fmt.Errorf("nothing refers to %s: opgate why does not tell how to repair that: %s%s", o.installed, why.Stdout,
				why.Stderr)
		}
		return err
	case len(policies) == 1 && expected.unknown == "" && w.state.forbidden(o.installed, o.second) == "":
		return fmt.Errorf("Subscription %s is not linked with %s", o.subs[i].GetName(), o.installed)
	}
	return nil
}

// observe reads a namespace.
func (w *walk) observe(ctx context.Context, namespace string, second bool) (*observed, error) {
	o := &observed{name: namespace, second: second}
	admin := w.Clients[cluster.Admin]
	csvs, err := admin.Resource(harness.ClusterServiceVersions).Namespace(namespace).
		List(ctx, metav1.ListOptions{LabelSelector: "!olm.copiedFrom"})
	if err != nil {
		return nil, err
	}
	for _, csv := range csvs.Items {
		phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
		if strings.HasPrefix(csv.GetName(), csvPrefix) {
			o.installed, o.quiet = max(o.installed, csv.GetName()), o.quiet+csv.GetName()+" "+phase+" "
		}
	}
	subs, err := admin.Resource(harness.Subscriptions).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	o.subs = subs.Items
	if o.plans, o.installing, err = w.plans(ctx, namespace); err != nil {
		return nil, err
	}
	policies, err := admin.Resource(harness.OperatorPolicies).Namespace(cluster.PolicyNamespace).
		List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, u := range policies.Items {
		name, walks := strings.CutPrefix(u.GetName(), w.namespaces[0]+"-")
		f := w.state[operatorPolicy+"/"+name]
		if !walks || f == nil || w.namespace(f) != namespace {
			continue
		}
		op := &policyv1beta2.OperatorPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, op); err != nil {
			return nil, err
		}
		if op.Status.ObservedGeneration != op.Generation {
			return nil, fmt.Errorf("policy %s was not evaluated yet", u.GetName())
		}
		if f["package"] == "" {
			o.status = append(o.status, op)
		}
	}
	return o, nil
}

// String describes what was observed, for a failure.
func (o *observed) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "ClusterServiceVersions: %s\n", o.quiet)
	for _, s := range o.subs {
		fmt.Fprintf(&text, "Subscription %s: spec %v, annotations %v, status %v\n",
			s.GetName(), s.Object["spec"], s.GetAnnotations(), s.Object["status"])
	}
	for _, p := range o.plans {
		fmt.Fprintf(&text, "InstallPlan %s: %v\n", p.GetName(), p.Object["spec"])
	}
	for _, op := range o.status {
		fmt.Fprintf(&text, "OperatorPolicy %s %s:\n%s\n", op.Name, op.Status.Compliant, scripttest.Conditions(op))
	}
	return text.String()
}

// plans are those of a namespace that wait for approval, and those that are approved and have not ended.
func (w *walk) plans(ctx context.Context, namespace string) (waiting, installing []unstructured.Unstructured,
	err error) {
	list, err := w.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(namespace).
		List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for _, p := range list.Items {
		phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
		approved, _, _ := unstructured.NestedBool(p.Object, "spec", "approved")
		switch {
		case approved && phase != "Complete" && phase != "Failed":
			installing = append(installing, p)
		case phase == "RequiresApproval":
			waiting = append(waiting, p)
		}
	}
	return waiting, installing, nil
}

// stuck returns the name of a plan that was approved, and brings what is not allowed any more: OLM repeats what is
// refused.
func (w *walk) stuck(o *observed) string {
	for _, p := range o.installing {
		names, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "clusterServiceVersionNames")
		if slices.ContainsFunc(names, func(csv string) bool { return w.state.forbidden(csv, o.second) != "" }) {
			return p.GetName()
		}
	}
	return ""
}

// dryRun returns the answer to the approval of a plan by an admin, who means it unless dry is set.
func (w *walk) dryRun(ctx context.Context, p unstructured.Unstructured, dry bool) (harness.Answer, error) {
	r := harness.Request{Method: "PATCH", Path: harness.PathOf(harness.InstallPlans, p.GetNamespace(), p.GetName(), ""),
		ContentType: "application/merge-patch+json", Body: []byte(harness.Approval)}
	if dry {
		r.Query = url.Values{"dryRun": {"All"}}
	}
	return w.Clients[cluster.Admin].Send(ctx, r)
}

// checkStatus compares what policies report with what is installed.
func (w *walk) checkStatus(o *observed, expected expectation) error {
	if len(o.status) != 1 || expected.unknown != "" {
		return w.checkOverlap(o)
	}
	op := o.status[0]
	f := w.state[operatorPolicy+"/"+strings.TrimPrefix(op.Name, w.namespaces[0]+"-")]
	text := scripttest.Conditions(op)
	if o.installed != "" && expected.unknown == "" && o.quiet != o.installed+" Succeeded " &&
		f["remediationAction"] != "inform" && f["complianceType"] == musthave {
		return fmt.Errorf("it has not settled: %s", o.quiet)
	}
	listed := f.lists(o.installed)
	want := policyv1beta2.Compliant
	switch f["complianceType"] {
	case musthave:
		if o.installed == "" || !listed {
			want = policyv1beta2.NonCompliant
		}
	case mayhave:
		if o.installed != "" && !listed {
			want = policyv1beta2.NonCompliant
		}
	case mustnothave:
		if o.installed != "" && listed {
			want = policyv1beta2.NonCompliant
		}
	}
	unsure := want == policyv1beta2.Compliant && (f["remediationAction"] == "inform" || f["complianceType"] != musthave)
	if op.Status.Compliant != want && !unsure {
		return fmt.Errorf("policy %s is %s, want %s", op.Name, op.Status.Compliant, want)
	}
	if f["complianceType"] == musthave && f["remediationAction"] != "inform" && !strings.Contains(text, expected.why) {
		return fmt.Errorf("policy %s does not name the cause, %s", op.Name, expected.why)
	}
	return nil
}

// checkOverlap wants each of several enforced policies of a namespace to name another one.
func (w *walk) checkOverlap(o *observed) error {
	enforced := slices.DeleteFunc(slices.Clone(o.status), func(op *policyv1beta2.OperatorPolicy) bool {
		return !op.Spec.IsEnforced()
	})
	if len(enforced) < 2 {
		return nil
	}
	for _, op := range enforced {
		if len(op.Status.OverlappingPolicies) == 0 || op.Status.Compliant == policyv1beta2.Compliant {
			return fmt.Errorf("policy %s overlaps with another one: it is %s and names %v",
				op.Name, op.Status.Compliant, op.Status.OverlappingPolicies)
		}
	}
	return nil
}

// listed is a plan as opgate pending lists it.
type listed struct {
	Name, Decision string
	Reasons        []struct{ Message string }
}

// checkAnswers compares what the webhook, the plugin, events and the status answer about the plans that wait.
func (w *walk) checkAnswers(ctx context.Context, o *observed) error {
	current := slices.DeleteFunc(slices.Clone(o.plans), func(p unstructured.Unstructured) bool {
		return !slices.ContainsFunc(o.subs, func(s unstructured.Unstructured) bool {
			name, _, _ := unstructured.NestedString(s.Object, "status", "installPlanRef", "name")
			return name == p.GetName()
		})
	})
	if len(current) == 0 {
		return nil
	}
	got, err := w.RunPlugin(ctx, "", cluster.Command{Args: []string{"opgate", "pending", "-n", o.name, "-o", "json"}})
	if err != nil {
		return err
	}
	var list struct{ Items []listed }
	if err := json.Unmarshal([]byte(got.Stdout), &list); err != nil {
		return fmt.Errorf("opgate pending: %w: %s%s", err, got.Stdout, got.Stderr)
	}
	plans := list.Items
	for _, p := range current {
		i := slices.IndexFunc(plans, func(q listed) bool { return q.Name == p.GetName() })
		if i < 0 {
			return fmt.Errorf("opgate pending does not list plan %s", p.GetName())
		}
		var messages []string
		for _, r := range plans[i].Reasons {
			messages = append(messages, r.Message)
		}
		if err := w.checkAnswersOf(ctx, o, p, plans[i].Decision == "Allow", messages); err != nil {
			return fmt.Errorf("%w\nopgate pending: %s %q", err, plans[i].Decision, messages)
		}
	}
	return nil
}

// checkAnswersOf compares the other answers about a plan with those of opgate pending.
func (w *walk) checkAnswersOf(ctx context.Context, o *observed, p unstructured.Unstructured, allowed bool,
	messages []string) error {
	answer, err := w.dryRun(ctx, p, true)
	if err != nil {
		return err
	}
	why, err := w.RunPlugin(ctx, "", cluster.Command{
		Args: []string{"opgate", "why", "installplan", o.name + "/" + p.GetName()}})
	if err != nil {
		return err
	}
	if answer.OK() != allowed || (why.ExitCode == 0) != allowed {
		return fmt.Errorf("plan %s: the webhook answers %s, opgate why %q", p.GetName(), answer, why.Stdout)
	}
	if allowed {
		return nil
	}
	events, err := w.Clients[cluster.Admin].Resource(schemaResource{Version: "v1", Resource: "events"}).Namespace(
		o.name).
		List(ctx, metav1.ListOptions{FieldSelector: "reason=Held,involvedObject.name=" + p.GetName()})
	if err != nil {
		return err
	}
	if len(events.Items) == 0 && len(w.state.enforced(o.second)) > 0 {
		return fmt.Errorf("plan %s: there is no event Held", p.GetName())
	}
	for _, message := range messages {
		if strings.Contains(answer.Message, harness.DeniedBy) && !strings.Contains(answer.Message, message) {
			return fmt.Errorf("plan %s: the webhook does not answer %q but %s", p.GetName(), message, answer.Message)
		}
		if !strings.Contains(why.Stdout, message) {
			return fmt.Errorf("plan %s: opgate why does not answer %q but %s", p.GetName(), message, why.Stdout)
		}
		for _, op := range o.status {
			if op.Spec.IsEnforced() && op.Spec.ComplianceType == musthave && len(o.status) == 1 &&
				!strings.Contains(scripttest.Conditions(op), message) {
				return fmt.Errorf("plan %s: the status of policy %s does not report %q", p.GetName(), op.Name, message)
			}
		}
	}
	return nil
}

// checkSubscription wants the user's Subscription to exist, unless a policy may have removed it: from then on it does
// not count.
func (w *walk) checkSubscription(ctx context.Context) error {
	key := subscription + "/" + packageName
	if w.state[key] == nil {
		return nil
	}
	names, err := w.Names(ctx, harness.Subscriptions, w.namespaces[0])
	switch {
	case err != nil || slices.Contains(names, packageName):
		return err
	case !w.removing:
		return errors.New("the Subscription of the user is gone")
	}
	w.state = w.state.after(action{verb: remove, kind: subscription, name: packageName})
	w.record(w.state)
	return nil
}

// checkEnd wants the user's Subscription to be as it was written, now that no policy exists.
func (w *walk) checkEnd(ctx context.Context) error {
	if err := w.checkSubscription(ctx); err != nil {
		return err
	}
	wrote := w.state[subscription+"/"+packageName]
	if wrote == nil {
		return nil
	}
	s, err := w.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(w.namespaces[0]).
		Get(ctx, packageName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, name := range []string{"installPlanApproval", "channel", "startingCSV"} {
		want := wrote[name]
		if name == "installPlanApproval" {
			want = wrote.wish()
		}
		got, _, _ := unstructured.NestedString(s.Object, "spec", name)
		if got != want && (name == "installPlanApproval" && !w.unsure(wrote) || !w.adopted) {
			return fmt.Errorf("the Subscription has %s %q, its user wrote %q", name, got, want)
		}
	}
	for name := range s.GetAnnotations() {
		if strings.HasPrefix(name, "opgate.io/requested") && wrote["requested"] == "" {
			return fmt.Errorf("the Subscription still has annotation %s", name)
		}
	}
	return nil
}
