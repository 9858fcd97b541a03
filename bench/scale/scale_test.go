package scale_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/bench/scale"
	"github.com/opgate/opgate/e2e/harness"
)

// TestScale runs "make scale" on three namespaces. It looks at no time. Its cluster is its own: it counts what
// the API server stores.
func TestScale(t *testing.T) {
	t.Parallel()
	const n = 3
	row, err := scale.Measure(t.Context(), harness.StartCluster(t, scale.ClusterOptions()), n, scale.Options{
		Edits: n, Events: n, Approvals: n, Rest: time.Second, Quiet: time.Second, MemoryLimit: harness.ContainerMemory,
		Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := row.Requests["patch operatorpolicies/status"]; got < n {
		t.Errorf("%d statuses were written for %d policies: %v", got, n, row.Requests)
	}
	if row.Backstop != "enforced" {
		t.Errorf("the backstop is %q", row.Backstop)
	}
	if a := row.Approvals; a.Plans != n || a.Requests < 2 {
		t.Errorf("%d plans with %.1f requests each were approved, want %d with at least 2", a.Plans, a.Requests, n)
	}
	for _, m := range []scale.Memory{row.Leader, row.LeaderAtEnd, row.Second} {
		if m.Resident <= 0 || m.Peak < m.Resident {
			t.Errorf("memory was not measured: %+v", m)
		}
	}
	if len(row.Propagation) != 2 || row.Propagation[0].Edits != n || row.Propagation[1].Edits != n {
		t.Errorf("propagation was not measured: %+v", row.Propagation)
	}
	scaleOutputs(t, &scale.Report{Revision: "v0 <&>", Rows: []scale.Row{*row, *row}})
}

// scaleOutputs writes a report in each form.
func scaleOutputs(t *testing.T, report *scale.Report) {
	t.Helper()
	var table, data, plot bytes.Buffer
	if err := errors.Join(report.Table(&table), report.JSON(&data), report.SVG(&plot)); err != nil {
		t.Fatal(err)
	}
	if columns := strings.Count(strings.Split(table.String(), "\n")[2], "|"); columns != len(report.Rows)+2 {
		t.Errorf("the table has %d lines between columns, want %d:\n%s", columns, len(report.Rows)+2, table.String())
	}
	var read scale.Report
	if err := json.Unmarshal(data.Bytes(), &read); err != nil || len(read.Rows) != len(report.Rows) {
		t.Errorf("%d rows in JSON, %v", len(read.Rows), err)
	}
	lines := 0
	for d := xml.NewDecoder(&plot); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 10 {
		t.Errorf("the plots have %d lines, want 10", lines)
	}
}
