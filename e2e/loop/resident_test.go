package loop

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/harness"
)

// BenchmarkResident reports what one process takes with N policies, each with its namespace, and the Subscription and
// OperatorGroup that the loop made: resident memory in MiB, ten seconds after the last write; and whether it is at rest
// by then, as the CPU time of the ten seconds that follow, in percent of one core. The CPU time of a scrape, which
// grows with the policies, is not part of it. Run it with -benchtime 1x.
func BenchmarkResident(b *testing.B) {
	for _, policies := range []int{1, 2_000, 10_000} {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			for b.Loop() {
				e := startSpeed(b, harness.StartWithoutGate(b), policies)
				e.waitQuiet(b)
				const interval = 10 * time.Second
				pause(b, interval)
				token := e.NewScraper(b, "resident", true)
				first := e.processMetrics(b, token)
				before := e.processMetrics(b, token)
				pause(b, interval)
				after := e.processMetrics(b, token)
				b.ReportMetric(first["process_resident_memory_bytes"]/(1<<20), "MiB")
				b.ReportMetric(first["go_memstats_heap_inuse_bytes"]/(1<<20), "heap-MiB")
				const cpu = "process_cpu_seconds_total"
				scrape := before[cpu] - first[cpu]
				b.ReportMetric(scrape*1000, "scrape-ms")
				b.ReportMetric(max(0, after[cpu]-before[cpu]-scrape)/interval.Seconds()*100, "%cpu-at-rest")
			}
		})
	}
}

// pause lets time pass, which is what is measured.
func pause(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// processMetrics returns the metrics without labels, by name.
func (e *speedEnv) processMetrics(b *testing.B, token string) map[string]float64 {
	b.Helper()
	code, body, err := e.Scrape(b.Context(), token)
	if err != nil || code != http.StatusOK {
		b.Fatalf("scrape: HTTP %d (%v)", code, err)
	}
	metrics := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+) (\S+)$`).FindAllStringSubmatch(body, -1) {
		if metrics[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
			b.Fatal(err)
		}
	}
	return metrics
}
