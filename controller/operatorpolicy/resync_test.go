package operatorpolicy

import (
	"testing"
	"time"
)

func TestResyncs(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var p pendingResync
	for _, step := range []struct {
		name    string
		at      time.Duration
		failing bool
		due     bool
		after   time.Duration
	}{
		{"nothing is wrong", 0, false, false, 0},
		{"OLM tries by itself", 1 * time.Second, true, false, 3 * time.Second},
		{"it still does", 2 * time.Second, true, false, 2 * time.Second},
		{"it has given up", 4 * time.Second, true, true, 6 * time.Second},
		{"it failed again", 5 * time.Second, true, false, 5 * time.Second},
		{"the outage lasts", 10 * time.Second, true, true, 12 * time.Second},
		{"it is over", 11 * time.Second, false, false, 0},
		{"another one", 20 * time.Second, true, false, 3 * time.Second},
	} {
		if due, after := p.due(step.failing, start.Add(step.at)); due != step.due || after != step.after {
			t.Errorf("%s: got %t, %s, want %t, %s", step.name, due, after, step.due, step.after)
		}
	}
	p = pendingResync{}
	resyncs, now := 0, start
	for {
		due, after := p.due(true, now)
		if due {
			resyncs++
		}
		if after == 0 {
			break
		}
		now = now.Add(after)
	}
	if resyncs != 9 || now.Sub(start) > time.Hour {
		t.Errorf("%d resyncs in %s, want 9 in an hour", resyncs, now.Sub(start))
	}
	if due, after := p.due(true, now.Add(time.Hour)); due || after != 0 {
		t.Errorf("an hour later: got %t, %s", due, after)
	}
}
