package catalogs

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
)

// maxRecords bounds the text of all records, in bytes, below what the API server accepts.
const maxRecords = 900 << 10

// records is the ConfigMap with the records of catalogs.
type records struct {
	reader    client.Reader
	writer    apply.Writer
	namespace string
}

// add records what an image of a catalog offers. It returns what the image changed; nil if the record says so already.
// A record that cannot be read is not replaced: a jump would be forgotten.
func (r *records) add(
	ctx context.Context, of olm.Catalog, digest string, offered catalog.Offered, on catalog.Platform,
) (*catalog.Poll, error) {
	key := catalog.RecordKey(of)
	if key == "" {
		return nil, errors.New("the names of the catalog are too long for a record")
	}
	stored := &corev1.ConfigMap{}
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: catalog.RecordsName}, stored)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", r.namespace, catalog.RecordsName, err)
	}
	var before *catalog.Record
	if text := stored.Data[key]; text != "" {
		if before, err = catalog.DecodeRecord(text); err != nil {
			return nil, err
		}
	}
	text, changed, err := before.Next(of, digest, offered, on)
	if err != nil || !changed {
		return nil, err
	}
	if stored.Data == nil {
		stored.Data = map[string]string{}
	}
	stored.Data[key] = text
	size := 0
	for _, one := range stored.Data {
		size += len(one)
	}
	if size > maxRecords {
		return nil, fmt.Errorf("the records of all catalogs would have %d bytes, more than %d; delete keys of ConfigMap %s/%s that are not needed",
			size, maxRecords, r.namespace, catalog.RecordsName)
	}
	if stored.ResourceVersion == "" { // there is none yet
		stored.ObjectMeta = metav1.ObjectMeta{Namespace: r.namespace, Name: catalog.RecordsName,
			Labels: map[string]string{metakey.ManagedBy: owned.ManagedBy}}
	}
	if err := r.writer.Put(ctx, stored); err != nil { // after a conflict everything is read again
		return nil, fmt.Errorf("write ConfigMap %s/%s: %w", r.namespace, catalog.RecordsName, err)
	}
	after, err := catalog.DecodeRecord(text)
	if err != nil {
		return nil, err
	}
	return &after.Polls[len(after.Polls)-1], nil
}
