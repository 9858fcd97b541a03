package faults

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// Resources that faults change.
var (
	leases       = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterroles"}
	roles    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	mutating = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations",
	}
)

func (p *play) of(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return p.Clients[cluster.Admin].Resource(resource)
	}
	return p.Clients[cluster.Admin].Resource(resource).Namespace(namespace)
}

// merge merges a patch into an object.
func merge(ctx context.Context, to dynamic.ResourceInterface, name, format string, args ...any) error {
	_, err := to.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	return err
}

// lease changes the Lease of the loop.
func (p *play) lease(ctx context.Context, args []string) error {
	const name = "opgate-loop"
	opgate, err := p.InPlaceOfOpgate()
	if err != nil {
		return err
	}
	lease := opgate.Resource(leases).Namespace(cluster.OpgateNamespace)
	const format = `{"spec":{"holderIdentity":%q,"leaseDurationSeconds":%d,"renewTime":%q}}`
	set := func(holder string, seconds int, renewed time.Time) error {
		return merge(ctx, lease, name, format, holder, seconds, renewed.UTC().Format(metav1.RFC3339Micro))
	}
	switch args[0] {
	case "steal":
		return set("thief", 1, time.Now())
	case "long":
		return set("thief", 100000, time.Now())
	case "future":
		return set("thief", 15, time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC))
	case "release":
		return set("", 1, time.Now())
	case "empty":
		return merge(ctx, lease, name, `{"spec":null}`)
	case "delete":
		return lease.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return fmt.Errorf("unknown change %q", args[0])
}

// secret deletes a Secret, or replaces all that is in it.
func (p *play) secret(ctx context.Context, args []string) error {
	of, name := p.of(secrets, cluster.OpgateNamespace), args[1]
	if args[0] == "delete" {
		return of.Delete(ctx, name, metav1.DeleteOptions{})
	}
	stored, err := of.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	data, _, _ := unstructured.NestedStringMap(stored.Object, "data")
	garbage := base64.StdEncoding.EncodeToString([]byte("garbage of forty bytes, which is no key."))
	for key := range data {
		data[key] = garbage
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return err
	}
	return merge(ctx, of, name, "%s", patch)
}

// rights takes the rules of roles away.
func (p *play) rights(ctx context.Context, names []string) error {
	for _, name := range names {
		of := p.of(clusterRoles, "")
		if name == "opgate" {
			of = p.of(roles, cluster.OpgateNamespace)
		}
		stored, err := of.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		rules, err := json.Marshal(stored.Object["rules"])
		if err != nil {
			return err
		}
		p.atEnd(func(ctx context.Context) error { return merge(ctx, of, name, `{"rules":%s}`, rules) })
		if err := merge(ctx, of, name, `{"rules":[]}`); err != nil {
			return err
		}
	}
	return nil
}

// webhooks damages both webhook configurations. A deleted one comes back by helm.
func (p *play) webhooks(ctx context.Context, args []string) error {
	configurations := []dynamic.ResourceInterface{p.of(mutating, ""), p.of(harness.ValidatingResource, "")}
	if args[0] == "delete" {
		p.atEnd(func(ctx context.Context) error { return p.helm(ctx, "--reuse-values") })
	}
	for _, of := range configurations {
		if args[0] == "delete" {
			if err := of.Delete(ctx, "opgate", metav1.DeleteOptions{}); err != nil {
				return err
			}
			continue
		}
		err := p.retry(ctx, func(ctx context.Context) error {
			stored, err := of.Get(ctx, "opgate", metav1.GetOptions{})
			if err != nil {
				return err
			}
			entries, _, _ := unstructured.NestedSlice(stored.Object, "webhooks")
			for _, entry := range entries {
				fields := entry.(map[string]any)
				if args[0] == "empty" {
					fields["rules"], fields["failurePolicy"] = []any{}, "Ignore"
				} else {
					unstructured.RemoveNestedField(fields, "clientConfig", "caBundle")
				}
			}
			stored.Object["webhooks"] = entries
			_, err = of.Update(ctx, stored, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	if args[0] == "empty" {
		p.atEnd(func(ctx context.Context) error { return p.helm(ctx, "--reuse-values") })
	}
	return nil
}

// helm upgrades the release to itself.
func (p *play) helm(ctx context.Context, values ...string) error {
	args := append([]string{"upgrade", "opgate", harness.ChartDir, "--namespace", cluster.OpgateNamespace, "--wait",
		"--timeout", "24h"}, values...)
	result, err := p.Helm(ctx, args...)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("helm %v: %s%s", args, result.Stdout, result.Stderr)
	}
	return err
}

// certificates makes certificates short-lived, so that they and the CA are replaced again and again.
func (p *play) certificates(ctx context.Context, _ []string) error {
	p.atEnd(func(ctx context.Context) error { return p.helm(ctx, "--reset-values", "--set", quick()) })
	return p.helm(ctx, "--reuse-values", "--set",
		"certificates.selfManaged.caLifetime=40s,certificates.selfManaged.certificateLifetime=10s")
}

// backstop deletes the admission policy again and again, each time when it is back.
func (p *play) backstop(ctx context.Context, args []string) error {
	times, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	last := types.UID("")
	for range times {
		if err := p.retry(ctx, func(ctx context.Context) error {
			now, err := p.of(backstops, "").Get(ctx, "opgate-backstop", metav1.GetOptions{})
			if err == nil && now.GetUID() == last {
				err = errors.New("the backstop is the same")
			}
			if err != nil {
				return err
			}
			last = now.GetUID()
			return p.of(backstops, "").Delete(ctx, "opgate-backstop", metav1.DeleteOptions{})
		}); err != nil {
			return err
		}
	}
	return nil
}

// conversion makes the API server serve policies in one version, which it does not convert.
func (p *play) conversion(ctx context.Context, _ []string) error {
	const name = "operatorpolicies.policy.open-cluster-management.io"
	of := p.of(harness.DefinitionResource, "")
	stored, err := of.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	before, _, _ := unstructured.NestedMap(stored.Object, "spec")
	p.atEnd(func(ctx context.Context) error {
		return p.retry(ctx, func(ctx context.Context) error {
			now, err := of.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Object["spec"] = before
			_, err = of.Update(ctx, now, metav1.UpdateOptions{})
			return err
		})
	})
	return p.retry(ctx, func(ctx context.Context) error {
		now, err := of.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		spec := now.Object["spec"].(map[string]any)
		spec["conversion"] = map[string]any{"strategy": "None"}
		for _, version := range spec["versions"].([]any) {
			if served := version.(map[string]any); served["name"] == harness.Earlier {
				served["served"] = false
			}
		}
		_, err = of.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// definition deletes definitions, and with them all objects of their kinds, and creates them again at the end.
func (p *play) definition(ctx context.Context, args []string) error {
	of := p.of(harness.DefinitionResource, "")
	for _, name := range args[1:] {
		stored, err := of.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		again := stored.DeepCopy()
		again.Object["metadata"] = map[string]any{"name": name,
			"annotations": stored.Object["metadata"].(map[string]any)["annotations"]}
		delete(again.Object, "status")
		p.atEnd(func(ctx context.Context) error {
			return p.retry(ctx, func(ctx context.Context) error {
				now, err := of.Get(ctx, name, metav1.GetOptions{})
				if err == nil && now.GetDeletionTimestamp() == nil {
					return nil
				}
				if apierrors.IsNotFound(err) {
					_, err = of.Create(ctx, again, metav1.CreateOptions{})
				} else if err == nil {
					err = errors.New("it is being deleted")
				}
				return err
			})
		})
		if err := of.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}
