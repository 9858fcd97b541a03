package cluster

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// auditPolicy states what the API server's audit log holds.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// writeAuditPolicy returns the path of a file with the audit policy.
func writeAuditPolicy(dir string) (string, error) {
	path := filepath.Join(dir, "audit-policy.yaml")
	return path, os.WriteFile(path, auditPolicy, 0o600)
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// Request is a request to the API server, as in its audit log.
type Request struct {
	// Received is when the API server got it.
	Received time.Time `json:"requestReceivedTimestamp"`
	// Verb is that of RBAC, such as "update", or "impersonate" with the account as Object; URI is the request's own.
	Verb string `json:"verb"`
	URI  string `json:"requestURI"`
	// UserAgent is the client's program, with the component where it has one.
	UserAgent string `json:"userAgent"`
	// Object is the object of the request. It is empty for non-resource requests, such as "/apis".
	Object struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	// Response is its result; Message is that of an error. A watch has Code 200 as soon as it is open.
	Response struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

// Reopened reports whether the request opens a watch for a few seconds, again and again, by whose end Opgate knows that
// it is current; no client of client-go requests less than five minutes by itself.
func (r *Request) Reopened() bool {
	u, err := url.Parse(r.URI)
	if err != nil || r.Verb != "watch" {
		return false
	}
	seconds, err := strconv.Atoi(u.Query().Get("timeoutSeconds"))
	return err == nil && seconds < 5*60
}

// OpgateRequests are all requests of Opgate's identity, whichever process made them, that the API server got between
// two instants, in the order of the log. The zero time is no bound. Each request is returned once. Options must ask for
// an audit log.
//
// A request is in the log when it has been answered, a watch when it has been opened.
func (c *Cluster) OpgateRequests(from, to time.Time) ([]Request, error) {
	file, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	requests, err := readRequests(file, OpgateUserName, from, to)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return requests, nil
}

func readRequests(log io.Reader, user string, from, to time.Time) ([]Request, error) {
	var requests []Request
	seen := map[string]bool{}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, nil // what has no end yet is being written
		}
		if err != nil {
			return nil, err
		}
		var event struct {
			Request
			ID   string `json:"auditID"`
			User struct {
				Username string `json:"username"`
			} `json:"user"`
			Impersonated struct {
				Username string `json:"username"`
			} `json:"impersonatedUser"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		early := event.Received.Before(from)
		late := !to.IsZero() && event.Received.After(to)
		// A watch is logged twice: when it is opened, and when it ends.
		if event.User.Username != user || early || late || seen[event.ID] {
			continue
		}
		seen[event.ID] = true
		// The request itself needs the rights of the impersonated account.
		if parts := strings.Split(event.Impersonated.Username, ":"); len(parts) == 4 {
			event.Verb = "impersonate"
			event.Object.Group, event.Object.Resource, event.Object.Subresource = "", "serviceaccounts", ""
			event.Object.Namespace, event.Object.Name = parts[2], parts[3]
		}
		requests = append(requests, event.Request)
	}
}
