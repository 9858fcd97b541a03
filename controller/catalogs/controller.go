// Package catalogs compares what the images of catalogs offer, one after the other, while this replica leads.
//
// The newest versions of all packages come from PackageManifests, the only interface that lists them without a
// connection to the catalog itself. They are listed once when a catalog that a policy asks about runs another image,
// and once more later, since the package server lags behind. What changed is stored in one ConfigMap, by which every
// replica judges (bundle/catalog-jump).
package catalogs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

const (
	// maxCatalogs bounds the catalogs that are compared; what depends on further ones is held. It is shared by the
	// namespaces of the policies.
	maxCatalogs = 20
	// maxBytes bounds one list of PackageManifests, which is read one object at a time: large catalogs have tens of MB.
	maxBytes = 256 << 20
	// timeout bounds one list.
	timeout = 5 * time.Minute
	// settling is the time from when another image is known to run to the first list: the package server lags behind.
	settling = 30 * time.Second
	// recheck is the time from then to the second list, for a package server that lagged for longer.
	recheck = 5 * time.Minute
)

// Controller compares the images of catalogs on the leader. All fields are required unless they have a default.
type Controller struct {
	apply.Shared
	// Streams lists PackageManifests.
	Streams *stream.Client
	// Namespace is Opgate's own, of the ConfigMap.
	Namespace string

	queue manager.Queue[olm.Catalog]
	// full is set while a catalog has no room: then any change may make some.
	full atomic.Bool
	// What follows is of the one worker. reader reads from the API server.
	reader client.Reader
	images map[olm.Catalog]*image
}

// AddTo adds the controller to the manager of the leader.
func (r *Controller) AddTo(mgr ctrl.Manager) error {
	r.Client, r.reader, r.images = mgr.GetClient(), mgr.GetAPIReader(), map[olm.Catalog]*image{}
	return manager.Registration[olm.Catalog]{Name: "catalogs", Reconciler: r, Queue: &r.queue, Store: r.Store,
		Changed: r.changed}.AddTo(mgr)
}

// changed enqueues the catalogs that policies in the changed namespaces ask about. Namespaces that are judged by
// catalogs are changed by every change of a catalog, its pods and its record.
func (r *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		r.queue.Add(fair.Rows(change.Snapshot.Namespace(name).RecordedCatalogs())...)
	}
	if r.full.Load() {
		kept, _ := wanted(change.Snapshot)
		r.queue.Add(kept...)
	}
}

// asking returns the catalogs of which policies hold jumps or young versions, for these.
func asking(s *snapshot.Snapshot) (all []fair.Claim[olm.Catalog]) {
	for ns := range s.All() {
		all = append(all, ns.RecordedCatalogs()...)
	}
	return all
}

// wanted returns those of these catalogs that exist, up to maxCatalogs, and for whom others have no room.
func wanted(s *snapshot.Snapshot) ([]olm.Catalog, []fair.Origin) {
	facts := s.Facts()
	kept, left := fair.Within(slices.DeleteFunc(asking(s), func(c fair.Claim[olm.Catalog]) bool {
		return facts.Catalogs[c.Row] == nil
	}), maxCatalogs)
	return fair.Rows(kept), left
}

// image is the image that a catalog runs, as far as this leader has seen it.
type image struct {
	digest string
	// since is when it was first seen, reads the number of lists since then. packages are those whose versions were
	// recorded by the last one.
	since    time.Time
	reads    int
	packages []string
}

// Reconcile compares the image that a catalog runs with the last one that is recorded, when the package server has had
// the time to follow.
func (r *Controller) Reconcile(ctx context.Context, of olm.Catalog) (ctrl.Result, error) {
	digest := r.running(of)
	if digest == "" {
		delete(r.images, of)
		return ctrl.Result{}, nil // the event of a pod enqueues it
	}
	now := r.images[of]
	if now == nil || now.digest != digest {
		now = &image{digest: digest, since: r.Now()}
		r.images[of] = now
	}
	packages := r.aged(of)
	unrecorded := func(c fair.Claim[string]) bool { return !slices.Contains(now.packages, c.Row) }
	if now.reads > 0 && slices.ContainsFunc(packages, unrecorded) {
		now.reads = 0 // a policy asks about one that was not recorded
	}
	wait := settling
	if now.reads > 0 {
		wait = recheck
	}
	switch left := now.since.Add(wait).Sub(r.Now()); {
	case now.reads > 1:
		return ctrl.Result{}, nil
	case left > 0:
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if err := r.compare(ctx, of, digest, packages); err != nil {
		return ctrl.Result{}, err
	}
	now.reads++
	now.packages = fair.Rows(packages)
	return ctrl.Result{RequeueAfter: max(now.since.Add(recheck).Sub(r.Now()), time.Second)}, nil
}

// running returns the digest of the image that a catalog runs; "" if no policy asks about it, or it is not known.
func (r *Controller) running(of olm.Catalog) string {
	s := r.Store.Load()
	kept, left := wanted(s)
	r.full.Store(len(left) > 0)
	r.Full("catalogs", "", left)
	if !slices.Contains(kept, of) {
		return ""
	}
	digest, _ := s.Facts().RunningDigest(of)
	return digest
}

// aged returns the packages of a catalog of which policies hold young versions, as far as there is room, with a policy
// of each.
func (r *Controller) aged(of olm.Catalog) []fair.Claim[string] {
	var packages []fair.Claim[string]
	for ns := range r.Store.Load().All() {
		packages = append(packages, ns.AgedPackages(of)...)
	}
	packages, left := fair.Within(packages, catalog.MaxSeenPackages)
	r.Full("packages", of.Namespace+"/"+of.Name, left)
	return packages
}

// compare lists the packages of a catalog, and records what its image changed, and which versions some packages have, in
// the ConfigMap with the records of catalogs. A record that cannot be read is not replaced: a jump would be forgotten.
func (r *Controller) compare(ctx context.Context, of olm.Catalog, digest string,
	packages []fair.Claim[string]) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	offered, err := r.offered(ctx, of, packages)
	if err != nil {
		return fmt.Errorf("list the packages of catalog %s/%s: %w", of.Namespace, of.Name, err)
	}
	if r.running(of) != digest {
		return nil // they may be those of another image; its event has enqueued the catalog
	}
	s := r.Store.Load()
	if s.Facts().Version == "" {
		return errors.New("the version of the cluster is not known yet")
	}
	key := catalog.RecordKey(of)
	if key == "" {
		return errors.New("the names of the catalog are too long for a record")
	}
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: catalog.RecordsName,
		Labels: map[string]string{metakey.ManagedBy: owned.ManagedBy}}}
	err = r.reader.Get(ctx, client.ObjectKeyFromObject(stored), stored) // leaves it as it is if there is none yet
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", r.Namespace, catalog.RecordsName, err)
	}
	var before *catalog.Record
	if text := stored.Data[key]; text != "" {
		if before, err = catalog.DecodeRecord(text); err != nil {
			return err
		}
	}
	on := catalog.Platform{Kubernetes: s.Facts().Version, OpenShift: s.Facts().OpenShift}
	next, err := before.Next(of, digest, offered, on)
	r.Full("versions", of.Namespace+"/"+of.Name, next.Left)
	if err != nil || !next.Changed {
		return err
	}
	if stored.Data == nil {
		stored.Data = map[string]string{}
	}
	stored.Data[key] = next.Text
	r.Full("records", "", share(stored.Data, asking(s), s))
	if err := r.Writer.Put(ctx, stored); err != nil { // after a conflict everything is read again
		return fmt.Errorf("write ConfigMap %s/%s: %w", r.Namespace, catalog.RecordsName, err)
	}
	r.Log.Info("packages of a catalog compared", "catalog", of.Namespace+"/"+of.Name, "image", digest)
	return nil
}

// offered lists the newest versions of all packages of a catalog, and all versions of some. The package server serves
// those of a catalog in the namespace of the catalog.
func (r *Controller) offered(ctx context.Context, of olm.Catalog, packages []fair.Claim[string],
) (catalog.Offered, error) {
	heads, all, whose := catalog.Heads{}, map[string][]string{}, map[string]fair.Origin{}
	for _, c := range packages {
		whose[c.Row] = c.Origin
	}
	selector := labels.Set{"catalog": of.Name, "catalog-namespace": of.Namespace}.AsSelectorPreValidated().String()
	err := r.Streams.Each(ctx, olm.PackageManifests, stream.Selection{Namespace: of.Namespace, Labels: selector},
		maxBytes, func(raw []byte) error {
			name, found := catalog.DecodeHeads(raw, of)
			if name != "" {
				heads[name] = found
			}
			if _, asks := whose[name]; asks {
				_, all[name] = catalog.DecodeNames(raw, of)
			}
			if len(heads) > catalog.MaxPackages {
				return fmt.Errorf("it has more than %d packages", catalog.MaxPackages)
			}
			return nil
		})
	if err == nil && len(heads) == 0 {
		err = errors.New("the package server does not know any yet")
	}
	return catalog.Offered{Heads: heads, Names: all, For: whose, At: r.Now()}, err
}

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
