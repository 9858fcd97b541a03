package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/rights"
)

// AuditEvent is the part of an event of the API server's audit log that tests read.
type AuditEvent struct {
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Annotations map[string]string `json:"annotations"`
	Response    struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// At is when the request got to its stage.
	At time.Time `json:"stageTimestamp"`
}

// ReadAudit reads the events of an audit log that may still be written.
func ReadAudit(path string) ([]AuditEvent, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var events []AuditEvent
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return events, nil // what has no end yet is being written
		}
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		events = append(events, event)
	}
}

// checkLeastPrivilege returns an error for every request of Opgate that it did not need. The API server allows more: it
// does not know whether the loop runs. It runs when a cluster stops, so that it covers the requests of all tests.
func checkLeastPrivilege(c *cluster.Cluster) error {
	requests, err := c.OpgateRequests(time.Time{}, time.Time{})
	usedRights.Add(requests)
	rules, rulesErr := c.OpgateRules()
	return errors.Join(err, rulesErr, rights.Excess(requests, GivenGroups, rules...))
}

// RefusalsOfOLM are the refusals of OLM in the log of the running gate.
func (e *Env) RefusalsOfOLM(t testing.TB) []Refusal {
	t.Helper()
	file, err := os.Open(e.Gate.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var refusals []Refusal
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r Refusal
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // the last line, which is being written
		}
		if r.Message == "review refused" && r.User == "system:serviceaccount:olm:olm-operator-serviceaccount" {
			refusals = append(refusals, r)
		}
	}
	return refusals
}

// usedRights are the rights that the tests of this process made Opgate use.
var usedRights rights.Record

// RecordRights records the rights that requests of Opgate needed.
func RecordRights(requests []cluster.Request) { usedRights.Add(requests) }

// Refusal is a line of the gate's log.
type Refusal struct {
	Message     string   `json:"msg"`
	Kind        string   `json:"kind"`
	Namespace   string   `json:"namespace"`
	Name        string   `json:"name"`
	Operation   string   `json:"operation"`
	Subresource string   `json:"subresource"`
	User        string   `json:"user"`
	Rules       []string `json:"rules"`
}

// GivenGroups are those that only ordering tests have, with what Opgate may do there.
var GivenGroups = []string{"ordering.example.com", "forbidden.example.com", "late.example.com", "backup.example.com"}
