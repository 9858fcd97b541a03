package scale

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what Run measured.
type Report struct {
	// Revision, Time, Load, Processors and Go say which run it is. Load is the machine's, over 1, 5 and 15 minutes,
	// when it started.
	Revision   string    `json:"revision,omitempty"`
	Time       time.Time `json:"time"`
	Load       string    `json:"load,omitempty"`
	Processors int       `json:"processors"`
	Go         string    `json:"go"`
	// MemoryLimit is what Opgate read as its limit, in bytes; 0 for none.
	MemoryLimit uint64 `json:"memoryLimitBytes,omitempty"`
	Rows        []Row  `json:"rows"`
}

// Row is one number of namespaces. Times are in seconds, CPU times of the whole process of one replica, memory in
// bytes.
type Row struct {
	Namespaces int `json:"namespaces"`
	// SetupSeconds is the time in which the namespaces were created with an OperatorGroup, a Subscription and a plan
	// each.
	SetupSeconds float64 `json:"setupSeconds"`
	// StartSeconds is the time from the start of the first replica, without policies, until the API server asks it.
	StartSeconds float64 `json:"startSeconds"`
	Policies     struct {
		// WrittenSeconds is until the last policy was created, ReportedSeconds until the last one had a status, both
		// from the first creation.
		WrittenSeconds  float64 `json:"writtenSeconds"`
		ReportedSeconds float64 `json:"reportedSeconds"`
		// IdleSeconds is until Opgate was idle: until then the API server may still read policies in the other version.
		IdleSeconds float64 `json:"idleSeconds"`
		PerSecond   float64 `json:"perSecond"`
		// P50 and P99 are from the answer to the creation of a policy until its first status.
		P50 float64 `json:"p50Seconds"`
		P99 float64 `json:"p99Seconds"`
		// Requests and CPU are for each policy, until Opgate was idle.
		Requests float64 `json:"requestsEach"`
		CPU      float64 `json:"cpuSecondsEach"`
	} `json:"policies"`
	// Requests are those of Opgate for all policies, by verb and resource.
	Requests map[string]int `json:"requests"`
	// Leader is the replica that leads, after all policies had a status; LeaderAtEnd and Second are both replicas at
	// the end.
	Leader      Memory `json:"leader"`
	LeaderAtEnd Memory `json:"leaderAtEnd"`
	Second      Memory `json:"second"`
	// Backstop is the state of the admission policies that Opgate writes.
	Backstop string `json:"backstop"`
	// RestCPU is a share of one core while nothing happens; EventCPU is what an event costs.
	RestCPU  float64 `json:"restCPU"`
	EventCPU float64 `json:"eventCPUSeconds"`
	// SecondSeconds is the same for the second replica, with all policies.
	SecondSeconds float64 `json:"secondReplicaSeconds"`
	// Propagation is that of edits to each replica, the leader first.
	Propagation []Propagation `json:"propagation"`
	Approvals   struct {
		Plans int `json:"plans"`
		// WrittenSeconds is until the last plan required approval, LastSeconds until the last one was approved, both
		// from the first write.
		WrittenSeconds float64 `json:"writtenSeconds"`
		LastSeconds    float64 `json:"lastSeconds"`
		// P50 and P99 are from the answer to OLM's write of a plan to that of its approval.
		P50 float64 `json:"p50Seconds"`
		P99 float64 `json:"p99Seconds"`
		// Requests and CPU are for each plan.
		Requests float64 `json:"requestsEach"`
		CPU      float64 `json:"cpuSecondsEach"`
	} `json:"approvals"`
}

// Memory is that of a replica, in bytes.
type Memory struct {
	Resident int64 `json:"residentBytes"`
	// Peak is the most that was resident since the process started.
	Peak int64 `json:"peakBytes"`
	// Heap is the part of Resident that Go's heap uses; 0 where it was not measured.
	Heap int64 `json:"heapBytes,omitempty"`
}

// Propagation is how long after the API server's answer to an edit a replica judged by it, in seconds.
type Propagation struct {
	Edits int     `json:"edits"`
	P50   float64 `json:"p50Seconds"`
	P99   float64 `json:"p99Seconds"`
	Most  float64 `json:"mostSeconds"`
}

func newReport(o *Options) *Report {
	return &Report{Revision: o.Revision, Time: o.Now().UTC().Truncate(time.Second), Load: load(),
		Processors: runtime.NumCPU(), Go: runtime.Version(),
		MemoryLimit: o.MemoryLimit, Rows: []Row{}}
}

// percentile is the smallest duration that at least a share of all, in percent, does not exceed; 0 of none.
func percentile(durations []time.Duration, percent int) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// JSON writes the report as JSON.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Caption states which run it is.
func (r *Report) Caption() string {
	text := fmt.Sprintf("%s, %s, %d processors", r.Time.Format(time.DateTime)+" UTC", r.Go, r.Processors)
	if r.MemoryLimit > 0 {
		text += fmt.Sprintf(", memory limit %d MiB", r.MemoryLimit>>20)
	}
	if r.Load != "" {
		text += ", load " + r.Load
	}
	if r.Revision != "" {
		text = r.Revision + ", " + text
	}
	return text
}

const (
	mib          = 1 << 20
	milliseconds = 1e3
)

// Table writes the report as a Markdown table, one column for each number of namespaces.
func (r *Report) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.Caption())
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(name string, cell func(row *Row) string) {
		fmt.Fprintf(t, "| %s\t", name)
		for i := range r.Rows {
			fmt.Fprintf(t, "| %s\t", cell(&r.Rows[i]))
		}
		fmt.Fprintln(t, "|")
	}
	number := func(name, format string, value func(row *Row) float64) {
		line(name, func(row *Row) string { return fmt.Sprintf(format, value(row)) })
	}
	line("Namespaces, each with a policy, a Subscription and a plan",
		func(row *Row) string { return fmt.Sprint(row.Namespaces) })
	line("---", func(*Row) string { return "---" })
	number("policies created, in s", "%.1f", func(row *Row) float64 { return row.Policies.WrittenSeconds })
	number("until each has a status, in s", "%.1f", func(row *Row) float64 { return row.Policies.ReportedSeconds })
	number("until Opgate is idle, in s", "%.1f", func(row *Row) float64 { return row.Policies.IdleSeconds })
	number("policies a second", "%.0f", func(row *Row) float64 { return row.Policies.PerSecond })
	line("a policy's first status, p50 and p99, in s",
		func(row *Row) string { return fmt.Sprintf("%.2f, %.2f", row.Policies.P50, row.Policies.P99) })
	number("requests of Opgate for a policy", "%.2f", func(row *Row) float64 { return row.Policies.Requests })
	number("CPU time for a policy, in ms", "%.1f", func(row *Row) float64 { return row.Policies.CPU * milliseconds })
	line("memory of the leader: resident, of it the heap, in MiB", func(row *Row) string {
		return fmt.Sprintf("%d, %d", row.Leader.Resident/mib, row.Leader.Heap/mib)
	})
	line("most memory of the leader, of the second replica, in MiB", func(row *Row) string {
		return fmt.Sprintf("%d, %d", row.LeaderAtEnd.Peak/mib, row.Second.Peak/mib)
	})
	number("CPU at rest, in % of a core", "%.1f", func(row *Row) float64 { return row.RestCPU * 100 })
	number("CPU time for an event, in ms", "%.2f", func(row *Row) float64 { return row.EventCPU * milliseconds })
	line("start of a replica without policies, with all of them, in s", func(row *Row) string {
		return fmt.Sprintf("%.1f, %.1f", row.StartSeconds, row.SecondSeconds)
	})
	for i, replica := range []string{"the leader", "the second replica"} {
		line("an edit reaches "+replica+", p50, p99 and most, in ms", func(row *Row) string {
			if i >= len(row.Propagation) {
				return ""
			}
			p := row.Propagation[i]
			return fmt.Sprintf("%.0f, %.0f, %.0f", p.P50*milliseconds, p.P99*milliseconds, p.Most*milliseconds)
		})
	}
	line("plans that require approval at once", func(row *Row) string { return fmt.Sprint(row.Approvals.Plans) })
	line("written, and all approved, in s", func(row *Row) string {
		return fmt.Sprintf("%.1f, %.1f", row.Approvals.WrittenSeconds, row.Approvals.LastSeconds)
	})
	line("from OLM's write to the approval, p50 and p99, in s",
		func(row *Row) string { return fmt.Sprintf("%.2f, %.2f", row.Approvals.P50, row.Approvals.P99) })
	number("requests of Opgate for an approval", "%.2f", func(row *Row) float64 { return row.Approvals.Requests })
	number("CPU time for an approval, in ms", "%.1f",
		func(row *Row) float64 { return row.Approvals.CPU * milliseconds })
	line("backstop", func(row *Row) string { return row.Backstop })
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range r.Rows {
		var counts []string
		for _, what := range slices.Sorted(maps.Keys(row.Requests)) {
			counts = append(counts, fmt.Sprintf("%s %d", what, row.Requests[what]))
		}
		if _, err := fmt.Fprintf(w, "\nRequests for %d policies: %s\n", row.Namespaces,
			strings.Join(counts, ", ")); err != nil {
			return err
		}
	}
	return nil
}
