package dependency

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestDamping simulates a dependency that comes and goes.
func TestDamping(t *testing.T) {
	now := noon
	var d Damping
	step := func(after time.Duration, met bool, key string, want time.Duration) {
		t.Helper()
		now = now.Add(after)
		var wait time.Duration
		if d, wait = d.Next(now, met, key); wait != want {
			t.Fatalf("at %s, met %t: waits %s, want %s", now.Sub(noon), met, wait, want)
		}
	}
	step(0, false, "a", 0)
	step(time.Second, true, "a", 0) // the first time
	step(time.Second, false, "a", 0)
	step(time.Second, true, "a", 0) // and the first return
	step(time.Second, false, "a", 0)
	step(time.Second, true, "a", 10*time.Second)
	step(4*time.Second, true, "a", 6*time.Second) // time passes
	step(time.Second, false, "a", 0)              // lost before it counted: not a loss
	step(time.Second, true, "a", 10*time.Second)
	step(10*time.Second, true, "a", 0)
	step(0, true, "a", 0)
	if d.Losses() != 2 {
		t.Errorf("%d losses, want 2", d.Losses())
	}
	for _, delay := range []time.Duration{20, 40, 80, 160, 300, 300, 300} {
		step(time.Second, false, "a", 0)
		step(time.Second, true, "a", delay*time.Second)
		step(delay*time.Second, true, "a", 0)
	}
	step(time.Second, false, "a", 0)
	step(time.Second, true, "b", 0) // an edit resets it
	step(time.Second, false, "b", 0)
	step(time.Second, true, "b", 0)
	if d.Losses() != 1 {
		t.Errorf("%d losses, want 1", d.Losses())
	}
	step(time.Second, false, "b", 0)
	step(time.Second, true, "b", 10*time.Second)
	step(-time.Hour, true, "b", 10*time.Second) // the clock was set back
	step(10*time.Second, true, "b", 0)
}

// TestDampingOfAnything: however the dependencies come and go without an edit, the template is applied a few times an
// hour, and once they hold, they count within the maximum delay.
func TestDampingOfAnything(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		var d Damping
		now, applied, applies := noon, false, 0
		for now.Before(noon.Add(time.Hour)) {
			met := r.IntN(3) > 0
			var wait time.Duration
			d, wait = d.Next(now, met, "key")
			if met && wait == 0 && !applied {
				applies++
			}
			applied = met && wait == 0
			if wait > maxDelay || wait < 0 {
				t.Fatalf("seed %d: waits %s", seed, wait)
			}
			now = now.Add(time.Duration(r.Int64N(int64(30 * time.Second))))
		}
		if applies > 20 {
			t.Errorf("seed %d: applied %d times within an hour", seed, applies)
		}
		_, wait := d.Next(now, true, "key")
		for i := 0; wait > 0; i++ {
			if now = now.Add(wait); i > 1 {
				t.Fatalf("seed %d: it never counts", seed)
			}
			d, _ = d.Next(now.Add(-wait), true, "key")
			d, wait = d.Next(now, true, "key")
		}
	}
}

func TestDampingKey(t *testing.T) {
	p := &Policy{UID: "p", Generation: 1}
	findings := func(change func(f []Finding)) []Finding {
		f := []Finding{{UID: "a", Generation: 1, Met: true}, {UID: "b", Generation: 2, Reason: WrongState}}
		if change != nil {
			change(f)
		}
		return f
	}
	keys := map[string]string{}
	for name, key := range map[string]string{
		"as it is":                DampingKey(p, findings(nil)),
		"the Policy is edited":    DampingKey(&Policy{UID: "p", Generation: 2}, findings(nil)),
		"the Policy is another":   DampingKey(&Policy{UID: "q", Generation: 1}, findings(nil)),
		"a dependency is edited":  DampingKey(p, findings(func(f []Finding) { f[0].Generation = 2 })),
		"a dependency is another": DampingKey(p, findings(func(f []Finding) { f[0].UID = "c" })),
		"a dependency is gone": DampingKey(p,
			findings(func(f []Finding) { f[1].UID, f[1].Generation = "", 0 })),
		"no dependencies":         DampingKey(p, nil),
		"uids that look like one": DampingKey(p, []Finding{{UID: `a" 1 "b`, Generation: 2}}),
		"generations that look like it": DampingKey(p,
			findings(func(f []Finding) { f[0].Generation, f[1].Generation = 11, 2 })),
	} {
		if other, same := keys[key]; same {
			t.Errorf("%s and %s have one key", name, other)
		}
		keys[key] = name
	}
	status := findings(func(f []Finding) { f[0].Met, f[1].Met, f[0].State = false, true, NonCompliant })
	if DampingKey(p, status) != DampingKey(p, findings(nil)) {
		t.Error("a status is no edit")
	}
}

func TestDelay(t *testing.T) {
	for losses, want := range map[int]time.Duration{0: 0, 1: 0, 2: 10 * time.Second, 3: 20 * time.Second,
		6: 160 * time.Second, 7: maxDelay, 11: maxDelay, 64: maxDelay, 1 << 40: maxDelay} {
		if got := (Damping{losses: losses}).Delay(); got != want {
			t.Errorf("%d losses: %s, want %s", losses, got, want)
		}
	}
}
