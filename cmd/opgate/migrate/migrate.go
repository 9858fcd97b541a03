package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

const (
	// pageSize is how many objects are listed at once. Each may be as large as etcd accepts, and takes several times
	// that (threat G36).
	pageSize = 20
	// progressEvery is the number of objects between two lines of progress.
	progressEvery = 100
	definition    = policyv1beta2.Resource + "." + policyv1beta2.Group
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	policies = policyv1beta2.GroupVersion.WithResource(policyv1beta2.Resource)
)

// migration rewrites all OperatorPolicies of a cluster.
type migration struct {
	client dynamic.Interface
	out    io.Writer
	dryRun bool

	seen, written, refused int
}

func (m *migration) run(ctx context.Context) error {
	stored, err := m.storedVersions(ctx)
	if err != nil {
		return err
	}
	if slices.Equal(stored, []string{policyv1beta2.Version}) {
		fmt.Fprintf(m.out, "nothing to do: every OperatorPolicy is stored in %s\n", policyv1beta2.Version)
		return nil
	}
	fmt.Fprintf(m.out, "OperatorPolicies may be stored in %s; writing each as %s\n", strings.Join(stored, ", "),
		policyv1beta2.Version)
	if err := m.rewriteAll(ctx); err != nil {
		return err
	}
	if m.dryRun {
		fmt.Fprintf(m.out, "%d OperatorPolicies would be written; nothing was changed\n", m.seen)
		return nil
	}
	fmt.Fprintf(m.out, "%d OperatorPolicies: %d rewritten, %d were stored in %s already\n", m.seen, m.written,
		m.seen-m.written-m.refused, policyv1beta2.Version)
	if m.refused > 0 {
		return fmt.Errorf("%d OperatorPolicies failed, so status.storedVersions stays %s", m.refused,
			strings.Join(stored, ", "))
	}
	if err := m.trim(ctx); err != nil {
		return err
	}
	fmt.Fprintf(m.out, "status.storedVersions of %s is now %s\n", definition, policyv1beta2.Version)
	return nil
}

// storedVersions are those in which objects may still be stored.
func (m *migration) storedVersions(ctx context.Context) ([]string, error) {
	crd, err := m.client.Resource(definitions).Get(ctx, definition, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the CustomResourceDefinition %s: %w", definition, err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return nil, fmt.Errorf("read the CustomResourceDefinition %s: %w", definition, err)
	}
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true && v["name"] != policyv1beta2.Version {
			return nil, fmt.Errorf("the storage version of %s is %v; install the CustomResourceDefinition of this release first", definition, v["name"])
		}
	}
	stored, _, err := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	if err != nil {
		return nil, fmt.Errorf("read the CustomResourceDefinition %s: %w", definition, err)
	}
	return stored, nil
}

// rewriteAll rewrites all objects, page by page. Those that are created in the meantime are stored in the
// present version anyway.
func (m *migration) rewriteAll(ctx context.Context) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := m.client.Resource(policies).List(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			return fmt.Errorf("list OperatorPolicies: the list took too long and has expired; start again, what is done stays done: %w", err)
		}
		if ctx.Err() != nil {
			return m.stopped(ctx)
		}
		if err != nil {
			return fmt.Errorf("list OperatorPolicies (is the conversion webhook running?): %w", err)
		}
		for i := range page.Items {
			err := m.one(ctx, &page.Items[i])
			if ctx.Err() != nil {
				return m.stopped(ctx)
			}
			if err != nil {
				return err
			}
			m.seen++
			if m.seen%progressEvery == 0 && !m.dryRun {
				total := int64(m.seen + len(page.Items) - i - 1)
				if n := page.GetRemainingItemCount(); n != nil {
					total += *n
				}
				fmt.Fprintf(m.out, "%d of %d OperatorPolicies\n", m.seen, total)
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// one writes an object unchanged. A concurrent write by another client stores it as well. It returns an error only if
// writing other objects would fail too; a refusal of this object is counted instead.
func (m *migration) one(ctx context.Context, op *unstructured.Unstructured) error {
	if m.dryRun {
		fmt.Fprintf(m.out, "would write %s/%s\n", op.GetNamespace(), op.GetName())
		return nil
	}
	objects := m.client.Resource(policies).Namespace(op.GetNamespace())
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := objects.Get(ctx, op.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		after, err := objects.Update(ctx, now, metav1.UpdateOptions{FieldManager: "opgate-migrate"})
		if err == nil && after.GetResourceVersion() != now.GetResourceVersion() {
			m.written++
		}
		return err
	})
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError:
		fmt.Fprintf(m.out, "failed: OperatorPolicy %s/%s: %s\n", op.GetNamespace(), op.GetName(), err)
		m.refused++
		return nil
	}
	return fmt.Errorf("OperatorPolicy %s/%s is not migrated (is the conversion webhook running?); what is done stays done: %w", op.GetNamespace(), op.GetName(), err)
}

// stopped returns the error of an interruption.
func (m *migration) stopped(ctx context.Context) error {
	return fmt.Errorf("stopped after %d OperatorPolicies; start again, what is done stays done: %w", m.seen, ctx.Err())
}

// trim records that nothing is stored in another version any more.
func (m *migration) trim(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd, err := m.client.Resource(definitions).Get(ctx, definition, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the CustomResourceDefinition %s: %w", definition, err)
		}
		if err := unstructured.SetNestedStringSlice(crd.Object, []string{policyv1beta2.Version}, "status",
			"storedVersions"); err != nil {
			return fmt.Errorf("set status.storedVersions: %w", err)
		}
		if _, err := m.client.Resource(definitions).UpdateStatus(ctx, crd, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("write status.storedVersions of %s: %w", definition, err)
		}
		return nil
	})
}
