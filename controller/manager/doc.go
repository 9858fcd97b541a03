// Package manager runs the controllers while this replica holds the Lease. A replica that loses it continues to serve
// admission, and may lead again.
package manager
