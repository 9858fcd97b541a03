package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadRequests(t *testing.T) {
	const log = `{"auditID":"1","stage":"ResponseStarted","requestURI":"/w","verb":"watch","user":{"username":"gate"},"requestReceivedTimestamp":"2026-11-21T10:00:00.000001Z"}
{"auditID":"2","stage":"ResponseComplete","requestURI":"/a","verb":"update","user":{"username":"gate"},"requestReceivedTimestamp":"2026-11-21T10:00:01.000000Z"}
{"auditID":"3","stage":"ResponseComplete","requestURI":"/other","verb":"update","user":{"username":"olm"},"requestReceivedTimestamp":"2026-11-21T10:00:02.000000Z"}
{"auditID":"1","stage":"ResponseComplete","requestURI":"/w","verb":"watch","user":{"username":"gate"},"requestReceivedTimestamp":"2026-11-21T10:00:00.000001Z"}
{"auditID":"4","stage":"ResponseComplete","requestURI":"/b","verb":"get","user":{"username":"gate"},"requestReceivedTimestamp":"2026-11-21T10:00:03.000000Z"}
{"auditID":"5","stage":"Respon`
	at := func(seconds int) time.Time { return time.Date(2026, 11, 21, 10, 0, seconds, 0, time.UTC) }
	tests := map[string]struct {
		from, to time.Time
		want     []string
	}{
		"no bounds":                          {want: []string{"/w", "/a", "/b"}},
		"a watch from before is not one now": {from: at(1), want: []string{"/a", "/b"}},
		"an end":                             {to: at(2), want: []string{"/w", "/a"}},
		"nothing in between":                 {from: at(2), to: at(2)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requests, err := readRequests(strings.NewReader(log), "gate", test.from, test.to)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, request := range requests {
				got = append(got, request.URI)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
