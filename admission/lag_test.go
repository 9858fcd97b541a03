package admission

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/snapshot"
)

// TestG1LagIsShown wants /snapshot to show whether there is a snapshot, and which one, and a metric how old it is.
func TestG1LagIsShown(t *testing.T) {
	now := time.Now()
	for name, store := range map[string]*snapshot.Store{"none yet": snapshot.NewStore(nil),
		"built": storeOf(t, governed(t).Cluster...)} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			built := now
			if current := store.Load(); current != nil {
				built = current.Built()
			}
			NewMetrics(registry, store, func() time.Time { return built.Add(time.Minute) })
			recorder := httptest.NewRecorder()
			store.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/snapshot", http.NoBody))
			var shown struct {
				Ready      bool
				Generation float64
			}
			if err := json.Unmarshal(recorder.Body.Bytes(), &shown); err != nil {
				t.Fatal(err)
			}
			wantAge := -1.0
			if store.Load() != nil {
				wantAge = time.Minute.Seconds()
			}
			if ready := store.Load() != nil; shown.Ready != ready || (shown.Generation > 0) != ready {
				t.Errorf("/snapshot shows %+v, want ready to be %t", shown, ready)
			}
			if got := valueOf(t, registry, "opgate_policy_snapshot_age_seconds", ""); got != wantAge {
				t.Errorf("the age is %v, want %v", got, wantAge)
			}
		})
	}
}
