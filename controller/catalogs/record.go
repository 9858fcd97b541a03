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
	"github.com/opgate/opgate/controller/apply"
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

// records is the ConfigMap with the records of catalogs.
type records struct {
	reader    client.Reader
	writer    apply.Writer
	namespace string
}

// asked are the catalogs of which a record is needed, in a snapshot.
type asked struct {
	claims []fair.Claim[olm.Catalog]
	in     *snapshot.Snapshot
}

// gone reports whether a catalog does not exist. While policies are not completed from cluster state, which catalogs
// they ask about is not known, and none is gone.
func (a *asked) gone(of olm.Catalog) bool {
	for ns := range a.in.All() {
		if slices.ContainsFunc(ns.Policies(), func(p *operatorpolicy.Policy) bool { return p.Incomplete }) {
			return false
		}
	}
	return a.in.Facts().Catalogs[of] == nil
}

// share deletes the records of catalogs that are gone, and those that have no room, and returns what the latter are for.
// What no policy asks about counts as of the namespace that the catalog is in.
func (a *asked) share(data map[string]string) []fair.Origin {
	var claims []fair.Claim[string]
	claimed := map[string]bool{}
	for _, c := range a.claims {
		if key := catalog.RecordKey(c.Row); data[key] != "" {
			claimed[key] = true
			claims = append(claims, fair.Claim[string]{Origin: c.Origin, Row: key, Weight: len(data[key])})
		}
	}
	for key, text := range data {
		namespace, name, _ := strings.Cut(key, ".")
		if of := (olm.Catalog{Namespace: namespace, Name: name}); !claimed[key] && !a.gone(of) {
			claims = append(claims, fair.Claim[string]{Origin: fair.Origin{Namespace: namespace, Name: name}, Row: key,
				Weight: len(text)})
		}
	}
	kept, left := fair.Within(claims, maxRecords)
	maps.DeleteFunc(data, func(key, _ string) bool { return !slices.Contains(fair.Rows(kept), key) })
	return left
}

// added is what an image has changed, and for whom versions of the catalog, and records of any, have no room.
type added struct {
	// poll is nil if the record says so already.
	poll              *catalog.Poll
	versions, records []fair.Origin
}

// add records what an image of a catalog offers. A record that cannot be read is not replaced: a jump would be
// forgotten.
func (r *records) add(
	ctx context.Context, of olm.Catalog, digest string, offered catalog.Offered, on catalog.Platform, asked asked,
) (a added, err error) {
	key := catalog.RecordKey(of)
	if key == "" {
		return a, errors.New("the names of the catalog are too long for a record")
	}
	stored := &corev1.ConfigMap{}
	err = r.reader.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: catalog.RecordsName}, stored)
	if client.IgnoreNotFound(err) != nil {
		return a, fmt.Errorf("read ConfigMap %s/%s: %w", r.namespace, catalog.RecordsName, err)
	}
	var before *catalog.Record
	if text := stored.Data[key]; text != "" {
		if before, err = catalog.DecodeRecord(text); err != nil {
			return a, err
		}
	}
	next, err := before.Next(of, digest, offered, on)
	if a.versions = next.Left; err != nil || !next.Changed {
		return a, err
	}
	if stored.Data == nil {
		stored.Data = map[string]string{}
	}
	stored.Data[key] = next.Text
	a.records = asked.share(stored.Data)
	if stored.ResourceVersion == "" { // there is none yet
		stored.ObjectMeta = metav1.ObjectMeta{Namespace: r.namespace, Name: catalog.RecordsName,
			Labels: map[string]string{metakey.ManagedBy: owned.ManagedBy}}
	}
	if err := r.writer.Put(ctx, stored); err != nil { // after a conflict everything is read again
		return a, fmt.Errorf("write ConfigMap %s/%s: %w", r.namespace, catalog.RecordsName, err)
	}
	if stored.Data[key] == "" {
		return a, nil
	}
	after, err := catalog.DecodeRecord(next.Text)
	if err == nil {
		a.poll = &after.Polls[len(after.Polls)-1]
	}
	return a, err
}
