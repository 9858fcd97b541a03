package operatorpolicy

import (
	"testing"
	"time"
)

func TestNudges(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var n nudges
	for _, step := range []struct {
		name    string
		at      time.Duration
		failing bool
		nudged  bool
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
		if nudged, after := n.due("shop", step.failing, start.Add(step.at)); nudged != step.nudged || after != step.after {
			t.Errorf("%s: got %t, %s, want %t, %s", step.name, nudged, after, step.nudged, step.after)
		}
	}
	if nudged, after := n.due("other", true, start.Add(time.Hour)); nudged || after != 3*time.Second {
		t.Errorf("another namespace: got %t, %s", nudged, after)
	}
	nudges, now := 0, start
	for {
		nudged, after := n.due("third", true, now)
		if nudged {
			nudges++
		}
		if after == 0 {
			break
		}
		now = now.Add(after)
	}
	if nudges != 9 || now.Sub(start) > time.Hour {
		t.Errorf("%d nudges in %s, want 9 in an hour", nudges, now.Sub(start))
	}
	if nudged, after := n.due("third", true, now.Add(time.Hour)); nudged || after != 0 {
		t.Errorf("an hour later: got %t, %s", nudged, after)
	}
}
