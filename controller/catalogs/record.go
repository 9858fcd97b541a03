package catalogs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
)

// maxRecords bounds the text of all records, in bytes, below what the API server accepts. It is shared by the namespaces
// of the policies that ask about the catalogs.
const maxRecords = 900 << 10

// share deletes the records of catalogs that are gone, and those that have no room, and returns what the latter are for.
// What no policy asks about counts as of the namespace that the catalog is in. While policies are not completed from
// cluster state, which catalogs they ask about is not known, and none is gone.
func share(data map[string]string, asking []fair.Claim[olm.Catalog], in *snapshot.Snapshot) []fair.Origin {
	incomplete := false
	for ns := range in.All() {
		incomplete = incomplete || slices.ContainsFunc(ns.Policies(), func(p *operatorpolicy.Policy) bool { return p.Incomplete })
	}
	var claims []fair.Claim[string]
	claimed := map[string]bool{}
	for _, c := range asking {
		if key := catalog.RecordKey(c.Row); data[key] != "" {
			claimed[key] = true
			claims = append(claims, fair.Claim[string]{Origin: c.Origin, Row: key, Weight: len(data[key])})
		}
	}
	for key, text := range data {
		namespace, name, _ := strings.Cut(key, ".")
		if !claimed[key] && (incomplete || in.Facts().Catalogs[olm.Catalog{Namespace: namespace, Name: name}] != nil) {
			claims = append(claims, fair.Claim[string]{Origin: fair.Origin{Namespace: namespace, Name: name}, Row: key,
				Weight: len(text)})
		}
	}
	kept, left := fair.Within(claims, maxRecords)
	maps.DeleteFunc(data, func(key, _ string) bool { return !slices.Contains(fair.Rows(kept), key) })
	return left
}

// record records what an image of a catalog offers, in the ConfigMap with the records of catalogs, and returns what the
// image changed; nil if the record says so already. A record that cannot be read is not replaced: a jump would be
// forgotten.
func (r *reconciler) record(ctx context.Context, of olm.Catalog, digest string, offered catalog.Offered, s *snapshot.Snapshot,
) (*catalog.Poll, error) {
	key := catalog.RecordKey(of)
	if key == "" {
		return nil, errors.New("the names of the catalog are too long for a record")
	}
	stored := &corev1.ConfigMap{}
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: catalog.RecordsName}, stored)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", r.Namespace, catalog.RecordsName, err)
	}
	var before *catalog.Record
	if text := stored.Data[key]; text != "" {
		if before, err = catalog.DecodeRecord(text); err != nil {
			return nil, err
		}
	}
	on := catalog.Platform{Kubernetes: s.Facts().Version, OpenShift: s.Facts().OpenShift}
	next, err := before.Next(of, digest, offered, on)
	r.left.Set("versions", of.Namespace+"/"+of.Name, next.Left)
	if err != nil || !next.Changed {
		return nil, err
	}
	if stored.Data == nil {
		stored.Data = map[string]string{}
	}
	stored.Data[key] = next.Text
	r.left.Set("records", "", share(stored.Data, asking(s), s))
	if stored.ResourceVersion == "" { // there is none yet
		stored.ObjectMeta = metav1.ObjectMeta{Namespace: r.Namespace, Name: catalog.RecordsName,
			Labels: map[string]string{metakey.ManagedBy: owned.ManagedBy}}
	}
	if err := r.writer.Put(ctx, stored); err != nil { // after a conflict everything is read again
		return nil, fmt.Errorf("write ConfigMap %s/%s: %w", r.Namespace, catalog.RecordsName, err)
	}
	if stored.Data[key] == "" {
		return nil, nil //nolint:nilnil // it has no room
	}
	after, err := catalog.DecodeRecord(next.Text)
	if err != nil {
		return nil, err
	}
	return &after.Polls[len(after.Polls)-1], nil
}
