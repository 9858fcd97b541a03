// Package catalogs compares what the images of catalogs offer, one after the other, while this replica leads.
//
// The newest versions of all packages come from PackageManifests, the only interface that lists them without a
// connection to the catalog itself. They are listed once when a catalog that a policy asks about runs another image,
// and once more later, since the package server lags behind. What changed is stored in one ConfigMap, by which every
// replica judges (bundle/catalog-jump).
package catalogs
