package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// writers is how many clients write policies at the same time.
const writers = 4

// newExtra makes the extra namespace, with an OperatorGroup.
func (p *play) newExtra(ctx context.Context) error {
	p.extra = "shop-" + rand.String(8)
	if err := p.CreateTenantNamespace(ctx, p.extra); err != nil {
		return err
	}
	_, err := p.Create(ctx, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %[1]s, namespace: %[1]s}
spec: {targetNamespaces: [%[1]s]}
`, p.extra))
	return err
}

// attackExtra makes the attacker attack the extra namespace.
func (p *play) attackExtra() {
	p.watcher.mu.Lock()
	defer p.watcher.mu.Unlock()
	p.strict = true
}

// policies changes many policies, or one many times.
func (p *play) policies(ctx context.Context, args []string) error {
	if args[0] == "unreadable" {
		return p.unreadable(ctx)
	}
	times, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if args[0] == "many" {
		return p.many(ctx, times)
	}
	if err := p.storeExtra(ctx); err != nil {
		return err
	}
	of := p.of(harness.OperatorPolicies, cluster.PolicyNamespace)
	again := policy(p.extra)
	for range times {
		if err := of.Delete(ctx, again.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := p.retry(ctx, func(ctx context.Context) error {
			_, err := of.Create(ctx, again, metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// storeExtra stores the policy for the extra namespace, and waits until the later version waits there.
func (p *play) storeExtra(ctx context.Context) error {
	if err := p.newExtra(ctx); err != nil {
		return err
	}
	if _, err := p.Create(ctx, policy(p.extra)); err != nil {
		return err
	}
	return p.planWaits(ctx, p.extra)
}

// many creates and deletes policies, several at once.
func (p *play) many(ctx context.Context, n int) error {
	of := p.of(harness.OperatorPolicies, cluster.PolicyNamespace)
	var writing sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		writing.Go(func() {
			for i := w; i < n; i += writers {
				one := policy(fmt.Sprintf("many-%d", i))
				_ = unstructured.SetNestedField(one.Object, "mayhave", "spec", "complianceType")
				_, err := of.Create(ctx, one, metav1.CreateOptions{})
				if err == nil {
					err = of.Delete(ctx, one.GetName(), metav1.DeleteOptions{})
				}
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	writing.Wait()
	return errors.Join(errs...)
}

// unreadable makes the policy for the extra namespace one that does not say what it is for, as a restored backup can.
func (p *play) unreadable(ctx context.Context) error {
	if err := p.storeExtra(ctx); err != nil {
		return err
	}
	p.attackExtra()
	var before []byte
	name := policy(p.extra).GetName()
	p.atEnd(func(ctx context.Context) error {
		return p.EditStored(ctx, cluster.PolicyNamespace, name, func([]byte) ([]byte, error) { return before, nil })
	})
	err := p.EditStored(ctx, cluster.PolicyNamespace, name, func(stored []byte) ([]byte, error) {
		before = stored
		var object map[string]any
		if err := json.Unmarshal(stored, &object); err != nil {
			return nil, err
		}
		object["spec"].(map[string]any)["subscription"] = "x"
		return json.Marshal(object)
	})
	if err != nil {
		return err
	}
	// what is written past the API server gets to its watches all the same
	return p.retry(ctx, func(ctx context.Context) error {
		stored, err := p.of(harness.OperatorPolicies, cluster.PolicyNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := stored.Object["spec"].(map[string]any)["subscription"]; got != "x" {
			return fmt.Errorf("spec.subscription is %v", got)
		}
		return nil
	})
}

// later is the policy that allows a version, and installs nothing by itself.
func (p *play) later(versions ...any) *unstructured.Unstructured {
	u := policy(p.extra)
	spec := u.Object["spec"].(map[string]any)
	spec["complianceType"], spec["versions"] = "mayhave", versions
	delete(spec, "operatorGroup")
	return u
}

// allow stores a policy that allows the later version in the extra namespace, and waits until it is in force.
func (p *play) allow(ctx context.Context, _ []string) error {
	if err := p.newExtra(ctx); err != nil {
		return err
	}
	if _, err := p.Create(ctx, p.later(harness.Etcd4)); err != nil {
		return err
	}
	return p.retry(ctx, func(ctx context.Context) error {
		_, err := p.status(ctx, p.extra)
		return err
	})
}

// forbid makes that policy forbid the later version.
func (p *play) forbid(ctx context.Context, _ []string) error {
	err := p.retry(ctx, func(ctx context.Context) error {
		return merge(ctx, p.of(harness.OperatorPolicies, cluster.PolicyNamespace), policy(p.extra).GetName(),
			`{"spec":{"versions":[%q]}}`, harness.Etcd2)
	})
	return err
}

// subscribe subscribes to the package, as the tenant. OLM plans the latest version.
func (p *play) subscribe(ctx context.Context, _ []string) error {
	spec, _, _ := unstructured.NestedMap(policy(p.extra).Object, "spec", "subscription")
	delete(spec, "namespace")
	spec["installPlanApproval"] = "Automatic"
	s := harness.Subscription(p.extra, "etcd", olm.Catalog, "Automatic")
	s.Object["spec"] = spec
	err := p.retry(ctx, func(ctx context.Context) error {
		_, err := p.Clients[cluster.Tenant].Of(s).Create(ctx, s, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.planWaits(ctx, p.extra)
}
