package scale

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
)

// request is a request of Opgate, or one by which OLM wrote a plan, as in the audit log of the API server.
type request struct {
	ID   string `json:"auditID"`
	Verb string `json:"verb"`
	User struct {
		Name string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
	// Answered is when its answer was sent, or when a watch was opened.
	Answered time.Time `json:"stageTimestamp"`
}

// what is what the request is counted as.
func (r *request) what() string {
	resource := r.Object.Resource
	if r.Object.Subresource != "" {
		resource += "/" + r.Object.Subresource
	}
	return r.Verb + " " + resource
}

// byOpgate reports whether Opgate made it for what happens: not to keep its Lease, and not one that comes again after
// minutes whatever happens.
func (r *request) byOpgate() bool {
	switch {
	case r.User.Name != cluster.OpgateUserName, r.Object.Resource == "leases", r.Verb == "watch",
		r.Object.Resource == "":
		return false
	}
	return r.Object.Resource != "packagemanifests" || r.Object.Name == ""
}

// auditLog reads an audit log while it is written, each line once.
type auditLog struct {
	path   string
	offset int64
	seen   map[string]bool // watches, which are logged twice
	// requests are those that were read so far.
	requests []request
}

// read reads what was added since the last call.
func (a *auditLog) read() error {
	file, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	for lines := bufio.NewReaderSize(file, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what has no end yet is being written
		}
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		a.offset += int64(len(line))
		if !bytes.Contains(line, []byte(cluster.OpgateUserName)) && !bytes.Contains(line, []byte(`"installplans"`)) {
			continue
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		if r.Verb == "watch" && a.seen[r.ID] {
			continue
		}
		if r.Verb == "watch" {
			a.seen[r.ID] = true
		}
		a.requests = append(a.requests, r)
	}
}

// since counts the requests of Opgate that the API server received since an instant.
func (a *auditLog) since(from time.Time) (counts map[string]int, last time.Time, err error) {
	if err := a.read(); err != nil {
		return nil, time.Time{}, err
	}
	counts = map[string]int{}
	for i := range a.requests {
		if r := &a.requests[i]; r.byOpgate() && !r.Received.Before(from) {
			counts[r.what()]++
			if r.Answered.After(last) {
				last = r.Answered
			}
		}
	}
	return counts, last, nil
}
