package scripttest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// untilPolicy is Until for a policy whose newest generation was evaluated.
func (p *Player) untilPolicy(
	ts *testscript.TestScript, neg bool, name string, check func(op *policyv1beta2.OperatorPolicy) error,
) {
	p.Until(ts, neg, func(ctx context.Context) error {
		op := &policyv1beta2.OperatorPolicy{}
		if err := p.Admin.Get(ctx, client.ObjectKey{Namespace: ts.Getenv("POLICIES"), Name: name}, op); err != nil {
			return err
		}
		if op.Status.ObservedGeneration != op.Generation {
			return fmt.Errorf("policy %s: generation %d was not evaluated yet", name, op.Generation)
		}
		return check(op)
	})
}

func (p *Player) cmdState(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "state POLICY STATE")
	p.untilPolicy(ts, neg, args[0], func(op *policyv1beta2.OperatorPolicy) error {
		if string(op.Status.Compliant) != args[1] {
			return fmt.Errorf("%s is %s, want %s:\n%s", args[0], op.Status.Compliant, args[1], Conditions(op))
		}
		return nil
	})
}

func (p *Player) cmdCondition(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 4, 5, "condition POLICY TYPE STATUS REASON [TEXT]")
	p.untilPolicy(ts, neg, args[0], func(op *policyv1beta2.OperatorPolicy) error {
		if !slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == args[1] && string(c.Status) == args[2] && c.Reason == args[3] &&
				(len(args) == 4 || strings.Contains(c.Message, args[4]))
		}) {
			return fmt.Errorf("%s has no condition %s, but\n%s", args[0], strings.Join(args[1:], " "), Conditions(op))
		}
		return nil
	})
}

func (p *Player) cmdRelated(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 5, 6, "related POLICY KIND NAME STATE REASON [uid|created]")
	p.untilPolicy(ts, neg, args[0], func(op *policyv1beta2.OperatorPolicy) error {
		var have []string
		for _, r := range op.Status.RelatedObjects {
			if r.Object.Kind != args[1] {
				continue
			}
			state := string(r.Compliant)
			if state == "" {
				state = "-"
			}
			properties := ""
			if r.Properties != nil && r.Properties.UID != "" {
				properties = "uid"
			}
			if r.Properties != nil && r.Properties.CreatedByPolicy != nil && *r.Properties.CreatedByPolicy {
				properties = "created"
			}
			have = append(have, fmt.Sprintf("  %s %s %q %s", r.Object.Metadata.Name, state, r.Reason, properties))
			if r.Object.Metadata.Name == args[2] && state == args[3] && r.Reason == args[4] &&
				(len(args) == 5 || properties == args[5]) {
				return nil
			}
		}
		return fmt.Errorf("%s relates to no %s, but to\n%s\n%s", args[0], strings.Join(args[1:], " "),
			strings.Join(have, "\n"), Conditions(op))
	})
}

func (p *Player) cmdRelatedCount(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 3, 3, "relatedcount POLICY KIND N")
	p.untilPolicy(ts, neg, args[0], func(op *policyv1beta2.OperatorPolicy) error {
		n := 0
		for _, r := range op.Status.RelatedObjects {
			if r.Object.Kind == args[1] {
				n++
			}
		}
		if fmt.Sprint(n) != args[2] {
			return fmt.Errorf("%s relates to %d objects of kind %s, want %s", args[0], n, args[1], args[2])
		}
		return nil
	})
}

func (p *Player) cmdEvent(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "event POLICY REGEXP")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	p.Until(ts, neg, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := p.Admin.List(ctx, events, client.InNamespace(ts.Getenv("POLICIES"))); err != nil {
			return err
		}
		var messages []string
		for _, event := range events.Items {
			if event.Related != nil && event.Related.Name == args[0] {
				if pattern.MatchString(event.Message) {
					return nil
				}
				messages = append(messages, event.Message)
			}
		}
		return fmt.Errorf("no event matches, but there are\n%s", strings.Join(messages, "\n"))
	})
}

func (p *Player) cmdHistory(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "history POLICY REGEXP")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	p.untilPolicy(ts, neg, args[0], func(op *policyv1beta2.OperatorPolicy) error {
		var messages []string
		for _, entry := range op.Status.History {
			if pattern.MatchString(entry.Message) {
				return nil
			}
			messages = append(messages, entry.Message)
		}
		return fmt.Errorf("no entry matches, but there are\n%s", strings.Join(messages, "\n"))
	})
}

func (p *Player) cmdGauge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) != 3 {
		ts.Fatalf("usage: gauge POLICY [SEVERITY VALUE]")
	}
	labels := fmt.Sprintf(`cluster_policy_governance_info{kind="OperatorPolicy",policy=%q,policy_namespace=%q,`,
		args[0], ts.Getenv("POLICIES"))
	var want []string
	if len(args) == 3 {
		want = []string{fmt.Sprintf("%sseverity=%q} %s", labels, args[1], args[2])}
	}
	p.Until(ts, false, func(ctx context.Context) error {
		page, err := p.Metrics(ctx)
		if err != nil {
			return err
		}
		var have []string
		for line := range strings.Lines(page) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, labels) {
				have = append(have, line)
			}
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("there is %q, want %q", have, want)
		}
		return nil
	})
}

func (p *Player) cmdObject(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 4, "object KIND NAME [NAMESPACE [TEXT]]")
	p.Until(ts, neg, func(ctx context.Context) error {
		u, err := p.Get(ctx, ts, args[0], args[1], args[2:]...)
		if err == nil && len(args) == 4 && !strings.Contains(fmt.Sprint(u.Object), args[3]) {
			return fmt.Errorf("%s %s has no %q: %v", args[0], args[1], args[3], u.Object)
		}
		return err
	})
}

func (p *Player) cmdField(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 4, 4, "field KIND NAME PATH VALUE")
	path := jsonpath.New("field").AllowMissingKeys(true)
	ts.Check(path.Parse("{" + args[2] + "}"))
	p.Until(ts, neg, func(ctx context.Context) error {
		u, err := p.Get(ctx, ts, args[0], args[1])
		if err != nil {
			return err
		}
		var value strings.Builder
		if err := path.Execute(&value, u.Object); err != nil {
			return err
		}
		if value.String() != args[3] {
			return fmt.Errorf("%s of %s %s is %q, want %q", args[2], args[0], args[1], value.String(), args[3])
		}
		return nil
	})
}

// cmdQuiet waits until a policy was not written for a while: pending reconciliations may still write it before that.
func (p *Player) cmdQuiet(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "quiet DURATION POLICY")
	if neg {
		ts.Fatalf("quiet cannot be negated")
	}
	duration, err := time.ParseDuration(args[0])
	ts.Check(err)
	duration = p.Scale(duration)
	op := &policyv1beta2.OperatorPolicy{}
	key := client.ObjectKey{Namespace: ts.Getenv("POLICIES"), Name: args[1]}
	var before *policyv1beta2.OperatorPolicy
	var since time.Time
	p.Until(ts, false, func(ctx context.Context) error {
		if err := p.Admin.Get(ctx, key, op); err != nil {
			return err
		}
		if before == nil || op.ResourceVersion != before.ResourceVersion {
			was := before
			before, since = op.DeepCopy(), p.Now()
			if was != nil {
				return fmt.Errorf("policy %s was written:\n%s", args[1], cmp.Diff(was.Status, op.Status))
			}
		}
		if rested := p.Now().Sub(since); rested < duration {
			return fmt.Errorf("policy %s was written %s ago", args[1], rested)
		}
		return nil
	})
}

// Conditions returns the conditions to print when a script fails.
func Conditions(op *policyv1beta2.OperatorPolicy) string {
	var b strings.Builder
	for _, c := range op.Status.Conditions {
		if c.Type != "Compliant" {
			fmt.Fprintf(&b, "  %s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return b.String()
}
