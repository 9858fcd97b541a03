// Package report writes what is installed and what waits for approval, with the verdicts of the rules, as Reports of
// OpenReports (openreports.io): one in each namespace, while this replica leads. Reports are opt-in, and written only
// when they change.
package report
