package stream

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"
)

// Selection restricts a list; the API server evaluates it. The zero value selects all objects.
type Selection struct {
	// Namespace is empty for all namespaces, and for a cluster-scoped resource.
	Namespace string
	// Labels and Fields are selectors.
	Labels, Fields string
}

// List returns the objects of a resource, for commands that look at a cluster once. It reads them in pages. If the
// version of the first page expires meanwhile, it reads all again in one.
func (c *Client) List(
	ctx context.Context, resource schema.GroupVersionResource, from Selection, decode Decode,
) ([]runtime.Object, error) {
	s := &source{client: c, path: path(resource, from.Namespace), selector: from.Labels, fields: from.Fields,
		decode: decode}
	list, _, err := pager.New(s.list).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("read a list: %w", err)
	}
	return objects, nil
}

// Each lists objects of a resource, once and not in pages, and calls do with the JSON of each, which is valid only
// until that returns. A response of more than limit bytes is an error.
func (c *Client) Each(
	ctx context.Context, resource schema.GroupVersionResource, from Selection, limit int64, do func(raw []byte) error,
) error {
	s := &source{client: c, path: path(resource, from.Namespace), selector: from.Labels, fields: from.Fields,
		limit:  limit,
		decode: func(raw []byte) (runtime.Object, error) { return nil, do(raw) }}
	_, err := s.list(ctx, metav1.ListOptions{})
	return err
}
