// Package window computes when approvals are allowed: in windows that begin at times of a cron expression, and never
// during a freeze. It is pure: the time is an argument. Time zones come from the database of the system, or else from
// the one that is linked into the program, so that an image without files knows them.
package window
