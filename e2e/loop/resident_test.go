package loop

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// BenchmarkResident reports what one process takes with N policies, each with its namespace, and the Subscription and OperatorGroup
// that the loop made: resident memory in MiB, ten seconds after the last write; and whether it is at rest by then, as the CPU time of
// the ten seconds that follow, in percent of one core. Run it with -benchtime 1x.
func BenchmarkResident(b *testing.B) {
	for _, policies := range []int{1, 2_000, 10_000} {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			for b.Loop() {
				e := startSpeed(b, policies)
				e.settle(b)
				const interval = 10 * time.Second
				pause(b, interval)
				token := e.NewScraper(b, "resident", true)
				before := e.metric(b, token, "process_cpu_seconds_total")
				b.ReportMetric(e.metric(b, token, "process_resident_memory_bytes")/(1<<20), "MiB")
				b.ReportMetric(e.metric(b, token, "go_memstats_heap_inuse_bytes")/(1<<20), "heap-MiB")
				pause(b, interval)
				b.ReportMetric((e.metric(b, token, "process_cpu_seconds_total")-before)/interval.Seconds()*100, "%cpu-at-rest")
			}
		})
	}
}

// pause lets time pass, which is what is measured.
func pause(b *testing.B, d time.Duration) {
	b.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.Context().Done():
		b.Fatal(b.Context().Err())
	}
}

// metric returns the value of a metric without labels.
func (e *speedEnv) metric(b *testing.B, token, name string) float64 {
	b.Helper()
	code, body, err := e.Scrape(b.Context(), token)
	if err != nil || code != http.StatusOK {
		b.Fatalf("scrape: HTTP %d (%v)", code, err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body)
	if found == nil {
		b.Fatalf("there is no metric %s", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return value
}
