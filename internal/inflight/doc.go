// Package inflight bounds the memory that requests take while they are read and answered (threats G18, G20). Clients that
// reach the port of the webhooks need not authenticate, so the sizes that clients declare, and how many of them send at
// once, must not decide how much memory the process takes. What is guaranteed, and what is not, is in
// docs/decisions/2026-11-22-request-budget.md.
package inflight
