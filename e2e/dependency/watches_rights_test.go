package dependency

import (
	"context"
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/rules/dependency"
)

func watchOneName(t *testing.T, c *cluster.Cluster) {
	guest := newGuest(t, c, "guest-name")
	w := watchAs(t, c, guest.config, watches.Options{})
	guest.grant(t, "widgets", "shop", "always")
	mine, others := watchedTarget("Widget", "shop", "always"), watchedTarget("Widget", "shop", "another")
	w.Set(waiter, []watches.Target{mine})
	w.untilSeen(t, waiter, mine, "", dependency.Compliant)
	w.Set(another, []watches.Target{mine, others})
	w.untilSeen(t, another, others, dependency.Forbidden, "")
}

func watchListOnly(t *testing.T, c *cluster.Cluster) {
	guest := newGuest(t, c, "guest-list")
	w := watchAs(t, c, guest.config, watches.Options{Backoff: time.Millisecond})
	guest.bind(t, watchedGroup, "widgets", "shop", "", "list")
	target := watchedTarget("Widget", "shop", "always")
	w.Set(waiter, []watches.Target{target})
	w.untilSeen(t, waiter, target, dependency.Forbidden, "")
	tried := func(least int) {
		harness.Eventually(t, "it is tried again", func(context.Context) error {
			if n := len(w.requests.of("/widgets")); n < least { // two lists and two watches at a time
				return fmt.Errorf("only %d requests", n)
			}
			return nil
		})
	}
	tried(8) // the state is seen before its owner is notified of it
	notified := w.toldTimes(waiter)
	tried(16)
	if n := w.toldTimes(waiter) - notified; n > 0 || w.Observe(target).Reason != dependency.Forbidden {
		t.Errorf("told %d times more, and it is %+v; want it Forbidden for good", n, w.Observe(target))
	}
}

// guest may read definitions, and what is granted to it.
type guest struct {
	name   string
	config *rest.Config
	admin  kubernetes.Interface
}

func newGuest(t *testing.T, c *cluster.Cluster, name string) *guest {
	t.Helper()
	config, err := c.Credentials(name)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := kubernetes.NewForConfig(reader(t, c))
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{name: name, config: config, admin: admin}
	g.bind(t, "apiextensions.k8s.io", "customresourcedefinitions", "", "", "list", "watch")
	return g
}

// grant lets the guest list and watch a resource, in one namespace and of one name or in all and of any.
func (g *guest) grant(t *testing.T, resource, namespace, name string) {
	t.Helper()
	g.bind(t, watchedGroup, resource, namespace, name, "list", "watch")
}

// bind grants a right and waits until the guest has it.
func (g *guest) bind(t *testing.T, group, resource, namespace, name string, verbs ...string) {
	t.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	if name != "" {
		rule.ResourceNames = []string{name}
	}
	meta := metav1.ObjectMeta{Name: g.name + "-" + resource}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: g.name}}
	_, err := g.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: meta,
		Rules:      []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{})
	if err == nil && namespace == "" {
		_, err = g.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    role,
			Subjects:   subjects,
		}, metav1.CreateOptions{})
	} else if err == nil {
		_, err = g.admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    role,
			Subjects:   subjects,
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	allowed(t, g.config, authorizationv1.ResourceAttributes{
		Group:     group,
		Resource:  resource,
		Namespace: namespace,
		Name:      name,
		Verb:      verbs[0],
	})
}
