package catalogs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
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
	// Store provides the snapshot that admission judges by.
	Store *snapshot.Store
	// Client lists PackageManifests.
	Client *stream.Client
	// Namespace is Opgate's own, of the ConfigMap.
	Namespace string
	// Writes count the writes.
	Writes *apply.Metrics
	// Events records that tables have no room for a policy, on it. Default: nothing is recorded.
	Events *events.Recorder
	// Log receives comparisons at V(0). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	queue manager.Queue[olm.Catalog]
	// full is set while a catalog has no room: then any change may make some.
	full atomic.Bool
}

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	r := &reconciler{Controller: c, reader: mgr.GetAPIReader(),
		writer: apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes},
		images: map[olm.Catalog]*image{}, left: apply.Left{Metrics: c.Writes, Events: c.Events, Log: c.Log}}
	return manager.Registration[olm.Catalog]{Name: "catalogs", Reconciler: r, Queue: &c.queue, Store: c.Store,
		Changed: c.changed}.AddTo(mgr)
}

// changed enqueues the catalogs that policies in the changed namespaces ask about. Namespaces that are judged by
// catalogs are changed by every change of a catalog, its pods and its record.
func (c *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		c.queue.Add(fair.Rows(change.Snapshot.Namespace(name).RecordedCatalogs())...)
	}
	if c.full.Load() {
		kept, _ := wanted(change.Snapshot)
		c.queue.Add(kept...)
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

// reconciler has one worker.
type reconciler struct {
	*Controller
	reader client.Reader
	writer apply.Writer
	images map[olm.Catalog]*image
	left   apply.Left
}

// Reconcile compares the image that a catalog runs with the last one that is recorded, when the package server has had
// the time to follow.
func (r *reconciler) Reconcile(ctx context.Context, of olm.Catalog) (ctrl.Result, error) {
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
func (r *reconciler) running(of olm.Catalog) string {
	s := r.Store.Load()
	kept, left := wanted(s)
	r.full.Store(len(left) > 0)
	r.left.Set("catalogs", "", left)
	if !slices.Contains(kept, of) {
		return ""
	}
	digest, _ := s.Facts().RunningDigest(of)
	return digest
}

// aged returns the packages of a catalog of which policies hold young versions, as far as there is room, with a policy
// of each.
func (r *reconciler) aged(of olm.Catalog) []fair.Claim[string] {
	var packages []fair.Claim[string]
	for ns := range r.Store.Load().All() {
		packages = append(packages, ns.AgedPackages(of)...)
	}
	packages, left := fair.Within(packages, catalog.MaxSeenPackages)
	r.left.Set("packages", of.Namespace+"/"+of.Name, left)
	return packages
}

// compare lists the packages of a catalog, and records what its image changed, and which versions some packages have.
func (r *reconciler) compare(ctx context.Context, of olm.Catalog, digest string,
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
	poll, err := r.record(ctx, of, digest, offered, s)
	if err != nil || poll == nil {
		return err
	}
	r.Log.Info("packages of a catalog compared", "catalog", of.Namespace+"/"+of.Name, "image", poll.Image,
		"from", poll.From, "packages", poll.Packages,
		"changed", poll.Changed, "backwards", poll.Backwards, "foreign", poll.Foreign)
	return nil
}

// offered lists the newest versions of all packages of a catalog, and all versions of some. The package server serves
// those of a catalog in the namespace of the catalog.
func (r *reconciler) offered(ctx context.Context, of olm.Catalog, packages []fair.Claim[string],
) (catalog.Offered, error) {
	heads, all, whose := catalog.Heads{}, map[string][]string{}, map[string]fair.Origin{}
	for _, c := range packages {
		whose[c.Row] = c.Origin
	}
	selector := labels.Set{"catalog": of.Name, "catalog-namespace": of.Namespace}.AsSelectorPreValidated().String()
	err := r.Client.Each(ctx, olm.PackageManifests, stream.Selection{Namespace: of.Namespace, Labels: selector},
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
