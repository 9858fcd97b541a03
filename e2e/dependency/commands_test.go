package dependency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// commands are those of scripts about ordering; TestDependency states what they are for.
func (e *env) commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := e.Commands()
	for name, command := range map[string]func(*testscript.TestScript, bool, []string){
		"fill":      e.cmdFill,
		"kubectl":   e.cmdKubectlHere,
		"becomes":   e.cmdBecomes,
		"writes":    e.cmdWrites,
		"merge":     e.cmdMerge,
		"delete":    e.cmdDelete,
		"is":        e.cmdIs,
		"template":  e.cmdTemplate,
		"once":      e.cmdOnce,
		"waits":     e.cmdWaits,
		"set":       e.cmdSet,
		"says":      e.cmdSays,
		"tells":     e.cmdTells,
		"remember":  e.cmdRemember,
		"same":      e.cmdSame,
		"untouched": e.cmdUntouched,
		"known":     e.cmdKnown,
		"prints":    e.cmdPrints,
		"grant":     e.cmdGrant,
	} {
		all[name] = command
	}
	return all
}

func (e *env) cmdFill(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(scripttest.Filled(ts, ts.ReadFile(name))), 0o600))
	}
}

// cmdKubectlHere is kubectl in the directory of the script.
func (e *env) cmdKubectlHere(ts *testscript.TestScript, neg bool, args []string) {
	result, err := e.Run(context.Background(), cluster.Command{User: cluster.Admin, Args: args, Dir: ts.MkAbs(".")})
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), result.Stdout)
	fmt.Fprint(ts.Stderr(), result.Stderr)
	if (result.ExitCode != 0) != neg {
		ts.Fatalf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), result.ExitCode, result.Stderr)
	}
}

// cmdBecomes writes the status of an object as a policy controller does: with the generation that it has evaluated.
func (e *env) cmdBecomes(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 3, 3, "becomes KIND NAME STATE")
	e.Until(ts, false, func(ctx context.Context) error {
		u, err := e.Player.Get(ctx, ts, args[0], args[1])
		if err != nil {
			return err
		}
		return e.evaluated(ctx, u, args[2])
	})
}

// evaluated writes a state, unless the object has changed since it was read.
func (e *env) evaluated(ctx context.Context, u *unstructured.Unstructured, state string) error {
	if err := unstructured.SetNestedField(u.Object, state, "status", "compliant"); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(u.Object, u.GetGeneration(), "status", "observedGeneration"); err != nil {
		return err
	}
	return e.Admin.Status().Update(ctx, u)
}

func (e *env) cmdWrites(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 3, 3, "writes KIND NAME JSON")
	e.Until(ts, false, func(ctx context.Context) error {
		u, err := e.Player.Get(ctx, ts, args[0], args[1])
		if err != nil {
			return err
		}
		return e.Admin.Status().Patch(ctx, u, crclient.RawPatch("application/merge-patch+json",
			[]byte(`{"status":`+args[2]+`}`)))
	})
}

// cmdMerge and cmdDelete do not run kubectl, which takes more time than all else that a script does.
func (e *env) cmdMerge(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 3, 3, "merge KIND NAME JSON")
	u, err := e.Player.Get(context.Background(), ts, args[0], args[1])
	ts.Check(err)
	ts.Check(e.Admin.Patch(context.Background(), u, crclient.RawPatch("application/merge-patch+json", []byte(args[2]))))
}

func (e *env) cmdDelete(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 2, 2, "delete KIND NAME")
	u, err := e.Player.Get(context.Background(), ts, args[0], args[1])
	ts.Check(err)
	ts.Check(e.Admin.Delete(context.Background(), u))
}

// policy reads a Policy of $NS whose newest generation was evaluated.
func (e *env) policy(ctx context.Context, namespace, name string) (*policyv1.Policy, error) {
	p := &policyv1.Policy{}
	if err := e.Admin.Get(ctx, crclient.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
		return nil, err
	}
	if p.Status.ObservedGeneration != p.Generation {
		return nil, fmt.Errorf("policy %s: generation %d was not evaluated yet", name, p.Generation)
	}
	return p, nil
}

// rendered is what is to be read of a Policy when a script fails.
func rendered(p *policyv1.Policy) string {
	text, err := yaml.Marshal(p.Status)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func stateOf(word string) policyv1.ComplianceState {
	if word == "-" {
		return ""
	}
	return policyv1.ComplianceState(word)
}

func (e *env) cmdIs(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 2, 2, "is POLICY STATE")
	e.Until(ts, neg, func(ctx context.Context) error {
		p, err := e.policy(ctx, ts.Getenv("NS"), args[0])
		if err != nil {
			return err
		}
		if p.Status.ComplianceState != stateOf(args[1]) {
			return fmt.Errorf("%s is %q, want %s:\n%s", args[0], p.Status.ComplianceState, args[1], rendered(p))
		}
		return nil
	})
}

// details are what a Policy reports of a template.
func details(p *policyv1.Policy, template string) *policyv1.DetailsPerTemplate {
	i := slices.IndexFunc(p.Status.Details,
		func(d *policyv1.DetailsPerTemplate) bool { return d.TemplateMeta.Name == template })
	if i < 0 {
		return nil
	}
	return p.Status.Details[i]
}

func (e *env) cmdTemplate(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 3, 4, "template POLICY NAME STATE [REGEXP]")
	pattern, err := regexp.Compile(append(args, "")[3])
	ts.Check(err)
	e.Until(ts, neg, func(ctx context.Context) error {
		p, err := e.policy(ctx, ts.Getenv("NS"), args[0])
		if err != nil {
			return err
		}
		d := details(p, args[1])
		if d == nil || d.ComplianceState != stateOf(args[2]) || len(args) == 4 &&
			(len(d.History) == 0 || !pattern.MatchString(d.History[0].Message)) {
			return fmt.Errorf("%s does not say that %s, but\n%s", args[0], strings.Join(args[1:], " "), rendered(p))
		}
		return nil
	})
}

func (e *env) cmdOnce(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 3, 3, "once POLICY NAME REGEXP")
	pattern, err := regexp.Compile(args[2])
	ts.Check(err)
	e.Until(ts, neg, func(ctx context.Context) error {
		p, err := e.policy(ctx, ts.Getenv("NS"), args[0])
		if err != nil {
			return err
		}
		found := 0
		if d := details(p, args[1]); d != nil {
			for _, entry := range d.History {
				if pattern.MatchString(entry.Message) {
					found++
				}
			}
		}
		if found != 1 {
			return fmt.Errorf("%d messages match:\n%s", found, rendered(p))
		}
		return nil
	})
}

func (e *env) cmdWaits(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 2, 5, "waits POLICY N [DEPENDENCY REASON [REGEXP]]")
	pattern, err := regexp.Compile(append(args, "", "", "")[4])
	ts.Check(err)
	e.Until(ts, neg, func(ctx context.Context) error {
		p, err := e.policy(ctx, ts.Getenv("NS"), args[0])
		if err != nil {
			return err
		}
		ok := fmt.Sprint(p.Status.PendingDependencies) == args[1] &&
			(len(args) == 2 || slices.ContainsFunc(p.Status.Dependencies,
				func(d policyv1.DependencyStatus) bool {
					name := d.Kind + " " + strings.TrimPrefix(d.Namespace+"/"+d.Name, "/")
					return name == args[2] && d.Reason == args[3] && pattern.MatchString(d.Message)
				}))
		if !ok {
			return fmt.Errorf("%s does not wait for %s, but\n%s", args[0], strings.Join(args[1:], " "), rendered(p))
		}
		return nil
	})
}

func (e *env) cmdSet(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 3, 3, "set NAME STATE MESSAGE")
	e.Until(ts, neg, func(ctx context.Context) error {
		u, err := e.Player.Get(ctx, ts, "policyset", args[0])
		if err != nil {
			return err
		}
		state, _, _ := unstructured.NestedString(u.Object, "status", "compliant")
		message, _, _ := unstructured.NestedString(u.Object, "status", "statusMessage")
		observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		if state != string(stateOf(args[1])) || message != args[2] || observed != u.GetGeneration() {
			return fmt.Errorf("set %s is %q, %q at generation %d of %d, want %s", args[0], state, message, observed,
				u.GetGeneration(), strings.Join(args[1:], " "))
		}
		return nil
	})
}

func (e *env) cmdSays(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 5, 6, "says KIND NAME TYPE STATUS REASON [REGEXP]")
	pattern, err := regexp.Compile(append(args, "")[5])
	ts.Check(err)
	e.Until(ts, neg, func(ctx context.Context) error {
		u, err := e.Player.Get(ctx, ts, args[0], args[1])
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			message, _ := c["message"].(string)
			if c["type"] == args[2] && c["status"] == args[3] && (args[4] == "" || c["reason"] == args[4]) &&
				pattern.MatchString(message) {
				return nil
			}
		}
		return fmt.Errorf("%s %s has no condition %s, but %v", args[0], args[1], strings.Join(args[2:], " "),
			conditions)
	})
}

func (e *env) cmdTells(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 3, 3, "tells POLICY TYPE REGEXP")
	pattern, err := regexp.Compile(args[2])
	ts.Check(err)
	e.Until(ts, neg, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := e.Admin.List(ctx, events, crclient.InNamespace(ts.Getenv("NS"))); err != nil {
			return err
		}
		var messages []string
		for _, event := range events.Items {
			if event.InvolvedObject.Kind != "Policy" || event.InvolvedObject.Name != args[0] {
				continue
			}
			if event.Type == args[1] && event.Reason == "PolicyTemplateSync" && pattern.MatchString(event.Message) {
				return nil
			}
			messages = append(messages, strings.Join([]string{event.Type, event.Reason, event.Message}, " "))
		}
		return fmt.Errorf("no event matches, but there are\n%s", strings.Join(messages, "\n"))
	})
}

func (e *env) cmdRemember(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 2, 2, "remember KIND NAME")
	e.Until(ts, false, func(ctx context.Context) error {
		u, err := e.Player.Get(ctx, ts, args[0], args[1])
		if err == nil {
			e.mind.Store(ts.Getenv("ID")+strings.Join(args, "/"), u)
		}
		return err
	})
}

// remembered returns an object as it was and as it is.
func (e *env) remembered(ts *testscript.TestScript, args []string) (before, now *unstructured.Unstructured) {
	scripttest.NeedArgs(ts, args, 2, 2, "same|untouched KIND NAME")
	value, ok := e.mind.Load(ts.Getenv("ID") + strings.Join(args, "/"))
	if !ok {
		ts.Check(errors.New("it was not remembered"))
	}
	now, err := e.Player.Get(context.Background(), ts, args[0], args[1])
	ts.Check(err)
	return value.(*unstructured.Unstructured), now
}

func (e *env) cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	before, now := e.remembered(ts, args)
	if (before.GetUID() == now.GetUID()) == neg {
		ts.Fatalf("%s %s had UID %s and has %s", args[0], args[1], before.GetUID(), now.GetUID())
	}
}

func (e *env) cmdUntouched(ts *testscript.TestScript, neg bool, args []string) {
	before, now := e.remembered(ts, args)
	if (before.GetResourceVersion() == now.GetResourceVersion()) == neg {
		ts.Fatalf("%s %s was\n%v\nand is\n%v", args[0], args[1], before.Object, now.Object)
	}
}

func (e *env) cmdKnown(ts *testscript.TestScript, neg bool, args []string) {
	scripttest.NeedArgs(ts, args, 2, 2, "known KIND NAME")
	u, err := e.Player.Get(context.Background(), ts, args[0], args[1])
	ts.Check(err)
	e.Until(ts, false, func(ctx context.Context) error { return e.judgedBy(ctx, u) })
}

// judgedBy wants Opgate's snapshot to have an object, and all others of its kind that were written or deleted before.
// It does not wait for what others write at the same time.
func (e *env) judgedBy(ctx context.Context, u *unstructured.Unstructured) error {
	snapshot, err := e.Gate.Snapshot(ctx)
	if err != nil {
		return err
	}
	have := snapshot.ResourceVersions[harness.Resources[u.GetKind()].Resource]
	order, err := resourceversion.CompareResourceVersion(have, u.GetResourceVersion())
	if err == nil && order < 0 {
		err = fmt.Errorf("the snapshot has version %s, and %s %s is %s", have, u.GetKind(), u.GetName(),
			u.GetResourceVersion())
	}
	return err
}
